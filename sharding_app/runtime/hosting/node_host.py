"""A node's hosts, one for each type that it may host, with the shards that rows have given to them.

Contract: a shard is started because of its row, never because of a message alone. Envelopes that
come while the lease is lost are kept, in their order, and count against their sender's credit.
After a suspension only shards whose rows are unchanged go on.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import projections
from sharding_app.entities.staging import args_limit
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import Endpoint
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.builtin_commands import START
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey
from sharding_app.protocol.liveness.node_lease import resume_check
from sharding_app.protocol.messages import (
    AnyMessage,
    Deliver,
    GetShardRegionState,
    GracefulShutdownReq,
    HandBack,
    HandOff,
    HostShard,
    RegionState,
    Renumbered,
    ShardRegionState,
    ShardStarted,
    ShardStopped,
)
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.pending_call import Reply
from sharding_app.protocol.records import ShardRow
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.asking.shard_locator import ShardLocator
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from sharding_app.runtime.base.interfaces import NO_CALLER
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.runtime.delivery.deliverer import Deliverer
from sharding_app.runtime.hosting.following import Following
from sharding_app.runtime.hosting.journal_part import JournalPart
from sharding_app.runtime.hosting.marks import Marks
from sharding_app.runtime.hosting.parked import OVERHEAD_BYTES
from sharding_app.runtime.hosting.region import Region
from sharding_app.runtime.hosting.shard_leases import LeaseKeeper, ShardGate
from sharding_app.runtime.hosting.type_host import REPLY_ROOM_BYTES, TypeHost
from sharding_app.runtime.hosting.waits import Waits
from sharding_app.runtime.journal.loader import Permits
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.runtime.projections.waking import Waking
from sharding_app.runtime.projections.worker import workers_of

logger = logging.getLogger("sharding.node")

RETRY_SECONDS = 0.1
GIVEN_UP_SECONDS = 0.5


class Process(Protocol):
    """The node, as its hosts see it."""

    incarnation: Incarnation
    cluster_id: str
    config: NodeConfig
    types: dict[str, EntityType]
    region_client: RegionClient
    locator: ShardLocator
    writer: JournalWriter

    def send(self, target: Incarnation, message: AnyMessage) -> None: ...

    def try_send(self, target: Incarnation, message: AnyMessage) -> bool: ...

    def may_send(self) -> bool: ...

    def may_handle(self) -> bool: ...

    def ask(self, call: Call, waited: float = 0.0) -> "asyncio.Future[bytes]": ...

    def ask_for(self, call: Call, reply: Reply) -> None: ...

    def run(
        self, job: Coroutine[Any, Any, None], name: str, *, vital: bool = True
    ) -> "asyncio.Task[None]": ...

    def fail(self) -> None: ...


class NumbersOf:
    """`runtime.hosting.type_host.Numbers` of one type."""

    def __init__(self, node: Process, type_name: str) -> None:
        self._node = node
        self._type = type_name

    def told(self) -> Renumbered | None:
        found = self._node.region_client.numbering(self._type)
        if found is None or not found.revision:
            return None
        return Renumbered(self._node.locator.term, self._type, found)

    def learn(self, rows: Iterable[ShardRow]) -> None:
        for row in rows:
            if row.numbering is not None:
                self._node.region_client.renumbered(self._type, row.numbering, self._node.locator.term)


class NodeHost:
    def __init__(self, node: Process, ports: NodePorts, channel: Callable[[], str]) -> None:
        self.hosts: dict[str, TypeHost] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self._node = node
        self._ports = ports
        self._channel = channel
        self._leaving: dict[str, None] = {}
        self._held: list[tuple[Incarnation, list[Deliver]]] = []
        "Envelopes that came while the lease was lost."
        self._held_bytes: dict[Incarnation, int] = {}
        self._still_share = node.config.links.window_bytes // 2
        "The most of a process's credit that calls to journals that stand still take."
        self._one_stopped = asyncio.Event()
        self._resumed = 0
        "Grows when the node's lease is lost, and when it has come back."
        self.keepers: dict[str, LeaseKeeper] = {}
        "Keepers of the leases that types need, by the source of the leases."
        self._given_up: dict[ShardKey, Epoch] = {}
        """Shards that stop or have stopped although their rows name us, until a coordinator has
        decided.
        """
        self._telling: dict[str, dict[ShardId, Epoch]] = {}
        "Those of them that have stopped, by type. The coordinator is told again and again."
        self._cluster_journal = JournalPart(
            "", ports.journal, node.writer, *self._machinery("", ports.journal, node.writer)
        )
        self.parts = [self._cluster_journal]
        for name, journal in ports.journals.items():
            writer = JournalWriter(journal, node.may_send)
            part = JournalPart(name, journal, writer, *self._machinery(name, journal, writer))
            part.clusters = self._cluster_journal
            self.parts.append(part)
        if ports.journals:
            for part in self.parts:
                part.others = self._journal_named
                part.has_room = self._has_room
                part.marks = Marks(
                    part.journal, part.hosts, self._journal_named, self._journals_named, node.may_handle
                )
                node.run(part.marks.run(), "marks", vital=False)
        self.waits = Waits(
            node.incarnation, self.host_at, self.all_hosts, node.region_client, node.try_send, node.may_handle
        )
        # The cluster of a test has no workers.
        run = [each for each in projections.all().values() if workers_of(each) in node.types]
        self.wakings = [Waking(run, node.ask, part.writer.on_commit) for part in self.parts]

    def _machinery(
        self, name: str, journal: Journal, writer: JournalWriter
    ) -> tuple[Permits, Deliverer, Following, Rounds]:
        """Make what a part of the node has for itself, beside its journal and its writer."""
        node, now = self._node, self._ports.clock.now
        config, parts = node.config, 1 + len(self._ports.journals)  # they share what bounds the memory
        deliveries = dataclasses.replace(
            config.deliveries,
            max_rows=max(1, config.deliveries.max_rows // parts),
            max_bytes=max(1, config.deliveries.max_bytes // parts),
            most_under_way=max(1, config.deliveries.most_under_way // parts),
        )
        secured = Rounds(journal.secure)
        following = Following(
            journal, secured, limit=max(1, config.followers // parts),
            max_bytes=node.config.links.max_message_bytes - REPLY_ROOM_BYTES, now=now,
            run=lambda job: node.run(job, "followers", vital=False), on_commit=writer.on_commit,
        )  # fmt: skip
        deliverer = Deliverer(
            node.incarnation, deliveries, journal,
            now=now, ask=node.ask_for, may_handle=node.may_handle,
            run=lambda job: node.run(job, "deliveries", vital=False),
            host_of=self._type_at, fenced=self._fenced_at, place=self._place, journal_name=name,
            among_others=bool(self._ports.journals), max_args=args_limit(config.links.max_message_bytes),
        )  # fmt: skip
        recoveries = Permits(max(1, config.max_concurrent_recoveries // parts))
        return recoveries, deliverer, following, secured

    def add(self, entity_type: EntityType, type_id: int) -> list[TypeHost]:
        """Host a type, with each journal. The caller runs the hosts."""
        ports, node, name = self._ports, self._node, entity_type.name
        region = Region()
        for part in self.parts:
            host = part.hosts[name] = TypeHost(
                entity_type, type_id, node.incarnation, node.config, ports, part=part, region=region, send=node.send,
                may_handle=node.may_handle, shard_of=lambda entity: node.region_client.shard_of(name, entity),
                numbers=NumbersOf(node, name), start_entity=self._start_entity, on_stopped=self._stopped,
                on_fenced=self._fenced, on_failed=node.fail,
            )  # fmt: skip
            region.hosts.append(host)
            if part.marks is not None and host.execution.foreign is not None:
                part.marks.follow(type_id, host.execution.foreign)
            if entity_type.settings.use_lease:
                host.gate = self._gate(host, entity_type.settings.use_lease)
        self.hosts[name] = region.hosts[0]
        for waking in self.wakings:
            waking.host(entity_type, type_id)
        make = ports.endpoint
        sink = region if len(region.hosts) > 1 else region.hosts[0]
        self.endpoints[name] = sink.receive if make is None else make(sink, self._channel())
        return region.hosts

    def _journal_named(self, name: str) -> Journal:
        """Return a journal of the cluster, for messages that lie there. Raises
        JournalUnavailable.
        """
        part = next((part for part in self.parts if part.name == name), None)
        if part is None:
            raise JournalUnavailable(f"SHARDING['JOURNALS'] of this node does not name it: {name!r}")
        if part.trouble:
            raise JournalUnavailable(part.trouble)
        return part.journal

    async def _journals_named(self) -> set[str]:
        """Return the names of all journals of the cluster: those of this node, and those in which
        shards lie. Raises StoreUnavailable.
        """
        return {part.name for part in self.parts} | await self._ports.store.journals_used()

    def all_hosts(self) -> Iterator[TypeHost]:
        for part in self.parts:
            yield from part.hosts.values()

    def hosts_of(self, type_name: str) -> list[TypeHost]:
        """Return the hosts of a type, one for each journal."""
        return [part.hosts[type_name] for part in self.parts if type_name in part.hosts]

    def host_at(self, type_name: str, shard: ShardId) -> TypeHost | None:
        """Return the host that has a shard, or waits for its lease. Else the first one: it hands
        back what comes for the shard.
        """
        hosts = self.hosts_of(type_name)
        return next((host for host in hosts if _has(host, shard)), hosts[0] if hosts else None)

    def _gate(self, host: TypeHost, path: str) -> ShardGate:
        node, name = self._node, host.type.name
        keeper = self.keepers.get(path)
        if keeper is None:
            keeper = self.keepers[path] = LeaseKeeper(
                self._ports.leases(path), node.config.shard_leases, self._ports.clock.now,
                f"{node.cluster_id}-check",
            )  # fmt: skip

        def lease_name(number: ShardId) -> str:
            if host.type.singleton_id is not None:
                return f"{node.cluster_id}-singleton-{name.removeprefix(SINGLETON)}"
            return f"{node.cluster_id}-shard-{name}-{number}"

        def granted(number: ShardId, epoch: Epoch) -> None:
            host.spawn(self._start_granted(host, number, epoch))

        def lost(number: ShardId, epoch: Epoch) -> None:
            self._given_up[name, number] = epoch
            host.shard_life.give_up(number, epoch)

        return ShardGate(keeper, lease_name, granted, lost)

    # -- Envelopes ---------------------------------------------------------------------------------

    def receive(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        if self._held or not self._node.may_handle():
            # Do not hand back: we may be their home again in a moment, and the next ones would
            # overtake them.
            self._held.append((source, envelopes))
            size = sum(len(each.args) + OVERHEAD_BYTES for each in envelopes)
            self._held_bytes[source] = self._held_bytes.get(source, 0) + size
            return
        self._pass_on(source, envelopes)

    def waiting_bytes(self, peer: Incarnation) -> int:
        """Return the bytes of a process's envelopes that count against its credit."""
        waiting = sum(part.backlog.of(peer) for part in self.parts)
        beyond = max(0, self._still_bytes(peer) - self._still_share)
        return waiting - beyond + self._held_bytes.get(peer, 0)

    def _still_bytes(self, peer: Incarnation) -> int:
        """Return the bytes of those that wait for a journal that stands still."""
        return sum(part.backlog.of(peer) for part in self.parts if part.stands_still())

    def _has_room(self, peer: Incarnation) -> bool:
        """Tell whether one more envelope of a process may wait for a journal that stands still."""
        return peer in (self._node.incarnation, NO_CALLER) or self._still_bytes(peer) < self._still_share

    def _pass_on(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        if len(self.endpoints) == 1 or len({each.type for each in envelopes}) == 1:
            groups = {envelopes[0].type: envelopes}
        else:
            groups = {}
            for each in envelopes:
                groups.setdefault(each.type, []).append(each)
        for type_name, group in groups.items():
            endpoint = self.endpoints.get(type_name)
            if endpoint is not None:
                endpoint(source, group)
                continue
            for each in group:
                self._node.send(source, HandBack(each.type, each.shard, each.epoch, [each.request]))

    # -- Shards ------------------------------------------------------------------------------------

    async def start(self, source: Incarnation, message: HostShard) -> None:
        """Start the shards that the rows, not the message, give to us; then say so.

        The history of a shard's entities is visible but may not be acknowledged: a former home's
        commit may still wait for a standby. That commit is older than the row that makes us its
        home. So the journal is secured once before anything of it is used.
        """
        host = self.hosts.get(message.type)
        if host is None:
            return
        told = dict(zip(message.shards, message.epochs, strict=True))
        unknown = [shard for shard, epoch in told.items() if not self._is_here(message.type, shard, epoch)]
        if unknown:
            resumed = self._resumed
            try:
                rows = await self._ports.store.homes(message.type, unknown)
                NumbersOf(self._node, message.type).learn(rows)
                ours = [row for row in rows if self._names_us(row) and row.epoch == told[row.shard]]
                self._start_elsewhere(source, message, ours, resumed)
                ours = [row for row in ours if not row.journal]
                if ours:
                    await self._cluster_journal.secured.next()
            except (StoreUnavailable, JournalUnavailable):
                return
            if resumed != self._resumed or not self._node.may_handle():
                return  # the lease was lost since, so the rows are outdated; the coordinator asks again
            self._leave(message.type, {shard: told[shard] for shard in unknown}, rows)
            there = {row.shard for row in rows}
            for shard in unknown:
                if shard not in there:
                    self._say_stopped(message.type, {shard: told[shard]}, given_up=True)
            self._start(host, {row: row.uses_messages for row in ours})
        self._say_started(source, message, told)

    def _start_elsewhere(
        self, source: Incarnation, message: HostShard, rows: Sequence[ShardRow], resumed: int
    ) -> None:
        """Start those of our shards that lie in further journals. None waits for another one."""
        for part in self.parts[1:]:
            if there := [row for row in rows if row.journal == part.name]:
                self._node.run(
                    self._start_in(part, source, message, there, resumed), "host shards", vital=False
                )
        known = {part.name for part in self.parts}
        for row in rows:
            if row.journal not in known:
                logger.error(
                    "shard %s/%d lies in the journal %r, which SHARDING['JOURNALS'] of this node does not name", row.type,
                    row.shard, row.journal, extra={"action": "journal_unknown", "journal": row.journal},
                )  # fmt: skip

    async def _start_in(
        self,
        part: JournalPart,
        source: Incarnation,
        message: HostShard,
        rows: Sequence[ShardRow],
        resumed: int,
    ) -> None:
        host, told = part.hosts[message.type], {row.shard: row.epoch for row in rows}
        numbers = rows[0].numbering  # all of a read have the same
        try:
            taken, uses_messages = await part.take(
                message.type, host.type_id, self._node.incarnation, told, numbers
            )
        except JournalUnavailable:
            return  # the coordinator asks again
        if resumed == self._resumed and self._node.may_handle():
            self._start(
                host, {row: bool(uses_messages) or row.uses_messages for row in rows if row.shard in taken}
            )
            # The journal has seen a later epoch, or later numbers of shards: the cluster's server
            # has gone back since, or the row that was read is outdated. The coordinator decides a
            # later one unless there is. It may have asked again, so this one never begins here.
            # A shard that has left the journal begins at no epoch, until an operator puts its row
            # right. The coordinator asks again: then the row is read again.
            refused = {
                shard: epoch
                for shard, epoch in told.items()
                if shard not in taken and not self._is_here(message.type, shard, epoch)
                and not part.has_left(message.type, shard, epoch)
            }  # fmt: skip
            if refused:
                for shard, epoch in refused.items():
                    host.shard_life.never_again(shard, epoch)
                self._say_stopped(message.type, refused, given_up=True)
            self._say_started(source, message, told)

    def _start(self, host: TypeHost, rows: Mapping[ShardRow, bool]) -> None:
        """Start shards that are ours. The values say whether there may be messages and timers."""
        for row, uses_messages in rows.items():
            if host.shard_life.was_stopped(row.shard, row.epoch):
                # A server that went back in time may name a shard that has gone on from here.
                # It needs a new epoch.
                self._say_stopped(host.type.name, {row.shard: row.epoch}, given_up=True)
            elif host.shard_life.admits(row.shard, row.epoch):
                host.shard_life.start(row.shard, row.epoch, uses_messages=uses_messages)

    def _say_started(self, source: Incarnation, message: HostShard, told: Mapping[ShardId, Epoch]) -> None:
        started = [shard for shard, epoch in told.items() if self._is_here(message.type, shard, epoch)]
        if started:
            epochs = [told[each] for each in started]
            self._node.try_send(source, ShardStarted(message.term, message.type, started, epochs))

    def _is_here(self, type_name: str, shard: ShardId, epoch: Epoch) -> bool:
        return any(_is_home(host, shard, epoch) for host in self.hosts_of(type_name))

    def _leave(self, type_name: str, told: Mapping[ShardId, Epoch], rows: Sequence[ShardRow]) -> None:
        """Give back the leases of shards that these rows, read since, do not give to us."""
        ours = {(row.shard, row.epoch) for row in rows if row.home == self._node.incarnation}
        for shard, epoch in told.items():
            if (shard, epoch) not in ours:
                for host in self.hosts_of(type_name):
                    host.shard_life.left(shard, epoch)

    async def _start_granted(self, host: TypeHost, number: ShardId, epoch: Epoch) -> None:
        """Start a shard whose lease is granted, or give the lease back.

        A coordinator tells only the home that the row names. If that is another node now, it waits
        for this lease, and no message comes here. So the rows are read until they say which it is.
        """
        node, gate = self._node, host.gate
        while gate is not None and gate.has_lease(number, epoch):
            await host.lease()
            message = HostShard(node.locator.term, host.type.name, [number], [epoch])
            await self.start(node.locator.coordinator or node.incarnation, message)
            if _is_home(host, number, epoch):
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _names_us(self, row: ShardRow) -> bool:
        return row.home == self._node.incarnation and row.step == "home"

    def hand_off(self, message: HandOff) -> None:
        for shard, epoch in zip(message.shards, message.epochs, strict=True):
            host = self.host_at(message.type, shard)
            if host is not None:
                host.shard_life.stop(shard, epoch)

    def stop_all(self) -> None:
        """Stop all shards, and start none any more: a row may have been read already."""
        for host in self.all_hosts():
            host.leaves = True
            for number, epoch in _at_home(host).items():
                host.shard_life.stop(number, epoch)

    async def emptied(self, seconds: float) -> None:
        """Wait until no shard is here, for `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                while not self.empty:
                    self._one_stopped.clear()
                    await self._one_stopped.wait()

    async def released(self, seconds: float) -> None:
        """Wait until the leases of stopped shards are given back, for `seconds` at most."""
        await asyncio.gather(*(keeper.released(seconds) for keeper in self.keepers.values()))

    @property
    def leases_answer(self) -> bool:
        """Whether every source of leases has answered once."""
        return all(keeper.reachable for keeper in self.keepers.values())

    def drop_all(self) -> None:
        for host in self.all_hosts():
            for number in list(host.shards):
                host.shard_life.drop(number)
        self._one_stopped.set()  # `emptied` waits for these too

    @property
    def empty(self) -> bool:
        return not any(host.shards for host in self.all_hosts())

    def types_here(self) -> set[str]:
        """Return the types that have shards here."""
        return {host.type.name for host in self.all_hosts() if host.shards}

    def epochs(self) -> dict[str, dict[ShardKey, Epoch]]:
        """Return all shards that are here now, or wait for their leases, by type."""
        return {
            name: {
                (name, number): epoch
                for host in self.hosts_of(name)
                for number, epoch in _at_home(host).items()
            }
            for name in self.hosts
        }

    def keep(self, rows: Sequence[ShardRow], held: Mapping[str, Mapping[ShardKey, Epoch]]) -> None:
        """Drop those of the held shards that rows, read later, do not give to us any more."""
        for name, mine in held.items():
            _, drop = resume_check(rows, mine, self._node.incarnation)
            for key in drop:
                _, number = key
                for host in self.hosts_of(name):
                    host.shard_life.drop(number)
                    host.shard_life.left(number, mine[key])
        self._one_stopped.set()

    def give_up_stored(self) -> None:
        """Give up the shards whose objects come from the journal, and those of workers.

        The journal may lack the last reads and writes, and the rows the number of workers that
        these were told. Each shard gets a new epoch, here or elsewhere, and reads its objects
        again. At its present epoch order would be lost: calls under way would overtake those whose
        commit is in doubt. Objects of in-memory types stay. Their messages are read again: one that
        had taken effect may be there again, and goes before those that are sent later. If they are
        remembered, their rows are stored again, and so are the timers of a singleton's `@every`.
        """
        self.give_up(self._cluster_journal)

    def give_up(self, part: JournalPart) -> None:
        """Give up the shards of a part: its journal may lack their last events.

        Shards of other journals may have messages from outside there, and read them again.
        """
        for host in self.all_hosts():
            if host.journal_name != part.name:
                part.deliverer.look_again(host.type_id)
        for name, host in part.hosts.items():
            if host.type.kind == "memory" and host.workers is None:
                part.deliverer.look_again(host.execution.type_id)
                host.shard_life.remember_again()
                host.entity_life.keep_timers_again()
                continue
            self._given_up.update({(name, each.number): each.epoch for each in host.shards.values()})
            if host.workers is None:
                host.shard_life.outdate_all()
            else:
                host.shard_life.close_all()

    async def take_again(self, part: JournalPart) -> None:
        """Take the shards whose objects stay, before anything is stored in the new lineage.

        A further journal may have lost that they are ours, and would refuse what they store. It may
        still do so with those that it does not give us. Raises StoreUnavailable and
        JournalUnavailable.
        """
        me = self._node.incarnation
        for name, host in part.hosts.items():
            if host.type.kind != "memory" or host.workers is not None or not host.shards:
                continue
            rows = await self._ports.store.homes(name, sorted(host.shards))
            ours = {
                row.shard: row.epoch
                for row in rows
                if (row.home, row.journal) == (me, part.name) and _is_home(host, row.shard, row.epoch)
            }
            if ours:
                numbers = next((row.numbering for row in rows if row.shard in ours), None) or Numbering(1)
                await part.journal.take(name, host.type_id, numbers, ours, me, first=True)

    def suspend(self) -> None:
        """End all that runs without a message: the lease is lost. Rows read before are outdated.

        `resume` would say so too late: the lifeline's thread makes the lease valid before that.
        """
        self._resumed += 1
        for host in self.all_hosts():
            host.resumes += 1
            if host.workers is not None:
                host.workers.suspend()

    def resume(self) -> None:
        """Go on after the lease has come back, with the kept envelopes first."""
        self._resumed += 1
        for part in self.parts:
            part.writer.resume()
        for host in self.all_hosts():
            host.resumes += 1
            host.suspended.resume()
        waiting, self._held = self._held, []
        self._held_bytes.clear()
        for source, envelopes in waiting:
            # The lease may have lapsed again since the lifeline, on its own thread, resumed it.
            self.receive(source, envelopes)
        for part in self.parts:
            part.deliverer.resume()

    def tick(self, now: float) -> None:
        for part in self.parts:
            part.deliverer.tick(now)
        self.waits.tick(now)
        for host in self.all_hosts():
            host.entity_life.tick(now)
            host.early.tick(now)

    def close(self) -> None:
        for host in self.all_hosts():
            host.close()

    # -- Entities that run without a message -------------------------------------------------------

    async def recall(self) -> None:
        """Have singletons and the shards of remembered entities placed, without a message."""
        for part in self.parts[1:]:
            self._node.run(self._recall(part), f"recall from {part.name}")
        await self._recall(self._cluster_journal)

    async def _recall(self, part: JournalPart) -> None:
        for name, host in part.hosts.items():
            if host.remembering is not None:
                shards = await self._remembered_shards(part, host.execution.type_id)
                if shards:
                    self._node.region_client.find(name, shards)
            elif host.type.singleton_id is not None:
                self._node.region_client.find(name, [0])

    async def _remembered_shards(self, part: JournalPart, type_id: int) -> list[ShardId]:
        while True:
            if not part.trouble:
                with contextlib.suppress(JournalUnavailable):
                    return await part.journal.remembered_shards(type_id)
            await asyncio.sleep(RETRY_SECONDS)

    def _start_entity(self, type_name: str, entity: str) -> Awaitable[object]:
        return self._node.region_client.ask(Call(type_name, entity, START, b""))

    # -- Regions -----------------------------------------------------------------------------------

    def leave_region(self, type_name: str) -> None:
        """GracefulShutdown of one region: its shards move away, and it gets no new ones."""
        self._leaving[type_name] = None
        self.ask_to_leave()

    def ask_to_leave(self) -> bool:
        """Tell the coordinator again which regions leave. False: none does."""
        wanted = list(self._leaving)
        coordinator = self._node.locator.coordinator
        if wanted and coordinator is not None:
            self._node.try_send(coordinator, GracefulShutdownReq(self._node.incarnation, wanted))
        return bool(wanted)

    def state(self, question: GetShardRegionState, refused: dict[str, str]) -> ShardRegionState:
        regions = []
        for name, first in self.hosts.items():
            if not question.types or name in question.types:
                hosts = self.hosts_of(name)
                shards = [each for host in hosts for each in host.shards.values()]
                numbers, epochs = [each.number for each in shards], [each.epoch for each in shards]
                entities = [len(each.slots) for each in shards]
                life = first.entity_life
                reports = (
                    [each.entity_life.failed_starts.report() for each in hosts] if life.runs_again else []
                )
                failed = sum(count for count, _ in reports), [each for _, some in reports for each in some]
                limit = 0 if life.runs_again else life.limit  # no limit applies to those
                regions.append(RegionState(name, numbers, epochs, entities, *failed, limit))
        return ShardRegionState(question.request, regions, refused)

    # -- Inside ------------------------------------------------------------------------------------

    def _stopped(self, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        self._one_stopped.set()
        if self._given_up.get((type_name, shard)) != epoch:
            self._say_stopped(type_name, {shard: epoch}, given_up=False)
            return
        telling = self._telling.setdefault(type_name, {})
        if not telling:
            self.hosts[type_name].spawn(self._say_given_up(type_name, telling))
        telling[shard] = epoch

    def _say_stopped(self, type_name: str, shards: Mapping[ShardId, Epoch], *, given_up: bool) -> None:
        coordinator = self._node.locator.coordinator
        if coordinator is not None:
            message = ShardStopped(type_name, list(shards), list(shards.values()), given_up)
            self._node.try_send(coordinator, message)

    async def _say_given_up(self, type_name: str, telling: dict[ShardId, Epoch]) -> None:
        """Repeat this until a coordinator has heard it: no other process will ask."""
        while telling:
            self._say_stopped(type_name, telling, given_up=True)
            await asyncio.sleep(GIVEN_UP_SECONDS)
            asked = dict(telling)
            with contextlib.suppress(StoreUnavailable):
                rows = await self._ports.store.homes(type_name, list(asked))
                ours = {row.shard: row.epoch for row in rows if row.home == self._node.incarnation}
                for shard, epoch in asked.items():
                    if ours.get(shard) != epoch and telling.get(shard) == epoch:
                        del telling[shard]
                        # If it has come and been given up again since, that is still to be told.
                        if self._given_up.get((type_name, shard)) == epoch:
                            del self._given_up[type_name, shard]

    def _type_at(self, type_id: int, shard: ShardId, epoch: Epoch) -> EntityType | None:
        """Return the type of a shard that is at home here at that epoch."""
        return next(
            (
                host.type
                for host in self.all_hosts()
                if host.type_id == type_id and _is_home(host, shard, epoch)
            ),
            None,
        )

    def _place(self, type_id: int, shard: ShardId) -> None:
        """Have a shard placed that no message has asked for yet, if its type is hosted here."""
        for name, host in self.hosts.items():
            if host.execution.type_id == type_id:
                self._node.region_client.find(name, [shard])

    def _fenced_at(self, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        """Drop a shard whose messages the journal does not let this node change."""
        for host in self.hosts_of(type_name):
            found = host.shards.get(shard)
            if found is not None and found.epoch == epoch:
                host.fenced_shard(found)

    def _fenced(self, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        logger.info(
            "shard %s/%d has moved on from epoch %d", type_name, shard, epoch,
            extra={"action": "shard_fenced", "entity_type": type_name},
        )  # fmt: skip
        self._one_stopped.set()
        # The coordinator knows this, unless the row has vanished. Then it finds out now.
        self._say_stopped(type_name, {shard: epoch}, given_up=True)


def _at_home(host: TypeHost) -> dict[ShardId, Epoch]:
    """Return the shards that are here, and those that wait for their leases."""
    waiting = {} if host.gate is None else host.gate.wanted
    return waiting | {each.number: each.epoch for each in host.shards.values()}


def _has(host: TypeHost, number: ShardId) -> bool:
    return number in host.shards or (host.gate is not None and number in host.gate.wanted)


def _is_home(host: TypeHost, number: ShardId, epoch: Epoch) -> bool:
    shard = host.shards.get(number)
    return shard is not None and shard.epoch == epoch and not shard.stopping
