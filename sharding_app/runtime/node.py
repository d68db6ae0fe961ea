"""A node: a process that hosts entities, and may coordinate.

    new ──row, locks, echo──> joining ──> up ──stop()──> leaving ──shards handed off──> ended
                                          │ ^
                       lease lost         v │ lifeline back, rows compared
                                        suspended ──row gone──> ended: begin again as a new incarnation

Contract (promise 2): nothing is handled and nothing leaves the process unless the lease is valid at that moment. What
was in memory is used again after a suspension only for shards whose rows still show this incarnation and epoch.
"""

import asyncio
import contextlib
import logging

from sharding_app.core.allocation import ShardAllocationStrategy
from sharding_app.core.ids import Incarnation, Term
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
    Register,
    RegisterAck,
    Steer,
    Suspect,
)
from sharding_app.core.oldest import SINGLETON, OldestAllocation
from sharding_app.core.records import Decision, Member, MemberState, Server
from sharding_app.core.wire import kept_out
from sharding_app.model.types import EntityType
from sharding_app.ports.lifeline import Pulse
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.config import NodeConfig, NodePorts
from sharding_app.runtime.coordinator import CoordinatorShell
from sharding_app.runtime.hearing import Hearing
from sharding_app.runtime.hosting import Hosting
from sharding_app.runtime.journal_writer import JournalWriter
from sharding_app.runtime.lifeline_types import LifelineControl
from sharding_app.runtime.process import Process
from sharding_app.runtime.stats import read_entities, read_stats
from sharding_app.runtime.steered import answer_wish

logger = logging.getLogger("sharding.node")

RETRY_SECONDS = 0.1
REFUSED_SECONDS = 0.5
TEND_SECONDS = 1.0
REGISTER_SECONDS = 0.5
LOOK_WHILE_LEAVING_SECONDS = 0.2
PASSIVATE_SWEEP_SECONDS = 5.0
_OLDEST = OldestAllocation()


class Node(Process):
    is_proxy = False

    def __init__(
        self, incarnation: Incarnation, config: NodeConfig, ports: NodePorts, types: list[EntityType]
    ) -> None:
        super().__init__(incarnation, config, ports, types)
        self.node_ports = ports
        self.state: MemberState | str = "new"
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
        self._coordinating: asyncio.Task[None] | None = None
        self._valid = asyncio.Event()
        self._registered_with: Incarnation | None = None
        self._registered_at = float("-inf")
        self._asked_to_leave_at = float("-inf")
        self._swept_at = 0.0
        self._said_up = False

    # -- Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster; returns when this node is up and may be given shards."""
        self.ended = asyncio.get_running_loop().create_future()
        await super().start()
        self.homes.on_coordinator = self.node_ports.listener.coordinator_changed
        ports, store, config = self.node_ports, self.ports.store, self.config
        wanted = [
            each
            for name, each in self.configs.items()
            if (not each.role or each.role in config.roles) and not self.types[name].proxy_only
        ]
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
        member = Member(
            incarnation=self.incarnation, name=config.name, host=config.host, pid=config.pid, age=0, state="joining",
            roles=config.roles, app_version=config.app_version, candidate=config.candidate, types=tuple(self.hosts),
            wire=config.wire,
        )  # fmt: skip
        self.state = "joining"
        self.age = await store.join(member, keys)
        self.lifeline = ports.lifeline(self.cluster_id, self)
        self.lifeline.start()
        self.hearing = Hearing(
            self, self.links.echo, store, self.ports.clock.now,
            interval_seconds=config.echo_interval_seconds, deaf_after_seconds=config.deaf_after_seconds,
        )  # fmt: skip
        self._log("node_joining", "node %s joins as %s", config.name, self.incarnation)
        await self._wait_for(self._valid)
        await self._wait_for(self.hearing.heard)
        await self._wait_until_understood()
        await self._store_state("up")
        self.lifeline.set_candidate(config.candidate)
        self.run(self.hosting.recall(), "recall")
        self._log("node_up", "node %s is up, the %d. to join", config.name, self.age)
        ports.listener.node_up(self.incarnation, config.name)
        self._said_up = True

    async def stop(self, timeout: float = 30.0) -> None:
        """Leave in order: hand the shards off, hand coordination over, then go."""
        deadline = self.ports.clock.now() + timeout
        if self.state in ("up", "leaving") and not self.ended.done():
            try:
                await self._leave(deadline)
            except StoreUnavailable as error:
                logger.warning("leaving without a word: %s", error, extra={"action": "leave_failed"})
        elif self.state == "joining":
            with contextlib.suppress(StoreUnavailable):  # else the coordinator finds us dead
                await self.ports.store.leave(self.incarnation)
        self._end("stopped")
        await self.close()

    async def close(self) -> None:
        """End at once, as a crash would, but tidily for this process."""
        self.state = "ended"
        self._end("closed")
        if hasattr(self, "lifeline"):
            await self.lifeline.stop()
        self.hosting.close()
        self._stop_coordinating()
        await super().close()
        await self.node_ports.journal.close()
        await self.node_ports.threads.close()
        if self.node_ports.together is not None:
            self.node_ports.together.close()

    @property
    def registered(self) -> bool:
        """Whether a coordinator has acknowledged this node."""
        return self._registered_with is not None

    def may_send(self) -> bool:
        return self.state == "joining" or self.ports.clock.now() < self.lifeline.valid_until

    def waiting_bytes(self, peer: Incarnation) -> int:
        return self.hosting.waiting_bytes(peer)

    def may_handle(self) -> bool:
        return self.ports.clock.now() < self.lifeline.valid_until

    # -- Callbacks of the lifeline ---------------------------------------------------------------------------------

    def on_valid(self) -> None:
        self._valid.set()

    def on_settled(self, server: Server) -> None:
        self.run(self._settle(server), "settle")

    def on_suspended(self) -> None:
        self._log("node_suspended", "the lease of node %s is lost: nothing is handled", self.config.name)

    def on_back(self, generation: int) -> None:
        self.run(self._compare(generation), "compare rows")

    def on_elected(self, term: Term) -> None:
        self._stop_coordinating()
        ports, config = self.node_ports, self.config
        self.coordinator = CoordinatorShell(
            self.incarnation, term, ports.store, ports.clock, self.try_send, config.coordinator, self._strategy_of,
            config.lease_ttl_seconds, self._decided,
        )  # fmt: skip
        self.homes.coordinator_told(self.incarnation, term)
        self._coordinating = self.run(self._coordinate(self.coordinator), "coordinator")

    def _strategy_of(self, type_name: str) -> ShardAllocationStrategy:
        if type_name.startswith(SINGLETON):
            return _OLDEST
        known = self.types.get(type_name)
        own = None if known is None else known.settings.allocation
        return self.config.strategy_of(type_name) if own is None else own

    def on_deposed(self) -> None:
        self._stop_coordinating()

    def on_pulse(self, pulse: Pulse) -> None:
        if pulse.coordinator_locked:
            self.homes.coordinator_told(pulse.coordinator, pulse.term)
        self.all_stops = pulse.asked in ("prepare", "stop")
        if pulse.asked in ("leave", "stop") and self.state in ("up", "leaving"):
            self.asked_to_leave.set()

    # -- Messages --------------------------------------------------------------------------------------------------

    def envelopes(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        self.hosting.receive(source, envelopes)

    def leave_region(self, type_name: str) -> None:
        """GracefulShutdown of one region."""
        self.hosting.leave_region(type_name)

    def control(self, source: Incarnation, message: AnyMessage) -> None:  # noqa: C901  (one case for each message)
        if self.coordinator is not None and self.coordinator.receive(source, message):
            if isinstance(message, Suspect):
                self._look_at(message.incarnation)
            return
        match message:
            case HostShard() if message.term >= self.homes.term:
                self.run(self.hosting.start(source, message), "host shards")
            case BeginHandOff() if message.term >= self.homes.term:
                super().control(source, message)
                self.try_send(source, BeginHandOffAck(message.term, message.type, message.shards))
            case HandOff() if message.term >= self.homes.term:
                self.hosting.hand_off(message)
            case Suspect():
                self._look_at(message.incarnation)
            case Echo():
                self.hearing.hear(source, message)
            case RegisterAck():
                super().control(source, message)
                self._registered_with = self.homes.coordinator
            case NodeGone() if message.incarnation == self.incarnation:
                if message.term >= self.homes.term and source != self.incarnation:
                    self._end("buried")
            case NodeGone():
                super().control(source, message)
                self._relay(source, message)
            case GetShardRegionState():
                refused = {name: self.why_refused(name) for name in self.refused}
                self.try_send(source, self.hosting.state(message, refused))
            case GetNodeStats() if hasattr(self, "lifeline"):
                self.try_send(source, read_stats(self, message.request))
            case GetEntities():
                self.try_send(source, read_entities(self, message))
            case Steer():
                self.run(answer_wish(self, source, message), "an operator's wish")
            case _:
                super().control(source, message)

    # -- Membership ------------------------------------------------------------------------------------------------

    async def _settle(self, server: Server) -> None:
        """Write on which server the locks are held: from now on the loss of both means death."""
        await self._update(server=server)

    async def _compare(self, generation: int) -> None:
        """The lifeline is back: keep the shards whose rows still say that they are ours, drop the others."""
        while not self.ended.done():
            # What is started while the rows are read is not in them.
            held = self.hosting.epochs()
            try:
                # A write, not a look: who is about to bury us meets it (`ClusterStore.bury`).
                if not await self.ports.store.update_member(self.incarnation):
                    self._end("buried")
                    return
                rows = await self.ports.store.homes_of(self.incarnation)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self.hosting.keep(rows, held)
            if await self.lifeline.resume(generation):
                self._log("node_resumed", "node %s goes on", self.config.name)
                self.links.resume()
                self.writer.resume()
                self.hosting.resume()
            return

    async def _leave(self, deadline: float) -> None:
        self._log("node_leaving", "node %s leaves", self.config.name)
        await self._store_state("leaving")
        self.lifeline.set_candidate(False)
        await self.lifeline.resign()
        others = await self._others_up()
        for each in others:
            self.try_send(each, Suspect(self.incarnation))
        look_at = self.ports.clock.now() + LOOK_WHILE_LEAVING_SECONDS
        while others and not self.all_stops and self.ports.clock.now() < deadline and not self.ended.done():
            if self.hosting.empty:
                break
            if self.homes.coordinator not in (None, self.incarnation):
                self.try_send(str(self.homes.coordinator), Register(self.incarnation))
            await asyncio.sleep(0.02)
            if self.ports.clock.now() >= look_at:
                # They may be leaving too, all at once: then nobody is left to take anything over.
                look_at = self.ports.clock.now() + LOOK_WHILE_LEAVING_SECONDS
                with contextlib.suppress(StoreUnavailable):
                    others = await self._others_up()
        self.hosting.stop_all()
        await self.hosting.emptied(deadline - self.ports.clock.now())
        await self.hosting.released(min(5.0, deadline - self.ports.clock.now()))
        await self.links.drain(min(1.0, max(0.0, deadline - self.ports.clock.now())))
        await self.ports.store.leave(self.incarnation)

    async def _others_up(self) -> list[Incarnation]:
        """Return who could take our shards over."""
        _, members = await self.ports.store.members()
        up = [each.incarnation for each in members if each.state == "up" and each.locks]
        return [each for each in up if each != self.incarnation]

    async def drain(self, *, drained: bool) -> None:
        """Hand all shards over and take no new ones, without leaving; or take shards again."""
        await self._store_state("leaving" if drained else "up")

    async def _store_state(self, state: MemberState) -> None:
        self.state = state
        await self._update(state=state)
        self._registered_with = None

    async def _update(
        self, *, state: MemberState | None = None, deaf: bool | None = None, server: Server | None = None
    ) -> None:
        """Write to our row for as long as it takes; a row that is gone ends this incarnation."""
        while not self.ended.done():
            try:
                if not await self.ports.store.update_member(
                    self.incarnation, state=state, deaf=deaf, server=server
                ):
                    self._end("buried")
                return
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait_until_understood(self) -> None:
        """Stay outside while a node is there whose release is too far from ours."""
        said = ""
        while not self.ended.done():
            with contextlib.suppress(StoreUnavailable):
                _, members = await self.ports.store.members()
                why = kept_out(members).get(self.incarnation, "")
                if not why:
                    return
                if why != said:
                    logger.error(
                        "node %s is refused: %s. It joins when they are gone.", self.config.name, why,
                        extra={"action": "node_refused", "node": self.config.name},
                    )  # fmt: skip
                said = why
            await asyncio.sleep(REFUSED_SECONDS)
        raise StoreUnavailable(f"this incarnation ended before it was up: {self.ended.result()}")

    async def _wait_for(self, event: asyncio.Event) -> None:
        waiter = asyncio.ensure_future(event.wait())
        await asyncio.wait((waiter, self.ended), return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if self.ended.done():
            raise StoreUnavailable(f"this incarnation ended before it was up: {self.ended.result()}")

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self._log("node_ended", "incarnation %s ends: %s", self.incarnation, reason)
            self.ended.set_result(reason)
            self.state = "ended"
            self._stop_coordinating()
            self.hosting.drop_all()
            if self._said_up:
                self.node_ports.listener.node_down(self.incarnation, self.config.name)

    def _decided(self, decision: Decision) -> None:
        """The coordinator here sees others come and go."""
        self.node_ports.on_decision(decision)
        if decision.subject != self.incarnation:
            if decision.action == "node_up":
                self.node_ports.listener.node_up(decision.subject, decision.detail)
            elif decision.action in ("node_dead", "node_left"):
                self.node_ports.listener.node_down(decision.subject, decision.detail)

    # -- Coordination ----------------------------------------------------------------------------------------------

    async def _coordinate(self, shell: CoordinatorShell) -> None:
        await shell.run()
        if self.coordinator is shell:
            self.coordinator = None
            # Standing down deposes, which cancels what coordinates: not this, or we would never stand again.
            self._coordinating = None
            await self.lifeline.resign()
            self.lifeline.set_candidate(self.config.candidate and self.state == "up")

    def _stop_coordinating(self) -> None:
        self.coordinator = None
        if self._coordinating is not None:
            self._coordinating.cancel()
            self._coordinating = None

    def _look_at(self, incarnation: Incarnation) -> None:
        if incarnation == self.homes.coordinator and self.coordinator is None:
            self.lifeline.look_now()

    def _suspected(self, incarnation: Incarnation) -> None:
        super()._suspected(incarnation)
        self._look_at(incarnation)
        if self.coordinator is not None:
            self.coordinator.look_now()

    def _relay(self, source: Incarnation, message: NodeGone) -> None:
        """Tell the proxies that are linked to us: a new coordinator does not know them yet."""
        for peer in self.links.peers():
            if peer.startswith("p-"):
                self.try_send(peer, message)

    async def _tend(self) -> None:
        """After async handlers have run, look after what they leave in their thread."""
        tended = 0
        while True:
            await asyncio.sleep(TEND_SECONDS)
            run = sum(host.async_handlers for host in self.hosts.values())
            if run != tended:
                tended = run
                await self.node_ports.threads.tend()

    # -- Time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        super().tick()
        now = self.ports.clock.now()
        coordinator = self.homes.coordinator
        registered = self._registered_with == coordinator or self.state not in ("up", "leaving")
        if coordinator is not None and not registered and now - self._registered_at >= REGISTER_SECONDS:
            self._registered_at = now
            self.try_send(coordinator, Register(self.incarnation))
        if now - self._asked_to_leave_at >= REGISTER_SECONDS and self.hosting.ask_to_leave():
            self._asked_to_leave_at = now
        if hasattr(self, "hearing"):
            if self.hearing.due():
                self.run(self.hearing.say(), "echo")
            if self.state == "up" and self.hearing.changed():
                self.run(self.hearing.tell(), "deaf")
        if now - self._swept_at >= PASSIVATE_SWEEP_SECONDS:
            self._swept_at = now
            self.hosting.passivate_idle()

    async def say_deaf(self, deaf: bool) -> None:
        await self._update(deaf=deaf)

    async def step_aside(self) -> None:
        """Deaf while others hear: end this incarnation, so that its shards find homes that hear."""
        self._end("deaf")
        with contextlib.suppress(StoreUnavailable):  # else the coordinator finds us dead
            await self.ports.store.leave(self.incarnation)

    def _log(self, action: str, text: str, *values: object) -> None:
        logger.info(text, *values, extra={"action": action, "node": self.config.name})
