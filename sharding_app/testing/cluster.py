"""`MemoryCluster`: real nodes on an in-memory journal and channel layer, on one event loop.

It runs the code of production (coordinator, regions, shards, group commit, recovery, lease) without
servers. Nodes may leave, be killed and join while commands are in flight.

    async with MemoryCluster([Cart], nodes=2) as cluster:
        with cluster.in_use():                       # refs of this process lead here
            assert await Cart.ref("alice").add("book", 2) == 2
            await cluster.kill_node("node1")
            assert await Cart.ref("alice").total() == 2
"""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from sharding_app.adapters.memory import (
    MemoryJournal,
    MemoryLeases,
    MemoryLifelineSession,
    MemoryNetwork,
    MemoryServer,
    MemoryStore,
)
from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.client.gateway import ClusterGateway
from sharding_app.client.portal import Portal
from sharding_app.entities import gateway, identifiers
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.errors import InvalidCall
from sharding_app.ports.deliveries import MessageRow
from sharding_app.ports.journal import EventRow, Journal, Snapshot
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.runtime.base.config import LifelineSettings, NodeConfig, NodePorts, ProcessPorts
from sharding_app.runtime.base.interfaces import LifelineCallbacks, Listener, NoListener, Together
from sharding_app.runtime.base.threads import PlainThreads, Threads
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.liveness.lifeline import Lifeline
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.process import Process
from sharding_app.runtime.projections.worker import workers_of
from sharding_app.testing.chance import by_name
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.faults import BreakableJournal, DeadProcesses, MortalTransport, WriteFailures
from sharding_app.testing.outside import MemoryOutside
from sharding_app.testing.together import MemoryTogether

OWN_LIMIT_SECONDS = 2.0
LEAVE_SECONDS = 30.0
IN_FULL_SECONDS = 60.0
SETTLE_SECONDS = 2.0
"Passes in full after whatever was due, and again as long as anything is under way."
BEFORE_SECONDS = 1.0
"""A jump ends this long before the next timer, which then comes due as any other."""

EntityId = str | int | UUID


class LoopClock:
    """`ports.clock.Clock` of everything on one event loop: where its time is made to pass, the
    cluster's does too.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time


class NodeThreads(PlainThreads):
    """The threads of one node, which end with it. Their surroundings are those of the cluster."""

    def __init__(self, surroundings: Threads) -> None:
        super().__init__()
        self._surroundings = surroundings

    def run(self, work: Callable[[], Any]) -> Any:
        return self._surroundings.run(work)

    def around(self, depth: int) -> contextlib.AbstractContextManager[None]:
        return self._surroundings.around(depth)

    def apart(self) -> contextlib.AbstractAsyncContextManager[None]:
        return self._surroundings.apart()

    async def tend(self) -> None:
        await self._surroundings.tend()


class MemoryCluster:
    """A cluster in this process. Call its methods on its event loop."""

    def __init__(
        self,
        types: Iterable[type[Any] | EntityType] | None = None,
        *,
        nodes: int = 1,
        config: NodeConfig | None = None,
        defaults: ShardingSettings | None = None,
        make_together: Callable[[Journal], Together] | None = None,
        threads: Threads | None = None,
        listener: Listener | None = None,
        database: str = "default",
    ) -> None:
        """Create it with these entity classes (default: all declared) and defaults of types."""
        self.loop = asyncio.get_running_loop()
        self.clock = LoopClock(self.loop)
        self.config = config or NodeConfig(check_state=True)
        self.nodes: dict[str, Node] = {}
        "By name; those that are up."
        self.write_failures = WriteFailures()
        "The failures planned by `fail_next_write`."
        declared = _hosted() if types is None else [_entity_type(each) for each in types]
        over = defaults or ShardingSettings()
        self.types = {each.name: each.renamed(each.name, each.settings.over(over)) for each in declared}
        self._faults = DeadProcesses()
        loop = self.loop
        self.server = MemoryServer(
            now=loop.date if isinstance(loop, TravelLoop) else loop.time,
            steady=loop.time,
            faults=self._faults,
        )
        self.network = MemoryNetwork(faults=self._faults)
        client, ports = dataclasses.replace(self.config, name="client"), self._ports("p-client")
        self.client = Process("p-client", client, ports, self._list(), self.server.cluster_id)
        self.portal = Portal(
            self.loop, self.config.ask_timeout_seconds, self.config.region, self.config.followers
        )
        self.outside = MemoryOutside(self.loop, self._place, self._stage, database)
        "Stores messages and timers for refs' `.durably` and `.later`."
        self._make_together = make_together or (
            lambda journal: MemoryTogether(journal, lambda _: contextlib.nullcontext())
        )
        self._threads = threads or PlainThreads()
        self._listener = listener or NoListener()
        self._wanted = nodes
        self._numbers = itertools.count(1)
        self._writes_wait: asyncio.Future[None] | None = None

    # -- Life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the nodes and the client."""
        for _ in range(self._wanted):
            await self.add_node()
        await self._quickly(self.client.start())
        self.portal.joined(self.client)

    async def close(self) -> None:
        """End all nodes at once; waiting callers get an error."""
        self.portal.close("the cluster of this test has ended")
        await self.client.close()
        for name in list(self.nodes):
            await self.kill_node(name)
        await self._threads.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @contextlib.contextmanager
    def in_use(self) -> Iterator[ClusterGateway]:
        """Route all refs of this process to this cluster within the block."""
        with gateway.use_gateway(ClusterGateway(self.portal, self.outside)) as made:
            yield made

    # -- Nodes -------------------------------------------------------------------------------------

    async def add_node(self, name: str = "", roles: tuple[str, ...] | None = None) -> Node:
        """Start a node and wait until it is up. By default it has all roles that types need."""
        number = next(self._numbers)
        name = name or f"node{number}"
        if name in self.nodes:
            raise InvalidCall(f"there is already a node named {name!r}")
        incarnation = f"n-{name}-{number}"
        wanted = sorted({each.settings.role for each in self.types.values() if each.settings.role})
        config = dataclasses.replace(self.config, name=name, roles=tuple(wanted) if roles is None else roles)
        node = self.nodes[name] = Node(
            incarnation, config, self._node_ports(incarnation), self._list(), self.server.cluster_id
        )
        node.hosting.waits.askers[self.client.incarnation] = self.client.region_client
        await self._quickly(node.start())
        return node

    async def stop_node(self, name: str) -> None:
        """Let a node leave in order; its shards move first."""
        node = self._node(name)
        await self._quickly(node.stop(LEAVE_SECONDS))
        del self.nodes[name]

    async def kill_node(self, name: str) -> None:
        """End a node as ``kill -9`` does: it sends nothing more."""
        node = self._node(name)
        self._faults.ended.add(node.incarnation)
        self.cut_off(name)
        del self.nodes[name]
        self.server.client_died(node.incarnation)
        await node.close()

    def cut_off(self, name: str) -> None:
        """Disconnect a node from every network permanently."""
        self._faults.killed.add(self._node(name).incarnation)

    def home_of(self, entity: type[Any], entity_id: EntityId) -> str:
        """Return the name of the node that is the shard's home; empty if it has none."""
        entity_type = self._type(entity)
        wanted = identifiers.entity_id(entity_id)
        for name, node in self.nodes.items():
            host = node.hosts.get(entity_type.name)
            if host is not None and self._shard(entity_type, wanted) in host.shards:
                return name
        return ""

    def is_in_memory(self, entity: type[Any], entity_id: EntityId) -> bool:
        """Tell whether the entity is in memory."""
        wanted, name = identifiers.entity_id(entity_id), self._type(entity).name
        hosts = [node.hosts[name] for node in self.nodes.values() if name in node.hosts]
        return any(wanted in shard.slots for host in hosts for shard in host.shards.values())

    def forget(self, entity: type[Any] | None = None) -> int:
        """Drop all idle entities from memory, as passivation does; the next call recovers them."""
        dropped = 0
        for node in self.nodes.values():
            for name, host in node.hosts.items():
                if entity is None or name == self._type(entity).name:
                    dropped += host.entity_life.forget_idle()
        return dropped

    # -- The journal -------------------------------------------------------------------------------

    def events(self, entity: type[Any], entity_id: EntityId) -> list[Any]:
        """Return all events of an entity in the journal, oldest first."""
        decode = self._type(entity).event_codec.decode
        events = [decode(*record) for record in self.events_raw(entity, entity_id)]
        return [each for each in events if each is not None]

    def events_raw(self, entity: type[Any], entity_id: EntityId) -> list[tuple[str, int, bytes]]:
        """Return records (name, version, JSON); for a durable-state entity its values."""
        rows = [each.row for each in self._rows(entity, entity_id).values()]
        return [(row.name, row.version, row.payload) for row in rows]

    def snapshots(self, entity: type[Any], entity_id: EntityId) -> list[Snapshot]:
        """Return its snapshots, oldest first."""
        kept = self.server.journal.snapshots.get(self._key(entity, entity_id), {})
        return [kept[seq] for seq in sorted(kept)]

    def append(self, entity: type[Any], entity_id: EntityId, *events: object) -> None:
        """Put events into the journal before the entity is called."""
        entity_type = self._type(entity)
        encoded = [entity_type.event_codec.encode(event) for event in events]
        self.append_raw(entity, entity_id, *encoded)

    def append_raw(self, entity: type[Any], entity_id: EntityId, *records: tuple[str, int, bytes]) -> None:
        """Put records (name, version, JSON) into the journal, such as those of former code."""
        if self.is_in_memory(entity, entity_id):
            raise InvalidCall(
                "the entity is already in memory and would not see these events: call `forget()` first"
            )
        key = type_id, wanted = self._key(entity, entity_id)
        rows = self.server.journal.events.setdefault(key, {})
        seq = max(rows, default=0)
        for name, version, data in records:
            seq += 1
            row = EventRow(type_id, wanted, seq, 0, 0, name, version, data, None, None, None)
            rows[seq] = Committed(row, self.server.now())

    def fail_next_write(
        self,
        entity: type[Any] | None = None,
        entity_id: EntityId | None = None,
        *,
        reason: str = "the test makes this write fail",
        times: int = 1,
    ) -> None:
        """Make the next write (of that type or entity) fail; nothing is stored."""
        type_id = None if entity is None else self.server.cluster.type_ids[self._type(entity).name]
        wanted = None if entity_id is None else identifiers.entity_id(entity_id)
        self.write_failures.add(type_id, wanted, reason, times)

    @contextlib.contextmanager
    def writes_wait(self) -> Iterator[None]:
        """Hold back all writes of the cluster within the block."""
        self._writes_wait = self.loop.create_future()
        try:
            yield
        finally:
            self._writes_wait.set_result(None)
            self._writes_wait = None

    # -- Time --------------------------------------------------------------------------------------

    def date(self) -> datetime:
        """Return the cluster's date, which stamps events and makes durable timers due."""
        return self.server.date()

    async def advance(self, seconds: float) -> None:
        """Let time pass, on a `TravelLoop`. All timers of entities run in order and at their time,
        and so does passivation.

        A minute passes in full. Of more only the first seconds, and those around whatever is due;
        over the rest the date jumps, as long as nothing is under way.
        """
        loop = self.loop
        if not isinstance(loop, TravelLoop):
            raise InvalidCall("time can be made to pass on a TravelLoop only")
        until = loop.date() + seconds
        in_full = seconds if seconds <= IN_FULL_SECONDS else SETTLE_SECONDS
        while (left := until - loop.date()) > 0:
            await loop.travel(min(left, in_full))
            in_full = SETTLE_SECONDS
            if self._is_quiet(loop):
                jump = min(until - loop.date(), self._until_due(loop)) - BEFORE_SECONDS
                if jump > SETTLE_SECONDS:
                    self._jump(loop, jump)

    def _is_quiet(self, loop: TravelLoop) -> bool:
        """Whether every node is well, no call is under way, and nothing is overdue."""
        processes = (self.client, *self.nodes.values())
        if loop.is_working or any(each.region_client.unfinished for each in processes):
            return False
        now = self.date()
        if any(each.due <= now and not each.parked for each in self.server.messages.rows.values()):
            return False
        if min(self._until_passivated(), default=1.0) <= 0:
            return False
        return all(
            node.may_handle() and not node.hosting.parts[0].deliverer.is_reading
            for node in self.nodes.values()
        )

    def _until_due(self, loop: TravelLoop) -> float:
        """Return the seconds until the next timer, or the next entity's end by passivation."""
        now = self.date()
        rows = [
            (each.due - now).total_seconds() for each in self.server.messages.rows.values() if not each.parked
        ]
        return min([loop.next_timer(), *rows, *self._until_passivated()])

    def _until_passivated(self) -> list[float]:
        """Return the seconds until each idle entity has been unused for long enough."""
        now, found = self.clock.now(), []
        for host, slots in self._slots():
            after = host.type.settings.passivate_after_seconds
            after = self.config.passivate_after_seconds if after is None else after
            if after and not host.entity_life.runs_again:
                found += [
                    each.touched + after - now for each in slots if each.is_idle and each.place is not None
                ]
        return found

    def _jump(self, loop: TravelLoop, seconds: float) -> None:
        loop.jump(seconds)
        for _, slots in self._slots():
            for slot in slots:
                slot.touched -= seconds
        for node in self.nodes.values():
            node.hosting.parts[0].deliverer.clock.heard(self.date().timestamp(), self.clock.now())

    def _slots(self) -> Iterator[tuple[TypeHost, list[Resident]]]:
        for node in self.nodes.values():
            for host in node.hosting.all_hosts():
                yield host, [slot for shard in host.shards.values() for slot in shard.slots.values()]

    # -- Inside ------------------------------------------------------------------------------------

    async def _quickly(self, work: Coroutine[Any, Any, None]) -> None:
        """Skip waiting time, if the loop's time can be skipped."""
        if isinstance(self.loop, TravelLoop):
            await self.loop.hurry(work)
        else:
            await work

    def _place(self, type_name: str, entity_id: str) -> tuple[int, int]:
        return self.server.cluster.type_ids[type_name], self._shard(self.types[type_name], entity_id)

    def _shard(self, entity_type: EntityType, entity_id: str) -> int:
        """Return the shard of an entity of a registered type, by the numbers that are in force."""
        extractor = entity_type.extractor
        if extractor is not None:
            return extractor.checked_shard_id(entity_id)
        return self.server.cluster.types[entity_type.name].numbering.shard_of(entity_id)

    async def _stage(self, rows: list[MessageRow]) -> None:
        await MemoryJournal(self.server, "p-client").stage(rows)

    def _list(self) -> list[EntityType]:
        return list(self.types.values())

    def _type(self, entity: type[Any]) -> EntityType:
        name = _entity_type(entity).name
        found = self.types.get(name)
        if found is None:
            raise InvalidCall(
                f"this cluster does not know {name!r}: declare it before the first call of the test"
            )
        return found

    def _key(self, entity: type[Any], entity_id: EntityId) -> tuple[int, str]:
        return self.server.cluster.type_ids[self._type(entity).name], identifiers.entity_id(entity_id)

    def _rows(self, entity: type[Any], entity_id: EntityId) -> dict[int, Committed]:
        rows = self.server.journal.events.get(self._key(entity, entity_id), {})
        return dict(sorted(rows.items()))

    def _node(self, name: str) -> Node:
        found = self.nodes.get(name)
        if found is None:
            raise InvalidCall(f"no node is named {name!r} (nodes: {', '.join(self.nodes) or 'none'})")
        return found

    def _ports(self, client: str) -> ProcessPorts:
        return ProcessPorts(
            store=MemoryStore(self.server, client),
            transport=MortalTransport(self.network, client, self._faults),
            clock=self.clock,
        )

    def _node_ports(self, incarnation: Incarnation) -> NodePorts:
        def lifeline(cluster_id: str, callbacks: LifelineCallbacks) -> Lifeline:
            sessions = tuple(
                MemoryLifelineSession(
                    self.server, incarnation, idle_timeout_seconds=self.config.lease_ttl_seconds
                )
                for _ in range(2)
            )
            return Lifeline(
                (sessions[0], sessions[1]), self.clock, Lease(OWN_LIMIT_SECONDS, self.config.lease_ttl_seconds),
                lifeline_keys(cluster_id, incarnation), incarnation, LifelineSettings(chance=by_name), callbacks,
            )  # fmt: skip

        journal = BreakableJournal(self.server, incarnation, self.write_failures, self._gate)
        return NodePorts(
            store=MemoryStore(self.server, incarnation),
            transport=MortalTransport(self.network, incarnation, self._faults),
            clock=self.clock,
            journal=journal,
            lifeline=lifeline,
            leases=lambda path: MemoryLeases(
                self.server, incarnation, self.config.shard_leases, self.config.lease_ttl_seconds
            ),
            together=self._make_together(journal),
            threads=NodeThreads(self._threads),
            date=self.date,
            listener=self._listener,
        )

    def _gate(self) -> Awaitable[None] | None:
        return None if self._writes_wait is None else asyncio.shield(self._writes_wait)


def _hosted() -> list[EntityType]:
    """Return all declared types but the workers of projections, whose rows a database has."""
    own = {workers_of(each) for each in projections.all().values()}
    return [each for name, each in registry.all().items() if name not in own]


def _entity_type(entity: type[Any] | EntityType) -> EntityType:
    if isinstance(entity, EntityType):
        return entity
    found = getattr(entity, "_sharding_type", None)
    if not isinstance(found, EntityType):
        raise InvalidCall(f"{entity!r} is not an entity class")
    return found
