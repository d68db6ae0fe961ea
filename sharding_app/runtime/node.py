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
from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.core.lease import resume_check
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
    GracefulShutdownReq,
    HandOff,
    HostShard,
    NodeGone,
    RegionState,
    Register,
    RegisterAck,
    ShardRegionState,
    ShardStarted,
    ShardStopped,
    Suspect,
)
from sharding_app.core.oldest import SINGLETON, OldestAllocation
from sharding_app.core.records import Decision, Member, MemberState, Server
from sharding_app.core.words import START
from sharding_app.model.types import EntityType
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.ports.lifeline import Pulse
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.backlog import OVERHEAD_BYTES
from sharding_app.runtime.config import Endpoint, NodeConfig, NodePorts
from sharding_app.runtime.coordinator import CoordinatorShell
from sharding_app.runtime.host import Host
from sharding_app.runtime.journal_writer import JournalWriter
from sharding_app.runtime.lifeline_types import LifelineControl
from sharding_app.runtime.loader import Permits
from sharding_app.runtime.process import Process
from sharding_app.runtime.stats import read_entities, read_stats

logger = logging.getLogger("sharding.node")

RETRY_SECONDS = 0.1
REGISTER_SECONDS = 0.5
PASSIVATE_SWEEP_SECONDS = 5.0
_OLDEST = OldestAllocation()
REPLY_ROOM_BYTES = 1024
"""What a message holds beside a reply."""


class Node(Process):
    is_proxy = False

    def __init__(
        self, incarnation: Incarnation, config: NodeConfig, ports: NodePorts, types: list[EntityType]
    ) -> None:
        super().__init__(incarnation, config, ports, types)
        self.node_ports = ports
        self.state: MemberState | str = "new"
        self.age = 0
        self.hosts: dict[str, Host] = {}
        self.endpoints: dict[str, Endpoint] = {}
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
        self._heard = asyncio.Event()
        self._registered_with: Incarnation | None = None
        self._registered_at = float("-inf")
        self._asked_to_leave_at = float("-inf")
        self._echoes = 0
        self._echo_heard = 0
        self._heard_at = float("-inf")
        self._echoed_at = float("-inf")
        self._swept_at = 0.0
        self._says_deaf = False
        self._said_up = False
        self._leaving_regions: dict[str, None] = {}
        self._held: list[tuple[Incarnation, list[Deliver]]] = []
        "Envelopes that came while the lease was lost."
        self._held_bytes: dict[Incarnation, int] = {}
        self._recoveries = Permits(config.max_concurrent_recoveries)

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
                self._add_host(self.types[each.name], type_ids[each.name])
        self.run(self.writer.run(), "journal")
        keys = lifeline_keys(self.cluster_id, self.incarnation)
        member = Member(
            incarnation=self.incarnation, name=config.name, host=config.host, pid=config.pid, age=0, state="joining",
            roles=config.roles, app_version=config.app_version, candidate=config.candidate, types=tuple(self.hosts),
        )  # fmt: skip
        self.state = "joining"
        self.age = await store.join(member, keys)
        self.lifeline = ports.lifeline(self.cluster_id, self)
        self.lifeline.start()
        self._heard_at = self.ports.clock.now()
        self._log("node_joining", "node %s joins as %s", config.name, self.incarnation)
        await self._wait_for(self._valid)
        await self._wait_for(self._heard)
        await self._store_state("up")
        self.lifeline.set_candidate(config.candidate)
        self.run(self._recall(), "recall")
        self._log("node_up", "node %s is up, the %d. to join", config.name, self.age)
        ports.listener.node_up(self.incarnation, config.name)
        self._said_up = True

    async def stop(self, timeout: float = 30.0) -> None:
        """Leave in order: hand the shards off, hand coordination over, then go."""
        deadline = self.ports.clock.now() + timeout
        if self.state == "up" and not self.ended.done():
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
        for host in self.hosts.values():
            host.close()
        self._stop_coordinating()
        await super().close()
        await self.node_ports.journal.close()
        if self.node_ports.together is not None:
            self.node_ports.together.close()

    def may_send(self) -> bool:
        return self.state == "joining" or self.ports.clock.now() < self.lifeline.valid_until

    def waiting_bytes(self, peer: Incarnation) -> int:
        return sum(host.backlog.of(peer) for host in self.hosts.values()) + self._held_bytes.get(peer, 0)

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
        if pulse.asked in ("leave", "stop") and self.state == "up":
            self.asked_to_leave.set()

    # -- Messages --------------------------------------------------------------------------------------------------

    def envelopes(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        if self._held or not self.may_handle():
            # Not handed back: we may be their home again in a moment, and the next ones would overtake them.
            self._held.append((source, envelopes))
            size = sum(len(each.args) + OVERHEAD_BYTES for each in envelopes)
            self._held_bytes[source] = self._held_bytes.get(source, 0) + size
            return
        self._to_endpoints(source, envelopes)

    def _to_endpoints(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        if len(self.endpoints) == 1 or all(each.type == envelopes[0].type for each in envelopes):
            groups = {envelopes[0].type: envelopes}
        else:
            groups = {}
            for each in envelopes:
                groups.setdefault(each.type, []).append(each)
        for type_name, group in groups.items():
            endpoint = self.endpoints.get(type_name)
            if endpoint is None:
                super().envelopes(source, group)
            else:
                endpoint(source, group)

    def control(self, source: Incarnation, message: AnyMessage) -> None:  # noqa: C901  (one case for each message)
        if self.coordinator is not None and self.coordinator.receive(source, message):
            if isinstance(message, Suspect):
                self._look_at(message.incarnation)
            return
        match message:
            case HostShard() if message.term >= self.homes.term:
                self.run(self._host(source, message), "host shards")
            case BeginHandOff() if message.term >= self.homes.term:
                super().control(source, message)
                self.try_send(source, BeginHandOffAck(message.term, message.type, message.shards))
            case HandOff() if message.term >= self.homes.term:
                self._hand_off(source, message)
            case Suspect():
                self._look_at(message.incarnation)
            case Echo() if source == self.incarnation and self._echo_heard < message.number <= self._echoes:
                self._echo_heard = message.number
                self._heard_at = self.ports.clock.now()
                self._heard.set()
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
                self.try_send(source, self._region_state(message))
            case GetNodeStats() if hasattr(self, "lifeline"):
                self.try_send(source, read_stats(self, message.request))
            case GetEntities():
                self.try_send(source, read_entities(self, message))
            case _:
                super().control(source, message)

    # -- Shards ----------------------------------------------------------------------------------------------------

    async def _host(self, source: Incarnation, message: HostShard) -> None:
        """Start what the rows, not the message, say is ours; then say so."""
        host = self.hosts.get(message.type)
        if host is None:
            return
        told = dict(zip(message.shards, message.epochs, strict=True))
        unknown = [shard for shard, epoch in told.items() if not self._hosts(host, shard, epoch)]
        if unknown:
            try:
                rows = await self.ports.store.homes(message.type, unknown)
            except StoreUnavailable:
                return
            for row in rows:
                if row.home == self.incarnation and row.step == "home" and row.epoch == told[row.shard]:
                    host.start_shard(row.shard, row.epoch)
        started = [shard for shard, epoch in told.items() if self._hosts(host, shard, epoch)]
        if started:
            self.try_send(source, ShardStarted(message.type, started, [told[each] for each in started]))

    def _region_state(self, question: GetShardRegionState) -> ShardRegionState:
        regions = []
        for name, host in self.hosts.items():
            if not question.types or name in question.types:
                shards = list(host.shards.values())
                regions.append(
                    RegionState(
                        name,
                        [each.number for each in shards],
                        [each.epoch for each in shards],
                        [len(each.slots) for each in shards],
                    )
                )
        refused = {name: self.why_refused(name) for name in self.refused}
        return ShardRegionState(question.request, regions, refused)

    @staticmethod
    def _hosts(host: Host, number: ShardId, epoch: Epoch) -> bool:
        shard = host.shards.get(number)
        return shard is not None and shard.epoch == epoch and not shard.stopping

    def _hand_off(self, source: Incarnation, message: HandOff) -> None:
        host = self.hosts.get(message.type)
        if host is not None:
            for shard, epoch in zip(message.shards, message.epochs, strict=True):
                host.stop_shard(shard, epoch)

    def _shard_stopped(self, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        if self.homes.coordinator is not None:
            self.try_send(self.homes.coordinator, ShardStopped(type_name, [shard], [epoch]))

    def _shard_fenced(self, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        self._log("shard_fenced", "shard %s/%d has moved on from epoch %d", type_name, shard, epoch)

    def _start_entity(self, type_name: str, entity: str) -> None:
        self.asker.ask(type_name, entity, START, b"", tell=True)

    async def _recall(self) -> None:
        """Have singletons and the shards of remembered entities placed, wherever, without waiting for a message."""
        for name, host in self.hosts.items():
            if host.remembering is not None:
                shards = await self._remembered_shards(host.execution.type_id)
                if shards:
                    self.asker.find(name, shards)
            elif host.type.singleton_id is not None:
                self.asker.find(name, [0])

    async def _remembered_shards(self, type_id: int) -> list[ShardId]:
        while True:
            try:
                return await self.node_ports.journal.remembered_shards(type_id)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    def leave_region(self, type_name: str) -> None:
        """GracefulShutdown of one region: its shards move away, and none is given to it any more."""
        self._leaving_regions[type_name] = None
        self._ask_to_leave_regions()

    def _ask_to_leave_regions(self) -> None:
        wanted = list(self._leaving_regions)
        if wanted and self.homes.coordinator is not None:
            self.try_send(self.homes.coordinator, GracefulShutdownReq(self.incarnation, wanted))

    def _add_host(self, entity_type: EntityType, type_id: int) -> None:
        settings, ports = entity_type.settings, self.node_ports
        passivate = settings.passivate_after_seconds
        host = self.hosts[entity_type.name] = Host(
            entity_type, type_id, self.incarnation, send=self.send, writer=self.writer, journal=ports.journal,
            store=ports.store, clock=ports.clock, watch=ports.watch, mailbox_limit=self.config.mailbox_size,
            passivate_after_seconds=self.config.passivate_after_seconds if passivate is None else passivate,
            stop_timeout_seconds=self.config.stop_timeout_seconds,
            hand_off_timeout_seconds=self.config.coordinator.hand_off_timeout_seconds,
            restart_backoff_seconds=self.config.restart_backoff_seconds,
            recovery_rate=self.config.recovery_rate,
            shard_of=lambda entity: self.asker.shard_of(entity_type.name, entity),
            start_entity=self._start_entity,
            command_window_seconds=self.config.command_window_seconds,
            max_reply_bytes=min(self.config.max_reply_bytes, self.config.links.max_message_bytes - REPLY_ROOM_BYTES),
            max_state_bytes=self.config.max_state_bytes,
            recoveries=self._recoveries, may_handle=self.may_handle, together=ports.together,
            listener=ports.listener, on_stopped=self._shard_stopped, on_fenced=self._shard_fenced,
        )  # fmt: skip
        channel = self.channel_of(self.incarnation)
        make = ports.endpoint
        self.endpoints[entity_type.name] = host.receive if make is None else make(host, channel)
        self.run(host.run(), f"recovery of {entity_type.name}")

    # -- Membership ------------------------------------------------------------------------------------------------

    async def _settle(self, server: Server) -> None:
        """Write on which server the locks are held: from now on the loss of both means death."""
        await self._update(server=server)

    async def _compare(self, generation: int) -> None:
        """The lifeline is back: keep the shards whose rows still say that they are ours, drop the others."""
        while not self.ended.done():
            # What is started while the rows are read is not in them.
            held = {
                name: {(name, each.number): each.epoch for each in host.shards.values()}
                for name, host in self.hosts.items()
            }
            try:
                _, members = await self.ports.store.members()
                rows = await self.ports.store.homes_of(self.incarnation)
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if all(each.incarnation != self.incarnation for each in members):
                self._end("buried")
                return
            for name, host in self.hosts.items():
                _, drop = resume_check(rows, held[name], self.incarnation)
                for _, number in drop:
                    host.drop_shard(number)
            if await self.lifeline.resume(generation):
                self._log("node_resumed", "node %s goes on", self.config.name)
                self.links.resume()
                self.writer.resume()
                for host in self.hosts.values():
                    host.resume()
                waiting, self._held = self._held, []
                self._held_bytes.clear()
                for source, envelopes in waiting:
                    self._to_endpoints(source, envelopes)
            return

    async def _leave(self, deadline: float) -> None:
        self._log("node_leaving", "node %s leaves", self.config.name)
        await self._store_state("leaving")
        self.lifeline.set_candidate(False)
        await self.lifeline.resign()
        _, members = await self.ports.store.members()
        others = [
            each
            for each in members
            if each.incarnation != self.incarnation and each.state == "up" and each.locks
        ]
        for each in others:
            self.try_send(each.incarnation, Suspect(self.incarnation))
        while others and not self.all_stops and self.ports.clock.now() < deadline and not self.ended.done():
            if not any(host.shards for host in self.hosts.values()):
                break
            if self.homes.coordinator not in (None, self.incarnation):
                self.try_send(str(self.homes.coordinator), Register(self.incarnation))
            await asyncio.sleep(0.02)
        for host in self.hosts.values():
            for shard in list(host.shards.values()):
                host.stop_shard(shard.number, shard.epoch)
        while self.ports.clock.now() < deadline and any(host.shards for host in self.hosts.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await self.links.drain(min(1.0, max(0.0, deadline - self.ports.clock.now())))
        await self.ports.store.leave(self.incarnation)

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
            for host in self.hosts.values():
                for number in list(host.shards):
                    host.drop_shard(number)
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

    # -- Time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        super().tick()
        now = self.ports.clock.now()
        coordinator = self.homes.coordinator
        registered = self._registered_with == coordinator or self.state not in ("up", "leaving")
        if coordinator is not None and not registered and now - self._registered_at >= REGISTER_SECONDS:
            self._registered_at = now
            self.try_send(coordinator, Register(self.incarnation))
        if self._leaving_regions and now - self._asked_to_leave_at >= REGISTER_SECONDS:
            self._asked_to_leave_at = now
            self._ask_to_leave_regions()
        if now - self._echoed_at >= self.config.echo_interval_seconds or not self._heard.is_set():
            self._echoed_at = now
            self._echoes += 1
            self.run(self._echo(self._echoes), "echo")
        deaf = now - self._heard_at > self.config.deaf_after_seconds
        if deaf != self._says_deaf and self.state == "up":
            self._says_deaf = deaf
            self.run(self._tell_deaf(deaf), "deaf")
        if now - self._swept_at >= PASSIVATE_SWEEP_SECONDS:
            self._swept_at = now
            for host in self.hosts.values():
                host.passivate_idle()

    async def _echo(self, number: int) -> None:
        try:
            await self.links.echo(number)
        except TransportError as error:
            logger.debug("no echo: %s", error, extra={"action": "echo_failed"})

    async def _tell_deaf(self, deaf: bool) -> None:
        """Say so in the row; if others hear, give coordinator and shards up through Postgres (promise 13)."""
        self._log(
            "node_deaf" if deaf else "node_hears", "node %s hears itself: %s", self.config.name, not deaf
        )
        await self._update(deaf=deaf)
        interval = self.config.echo_interval_seconds
        others_hear_since: float | None = None
        while deaf and self._says_deaf and not self.ended.done():
            try:
                _, members = await self.ports.store.members()
            except StoreUnavailable:
                members = []
            others = [each for each in members if each.incarnation != self.incarnation and each.state == "up"]
            now = self.ports.clock.now()
            if not any(each.locks and not each.deaf for each in others):
                others_hear_since = None
            elif others_hear_since is None:
                # After an outage of the layer somebody is the first to hear again: the others' turn is to come.
                others_hear_since = now
            elif now - others_hear_since >= 2 * interval:
                self._end("deaf")
                with contextlib.suppress(StoreUnavailable):  # else the coordinator finds us dead
                    await self.ports.store.leave(self.incarnation)
                return
            await asyncio.sleep(interval)

    def _log(self, action: str, text: str, *values: object) -> None:
        logger.info(text, *values, extra={"action": action, "node": self.config.name})
