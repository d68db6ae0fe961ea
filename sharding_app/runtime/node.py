"""A node: a process that hosts entities, and may coordinate.

    new ──row, locks, echo──> joining ──> up ──stop()──> leaving ──shards handed off──> ended
                                          │ ^
                       lease lost         v │ lifeline back, rows compared
                                        suspended ──row gone──> ended: begin again as a new incarnation

Contract (promise 2): nothing is handled and nothing leaves the process unless the lease is valid at that moment. What
was in memory is used again after a suspension only for shards whose rows still show this incarnation and epoch.
Its parts: `joining`, `registering`, `coordinating`, `leaving`, and `own_row`, which also says what goes on after that.
"""

import asyncio
import contextlib
import logging
from typing import Literal

from sharding_app.core.ids import Incarnation, Term, has_no_row
from sharding_app.core.lockkeys import lifeline_keys
from sharding_app.core.messages import (
    AnyMessage,
    BeginHandOff,
    BeginHandOffAck,
    Deliver,
    Echo,
    GetEntities,
    GetNodeStats,
    GetShardRegionState,
    HandOff,
    HostShard,
    NodeGone,
    RegisterAck,
    Steer,
    Steered,
    Suspect,
)
from sharding_app.core.records import Lineage, Member, MemberState, Server, TypeConfig
from sharding_app.model.types import EntityType
from sharding_app.ports.lifeline import Pulse
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.config import NodeConfig, NodePorts
from sharding_app.runtime.coordinating import Coordinating
from sharding_app.runtime.coordinator import CoordinatorShell
from sharding_app.runtime.hearing import Hearing
from sharding_app.runtime.hosting import Hosting
from sharding_app.runtime.joining import ready
from sharding_app.runtime.journal_writer import JournalWriter
from sharding_app.runtime.leaving import leave
from sharding_app.runtime.lifeline_types import LifelineControl
from sharding_app.runtime.own_row import OwnRow
from sharding_app.runtime.process import Process
from sharding_app.runtime.reaching import Reaching, leave_quietly
from sharding_app.runtime.registering import Registering
from sharding_app.runtime.stats import read_entities, read_stats
from sharding_app.runtime.steered import answer_wish

logger = logging.getLogger("sharding.node")

TEND_SECONDS = 1.0


class Node(Process):
    is_proxy = False

    def __init__(
        self, incarnation: Incarnation, config: NodeConfig, ports: NodePorts, types: list[EntityType]
    ) -> None:
        super().__init__(incarnation, config, ports, types)
        self.node_ports = ports
        self.state: MemberState | Literal["new", "ended"] = "new"
        self.age = 0
        self.hosting = Hosting(self, ports, lambda: self.channel_of(incarnation))
        self.hosts = self.hosting.hosts
        self.hearing: Hearing
        self.coordinator: CoordinatorShell | None = None
        self.lifeline: LifelineControl
        self.writer: JournalWriter
        self.ended: asyncio.Future[str]
        "Set with the reason when this incarnation is over, whether it wanted to or not."
        self.asked_to_leave = asyncio.Event()
        "An operator wants this process to end."
        self.all_stops = False
        "The whole cluster is to stop: nothing is handed over any more."
        self.valid = asyncio.Event()
        "Set once the lease was valid."
        self.valid_since = float("inf")
        "When it was valid for the first time."
        self._row = OwnRow(self)
        self._coordinating = Coordinating(self)
        self._registering = Registering(self)
        self.reaching = Reaching(self)
        self._pulsed_at = float("-inf")
        self._coordinated = False
        "Somebody holds the coordinator's lock, as the last pulse has shown."
        self._said_up = False

    # -- Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster; returns when this node is up and may be given shards."""
        self.ended = asyncio.get_running_loop().create_future()
        await super().start()
        self.homes.on_coordinator = self.node_ports.listener.coordinator_changed
        ports, store, config = self.node_ports, self.ports.store, self.config
        wanted = [each for each in self.configs.values() if self._hosts(each)]
        type_ids, differing = await store.register_types(wanted)
        self.refused |= differing
        self.writer = JournalWriter(ports.journal, self.may_send)
        for each in wanted:
            if each.name not in differing:
                host = self.hosting.add(self.types[each.name], type_ids[each.name])
                self.run(host.run(), f"recovery of {each.name}")
        for path, keeper in self.hosting.keepers.items():
            self.run(keeper.run(), f"leases of {path}")
        self.run(self.writer.run(), "journal")
        self.run(self._tend(), "threads")
        keys = lifeline_keys(self.cluster_id, self.incarnation)
        # A node keeps these from the start: the moment of need is a bad one to find that there is no room.
        await ports.journal.connect()
        self.state = "joining"
        self.age = await store.join(self._member(), keys)
        self.lifeline = ports.lifeline(self.cluster_id, self)
        self.lifeline.start()
        self.run(self.reaching.run(), "reach")
        self.hearing = Hearing(
            self, self.links.echo, store, self.ports.clock.now,
            interval_seconds=config.echo_interval_seconds, deaf_after_seconds=config.deaf_after_seconds,
        )  # fmt: skip
        if config.unguarded:
            logger.warning(
                "SHARDING['KEYS'] is empty: whoever reaches the channel layer's Redis can read what entities answer, send"
                " them commands, and stop nodes' work. Wishes to erase and to shut down are refused until there are keys",
                extra={"action": "no_keys"},
            )
        self.log("node_joining", "node %s joins as %s", config.name, self.incarnation)
        await ready(self)
        await self.store_state("up")
        self.lifeline.set_candidate(config.candidate)
        self.run(self.hosting.recall(), "recall")
        self.log("node_up", "node %s is up, the %d. to join", config.name, self.age)
        ports.listener.node_up(self.incarnation, config.name)
        self._said_up = True

    def _hosts(self, wanted: TypeConfig) -> bool:
        """Whether entities of that type live in nodes like this one."""
        fits = not wanted.role or wanted.role in self.config.roles
        return fits and not self.types[wanted.name].proxy_only

    def _member(self) -> Member:
        config = self.config
        return Member(
            incarnation=self.incarnation, name=config.name, host=config.host, pid=config.pid, age=0, state="joining",
            roles=config.roles, app_version=config.app_version, candidate=config.candidate, types=tuple(self.hosts),
            wire=config.wire,
        )  # fmt: skip

    async def stop(self, timeout: float = 30.0) -> None:
        """Leave in order: hand the shards off, hand coordination over, then go."""
        deadline = self.ports.clock.now() + timeout
        if self.state in ("up", "leaving") and not self.ended.done():
            try:
                await leave(self, deadline)
            except StoreUnavailable as error:
                logger.warning("leaving without a word: %s", error, extra={"action": "leave_failed"})
        elif self.state == "joining":
            with contextlib.suppress(StoreUnavailable):  # else the coordinator finds us dead
                await self.ports.store.leave(self.incarnation)
        self.end("stopped")
        await self.close()

    async def close(self) -> None:
        """End at once, as a crash would, but tidily for this process."""
        self.state = "ended"
        self.end("closed")
        if hasattr(self, "lifeline"):
            await self.lifeline.stop()
        self.hosting.close()
        self._coordinating.stop()
        await super().close()
        await self.node_ports.journal.close()
        await self.node_ports.threads.close()
        if self.node_ports.together is not None:
            await self.node_ports.together.close()

    @property
    def registered(self) -> bool:
        """Whether a coordinator has heard this node over the wire."""
        return self._registering.done

    def not_hosted(self) -> dict[str, str]:
        """The types that this node declares and is refused, or should host and does not, and why."""
        missing = [
            each.name for each in self.configs.values() if self._hosts(each) and each.name not in self.hosts
        ]
        return {
            **{name: f"{name!r} is not hosted: its start has failed" for name in missing},
            **{name: self.why_refused(name) for name in self.refused},
        }

    def may_send(self) -> bool:
        return self.state == "joining" or self.ports.clock.now() < self.lifeline.valid_until

    def waiting_bytes(self, peer: Incarnation) -> int:
        return self.hosting.waiting_bytes(peer)

    def may_handle(self) -> bool:
        return self.ports.clock.now() < self.lifeline.valid_until and not self.ended.done()

    # -- Callbacks of the lifeline ---------------------------------------------------------------------------------

    def on_valid(self) -> None:
        self.valid_since = self.ports.clock.now()
        self.valid.set()

    def on_settled(self, server: Server) -> None:
        self._row.begins_in(server.lineage)
        self.run(self._row.settle(server), "settle")

    def on_suspended(self) -> None:
        self.log("node_suspended", "the lease of node %s is lost: nothing is handled", self.config.name)

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        self.run(self._row.compare(generation, settled, lineage), "compare rows")

    def on_elected(self, term: Term) -> None:
        self._coordinating.begin(term)

    def on_deposed(self) -> None:
        self._coordinating.stop()

    def on_pulse(self, pulse: Pulse) -> None:
        self._coordinated = pulse.coordinator_locked
        self._pulsed_at = self.ports.clock.now()

    # -- What the rows say at rest -----------------------------------------------------------------------------------

    async def read_news(self) -> None:
        """Learn who coordinates, and what an operator asks. Beside the lifeline, which touches no table."""
        news = await self.ports.store.news(self.incarnation)
        self.lifeline.told_term(news.term)
        if self._coordinated:
            self.homes.coordinator_told(news.coordinator, news.term)
        self.all_stops = news.asked in ("prepare", "stop")
        if news.asked in ("leave", "stop") and self.state in ("up", "leaving"):
            self.asked_to_leave.set()
        await self._row.mend(news)

    def lifeline_answers(self) -> bool:
        """Whether a ping was answered lately, whatever the lease says."""
        return self.ports.clock.now() - self._pulsed_at < self.config.lease_ttl_seconds

    # -- Messages --------------------------------------------------------------------------------------------------

    def envelopes(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        self.hosting.receive(source, envelopes)

    def leave_region(self, type_name: str) -> None:
        """GracefulShutdown of one region."""
        self.hosting.leave_region(type_name)

    def control(self, source: Incarnation, message: AnyMessage) -> None:  # noqa: C901  (one case for each message)
        if isinstance(message, Steer) and (why := self.wishes.refusal(message, source)):
            logger.warning(
                "a wish to %s, sent by %s in the name of %r, is refused: %s", message.action, source, message.by, why,
                extra={"action": "wish_refused", "wish": message.action},
            )  # fmt: skip
            self.try_send(source, Steered(message.request, False, why))
            return
        if self.coordinator is not None and self.coordinator.receive(source, message):
            if isinstance(message, Suspect):
                self._coordinating.look_at(*message.incarnations)
            return
        match message:
            case HostShard() if message.term >= self.homes.term:
                self.run(self.hosting.start(source, message), "host shards", vital=False)
            case BeginHandOff() if message.term >= self.homes.term:
                super().control(source, message)
                self.try_send(source, BeginHandOffAck(message.term, message.type, message.shards))
            case HandOff() if message.term >= self.homes.term:
                self.hosting.hand_off(message)
            case Suspect():
                self._coordinating.look_at(*message.incarnations)
            case Echo():
                self.hearing.hear(source, message)
            case RegisterAck():
                super().control(source, message)
                self._registering.acknowledged(message)
            case NodeGone() if message.incarnation == self.incarnation:
                if message.term >= self.homes.term and source != self.incarnation:
                    self.end("buried")
            case NodeGone():
                super().control(source, message)
                self._relay(source, message)
            case GetShardRegionState():
                refused = {name: self.why_refused(name) for name in self.refused}
                state = self.hosting.state(message, refused)
                if self.coordinator is not None:
                    state.asked_in_vain = self.coordinator.machine.asked_in_vain(self.ports.clock.now())
                self.try_send(source, state)
            case GetNodeStats() if hasattr(self, "lifeline"):
                self.try_send(source, read_stats(self, message.request))
            case GetEntities():
                self.try_send(source, read_entities(self, message))
            case Steer():
                self.run(answer_wish(self, source, message), "an operator's wish", vital=False)
            case _:
                super().control(source, message)

    # -- Membership ------------------------------------------------------------------------------------------------

    async def drain(self, *, drained: bool) -> None:
        """Hand all shards over and take no new ones, without leaving; or take shards again."""
        await self.store_state("leaving" if drained else "up")

    async def store_state(self, state: MemberState) -> None:
        self.state = state
        await self._row.write(state=state)
        self._registering.again()

    def fail(self) -> None:
        super().fail()
        self.end("failed")

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.log("node_ended", "incarnation %s ends: %s", self.incarnation, reason)
            self.ended.set_result(reason)
            self.state = "ended"
            self._coordinating.stop()
            self.hosting.drop_all()
            if self._said_up:
                self.node_ports.listener.node_down(self.incarnation, self.config.name)

    def _suspected(self, incarnation: Incarnation) -> None:
        super()._suspected(incarnation)
        self._coordinating.look_at(incarnation)
        if self.coordinator is not None and not has_no_row(incarnation):
            self.coordinator.look_now()

    def _relay(self, source: Incarnation, message: NodeGone) -> None:
        """Tell the proxies that are linked to us: a new coordinator does not know them yet."""
        for peer in self.links.peers():
            if has_no_row(peer):
                self.try_send(peer, message)

    async def _tend(self) -> None:
        """Look after what async handlers have left in their threads."""
        while True:
            await asyncio.sleep(TEND_SECONDS)
            await self.node_ports.threads.tend()

    # -- Time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        super().tick()
        now = self.ports.clock.now()
        self._registering.tick(now)
        if hasattr(self, "hearing"):
            if self.hearing.due():
                self.run(self.hearing.say(), "echo")
            if self.state == "up" and self.hearing.changed():
                self.run(self.hearing.tell(), "deaf")
        self.hosting.tick(now)

    async def say_deaf(self, deaf: bool) -> None:
        await self._row.write(deaf=deaf)

    async def step_aside(self, why: str = "deaf") -> None:
        """Others can work and we cannot: end this incarnation, so that its shards find homes that can."""
        self.end(why)
        await leave_quietly(self)

    def log(self, action: str, text: str, *values: object) -> None:
        logger.info(text, *values, extra={"action": action, "node": self.config.name})
