"""A node: a process that hosts entities, and may coordinate.

    new ──row, locks, echo──> joining ──> up ──stop()──> leaving ──shards handed off──> ended
                                          │ ^
                       lease lost         v │ lifeline back, rows compared
                                        suspended ──row gone──> ended; a new incarnation begins

Contract (promise 2): nothing is handled unless the lease is valid at that moment, and once the node
has joined nothing leaves the process either. After a suspension objects in memory are used again
only if their shards' rows still show this incarnation and epoch.

Its part `membership` joins, leaves, and decides how to go on after a suspension. Its parts see it
as `NodeParts`.
"""

import asyncio
import logging

from sharding_app.entities.entity_type import EntityType
from sharding_app.ports.lifeline import Pulse
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import Incarnation, Term, has_no_row
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.messages import (
    AnyMessage,
    BeginHandOff,
    BeginHandOffAck,
    Deliver,
    Echo,
    GetEntities,
    GetNodeStats,
    GetNodeTrend,
    GetShardRegionState,
    HandOff,
    HostShard,
    NodeGone,
    OperatorReply,
    OperatorRequest,
    RegisterAck,
    ReplyCode,
    Suspect,
    WaitProbe,
)
from sharding_app.protocol.records import Lineage, Member, MemberState, Server, TypeConfig
from sharding_app.protocol.trend import Trends
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from sharding_app.runtime.coordinator_shell import CoordinatorShell
from sharding_app.runtime.hosting.journal_part import JournalWatch
from sharding_app.runtime.hosting.node_host import NodeHost
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.runtime.liveness.self_echo import Hearing
from sharding_app.runtime.node.coordinator_terms import CoordinatorTerms
from sharding_app.runtime.node.interfaces import NodeState
from sharding_app.runtime.node.membership import NodeMembership
from sharding_app.runtime.node.operator import answer_operator
from sharding_app.runtime.node.process import Process
from sharding_app.runtime.node.reach import Reaching
from sharding_app.runtime.node.stats import answer_trend, read_entities, read_figures, read_stats, read_types

logger = logging.getLogger("sharding.node")

TEND_SECONDS = 1.0


class Node(Process):
    is_proxy = False

    def __init__(
        self,
        incarnation: Incarnation,
        config: NodeConfig,
        ports: NodePorts,
        types: list[EntityType],
        cluster_id: str,
    ) -> None:
        """Make it on its event loop."""
        super().__init__(incarnation, config, ports, types, cluster_id)
        self.node_ports = ports
        self.state: NodeState = "new"
        self.age = 0
        "Its number among the nodes that ever joined; 0: it has not joined."
        self.writer = JournalWriter(ports.journal, self.may_send)
        self.hosting = NodeHost(self, ports, lambda: self.channel_of(incarnation))
        self.hosts = self.hosting.hosts
        self.hearing = Hearing(
            self, self.links.echo, ports.store, ports.clock.now,
            interval_seconds=config.echo_interval_seconds, deaf_after_seconds=config.deaf_after_seconds,
        )  # fmt: skip
        self.coordinator: CoordinatorShell | None = None
        self.lifeline = ports.lifeline(cluster_id, self)
        self.locator.on_coordinator = ports.listener.coordinator_changed
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        "Set with the reason when this incarnation is over, wanted or not."
        self.asked_to_leave = asyncio.Event()
        "Set when an operator wants this process to end."
        self.all_stops = False
        "The whole cluster is to stop: nothing is handed over any more."
        self.valid = asyncio.Event()
        "Set once the lease was valid."
        self.valid_since = float("inf")
        "Time at which it was valid first."
        self.trends = Trends()
        self._coordinator_terms = CoordinatorTerms(self)
        self.reaching = Reaching(self)
        self._membership = NodeMembership(self, self.reaching)
        self._pulsed_at = float("-inf")
        self._coordinated = False
        "The last pulse has shown that the coordinator's lock is held."
        self._said_up = False
        self._obeyed: Term = 0
        "The highest term of a coordinator whose order about shards was carried out."

    # -- Life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster; return when this node is up and may be given shards."""
        await super().start()
        ports, store, config = self.node_ports, self.ports.store, self.config
        wanted = [each for each in self.configs.values() if self._hosts(each)]
        type_ids, differing = await store.register_types(wanted)
        self.refused |= differing
        numbers = {each.name: self.types[each.name].workers for each in wanted if each.name not in differing}
        if numbers := {name: number for name, number in numbers.items() if number}:
            await store.introduce_workers(numbers)
        for each in wanted:
            if each.name not in differing:
                for host in self.hosting.add(self.types[each.name], type_ids[each.name]):
                    self.run(host.run(), f"recovery of {each.name}")
        for path, keeper in self.hosting.keepers.items():
            self.run(keeper.run(), f"leases of {path}")
        self.run(self.writer.run(), "journal")
        for part in self.hosting.parts[1:]:
            self.run(part.writer.run(), f"journal {part.name}")
            watch = JournalWatch(
                part, self.incarnation, self.cluster_id, store, self.hosting.give_up, self.hosting.take_again
            )
            self.run(watch.run(), f"look at the journal {part.name}")
        self.run(self._tend(), "threads and figures")
        keys = lifeline_keys(self.cluster_id, self.incarnation)
        # Opened at the start: when they are needed, the server may have no room for them.
        await ports.journal.connect()
        self.state = "joining"
        self.age = await store.join(self._member(), keys)
        self.lifeline.start()
        self.run(self.reaching.run(), "reach")
        if config.unguarded:
            logger.warning(
                "SHARDING['KEYS'] is empty: any process of this user here, and any client of the channel layer's Redis,"
                " can read entities' answers, send them commands, and stop nodes' work. Requests to erase and to shut down are refused until there are keys",
                extra={"action": "no_keys"},
            )
        self.log("node_joining", "node %s joins as %s", config.name, self.incarnation)
        await self._membership.ready()
        await self.store_state("up")
        self.lifeline.set_candidate(config.candidate)
        self.run(self.hosting.recall(), "recall")
        self.log("node_up", "node %s is up, the %d. to join", config.name, self.age)
        ports.listener.node_up(self.incarnation, config.name)
        self._said_up = True

    def _hosts(self, wanted: TypeConfig) -> bool:
        """Whether nodes like this one host entities of that type."""
        fits = not wanted.role or wanted.role in self.config.roles
        return fits and not self.types[wanted.name].proxy_only

    def _member(self) -> Member:
        config = self.config
        return Member(
            incarnation=self.incarnation, name=config.name, host=config.host, pid=config.pid, age=0, state="joining",
            roles=config.roles, app_version=config.app_version, candidate=config.candidate, types=tuple(self.hosts),
            wire=config.wire, addresses=self.ports.transport.addresses(),
        )  # fmt: skip

    async def stop(self, timeout: float = 30.0) -> None:
        """Leave in order: resign as the coordinator, hand the shards off, then go."""
        deadline = self.ports.clock.now() + timeout
        self.asked_to_leave.set()  # it takes no shards again, whatever an operator asks for now
        if self.state in ("up", "leaving") and not self.ended.done():
            self.log("node_leaving", "node %s leaves", self.config.name)
            try:
                await self.store_state("leaving", deadline)
                await self._membership.leave(deadline)
            except StoreUnavailable as error:
                logger.warning("leaving without a word: %s", error, extra={"action": "leave_failed"})
        elif self.state == "joining":
            await self._membership.delete_row()
        self.end("stopped")
        await self.close()

    async def close(self) -> None:
        """End at once, as a crash would, but tidily for this process."""
        self.state = "ended"
        self.end("closed")
        await self.lifeline.stop()
        self.hosting.close()
        self._coordinator_terms.stop()
        await super().close()

    @property
    def registered(self) -> bool:
        """Whether a coordinator has heard this node over the wire."""
        return self._membership.registered

    def not_hosted(self) -> dict[str, str]:
        """Return the types that this node should host and does not, with the reasons."""
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

    # -- Callbacks of the lifeline -----------------------------------------------------------------

    def on_valid(self) -> None:
        self.valid_since = self.ports.clock.now()
        self.valid.set()

    def on_settled(self, server: Server) -> None:
        self._membership.begins_in(server.lineage)
        self.run(self._membership.settle(server), "settle")

    def on_suspended(self) -> None:
        self.log("node_suspended", "the lease of node %s is lost: nothing is handled", self.config.name)
        self.hosting.suspend()

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        self.run(self._membership.compare(generation, settled, lineage), "compare rows")

    def on_elected(self, term: Term) -> None:
        self._coordinator_terms.begin(term)

    def on_deposed(self) -> None:
        self._coordinator_terms.stop()

    def on_pulse(self, pulse: Pulse) -> None:
        self._coordinated = pulse.coordinator_locked
        self._pulsed_at = self.ports.clock.now()

    # -- The rows at rest --------------------------------------------------------------------------

    async def read_news(self) -> None:
        """Learn the coordinator and an operator's request from the rows.

        The lifeline touches no table.
        """
        news = await self.ports.store.news(self.incarnation)
        self.lifeline.told_term(news.term)
        if self._coordinated:
            self.locator.coordinator_told(news.coordinator, news.term)
        self.hosting.parts[0].deliverer.told(uses_messages=news.uses_messages)
        if self.coordinator is not None:
            self.coordinator.told_numbers(news.numbers)
        self.all_stops = news.asked in ("prepare", "stop")
        if news.asked in ("leave", "stop") and self.state in ("up", "leaving"):
            self.asked_to_leave.set()
        await self._membership.mend(news)

    def lifeline_answers(self) -> bool:
        """Whether a ping was answered lately, whatever the lease says."""
        return self.ports.clock.now() - self._pulsed_at < self.config.lease_ttl_seconds

    # -- Messages ----------------------------------------------------------------------------------

    def envelopes(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        self.hosting.receive(source, envelopes)

    def leave_region(self, type_name: str) -> None:
        """GracefulShutdown of one region."""
        self.hosting.leave_region(type_name)

    def control(self, source: Incarnation, message: AnyMessage) -> None:  # noqa: C901  (one case for each message)
        if isinstance(message, OperatorRequest) and (why := self.operator_keys.refusal(message, source)):
            logger.warning(
                "a request to %s, sent by %s in the name of %r, is refused: %s", message.action, source, message.by, why,
                extra={"action": "request_refused", "request": message.action},
            )  # fmt: skip
            self.try_send(source, OperatorReply(message.request, ReplyCode.REFUSED, why))
            return
        if self.coordinator is not None and self.coordinator.receive(source, message):
            if isinstance(message, Suspect):
                self._coordinator_terms.look_at(*message.incarnations)
            return
        match message:
            case HostShard() if self._obeys(message.term):
                self.run(self.hosting.start(source, message), "host shards", vital=False)
            case BeginHandOff() if self._obeys(message.term):
                super().control(source, message)
                self.try_send(source, BeginHandOffAck(message.term, message.type, message.shards))
            case HandOff() if self._obeys(message.term):
                self.hosting.hand_off(message)
            case Suspect():
                self._coordinator_terms.look_at(*message.incarnations)
            case Echo():
                self.hearing.hear(source, message)
            case RegisterAck():
                super().control(source, message)
                self._membership.acknowledged(message)
            case NodeGone() if message.incarnation == self.incarnation:
                if message.term >= self.locator.term and source != self.incarnation:
                    self.end("buried")
            case NodeGone():
                super().control(source, message)
                self._relay(source, message)
            case GetShardRegionState():
                refused = {name: self.why_refused(name) for name in self.refused}
                state = self.hosting.state(message, refused)
                transport = self.ports.transport.statistics()
                state.by_layer = transport.get("peers_by_layer", 0)
                state.layer_away_seconds = transport.get("layer_away_seconds", 0)
                if self.coordinator is not None:
                    state.asked_in_vain = self.coordinator.machine.asked_in_vain(self.ports.clock.now())
                self.try_send(source, state)
            case GetNodeStats():
                self.try_send(source, read_stats(self, message.request))
            case GetNodeTrend():
                self.try_send(source, answer_trend(self.trends, message, self.ports.clock.now()))
            case WaitProbe():
                self.hosting.waits.receive(message)
            case GetEntities():
                self.try_send(source, read_entities(self, message))
            case OperatorRequest():
                self.run(answer_operator(self, source, message), "an operator's request", vital=False)
            case _:
                super().control(source, message)

    def _obeys(self, term: Term) -> bool:
        """Whether an order about shards by a coordinator of that term counts.

        None counts after one of a later term, even if nothing else has told of that coordinator: a
        server that went back in time may have lost the rows on which the earlier one rests.
        """
        if term < max(self.locator.term, self._obeyed):
            return False
        self._obeyed = term
        return True

    # -- Membership --------------------------------------------------------------------------------

    async def drain(self, *, drained: bool) -> None:
        """Hand all shards over and take no new ones, without leaving.

        `drained=False`: take shards again.
        """
        await self.store_state("leaving" if drained else "up")
        if not drained:
            self._coordinator_terms.stand_again()

    async def store_state(self, state: MemberState, deadline: float = float("inf")) -> None:
        """Take a state and write it to the row. Raises StoreUnavailable after the deadline."""
        self.state = state
        await self._membership.write(state=state, deadline=deadline)
        self._membership.register_again()

    def fail(self) -> None:
        super().fail()
        self.end("failed")

    def end(self, reason: str) -> None:
        if not self.ended.done():
            self.log("node_ended", "incarnation %s ends: %s", self.incarnation, reason)
            self.ended.set_result(reason)
            self.state = "ended"
            self._coordinator_terms.stop()
            self.hosting.drop_all()
            if self._said_up:
                self.node_ports.listener.node_down(self.incarnation, self.config.name)

    def _suspected(self, incarnation: Incarnation) -> None:
        super()._suspected(incarnation)
        self._coordinator_terms.look_at(incarnation)
        if self.coordinator is not None and not has_no_row(incarnation):
            self.coordinator.look_now()

    def _relay(self, source: Incarnation, message: NodeGone) -> None:
        """Tell the proxies that are linked to us: a new coordinator does not know them yet."""
        for peer in self.links.peers():
            if has_no_row(peer):
                self.try_send(peer, message)

    async def _tend(self) -> None:
        """Tend the threads of async handlers and read the figures for the charts, now and then."""
        while True:
            await asyncio.sleep(TEND_SECONDS)
            if name := self.node_ports.threads.lost():
                raise MemoryError(f"the thread {name} has ended, and what it was given waits for ever")
            await self.node_ports.threads.tend()
            if self.trends.is_due(self.ports.clock.now()):
                self.trends.add(read_figures(self), read_types(self))

    # -- Time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        super().tick()
        now = self.ports.clock.now()
        self._membership.tick(now)
        if self.age:
            if self.hearing.due():
                self.run(self.hearing.say(), "echo")
            if self.state == "up" and self.hearing.changed():
                self.run(self.hearing.tell(), "deaf")
        self.hosting.tick(now)

    async def say_deaf(self, deaf: bool) -> None:
        await self._membership.write(deaf=deaf)

    async def step_aside(self, why: str = "deaf") -> None:
        """End this incarnation: other nodes can work, this one cannot."""
        self.end(why)
        await self._membership.delete_row()

    def log(self, action: str, text: str, *values: object) -> None:
        logger.info(text, *values, extra={"action": action, "node": self.config.name})
