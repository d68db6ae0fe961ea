"""`MemoryCluster`: real nodes over an in-memory Postgres and channel layer, all on one event loop.

What runs here is what runs in production (coordinator, regions, shards, group commit, recovery, lease), but for the
servers. Nodes may leave, be killed and join while commands are under way.

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
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from sharding_app.adapters.memory import (
    MemoryLeases,
    MemoryLifelineSession,
    MemoryNetwork,
    MemoryServer,
    MemoryStore,
    MemoryTransport,
)
from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.cluster_gateway import ClusterGateway
from sharding_app.core.ids import Incarnation, shard_of
from sharding_app.core.lease import Lease
from sharding_app.core.lockkeys import lifeline_keys
from sharding_app.errors import BadCall
from sharding_app.model import gateway, naming
from sharding_app.model.registry import registry
from sharding_app.model.settings import ShardingSettings
from sharding_app.model.types import EntityType
from sharding_app.portal import Portal
from sharding_app.ports.journal import EventRow, Journal, Snapshot
from sharding_app.runtime.config import NodeConfig, NodePorts, ProcessPorts
from sharding_app.runtime.lifeline import Lifeline
from sharding_app.runtime.lifeline_types import LifelineCallbacks, LifelineSettings
from sharding_app.runtime.listener import Listener, NoListener
from sharding_app.runtime.node import Node
from sharding_app.runtime.owner import Together
from sharding_app.runtime.process import Process
from sharding_app.runtime.threads import PlainThreads, Threads
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.faults import BreakableJournal, DeadProcesses, WriteFailures
from sharding_app.testing.together import MemoryTogether

OWN_LIMIT_SECONDS = 2.0
LEAVE_SECONDS = 30.0

EntityId = str | int | UUID


class LoopClock:
    """`ports.clock.Clock` of everything on one event loop: where its time is made to pass, the cluster's does too."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time


class MemoryCluster:
    """One cluster in this process. All its methods belong on its event loop."""

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
    ) -> None:
        """`types`: entity classes (all that are declared, if not given); `defaults`: what ``SHARDING`` says of types."""
        self.loop = asyncio.get_running_loop()
        self.clock = LoopClock(self.loop)
        self.config = config or NodeConfig()
        self.nodes: dict[str, Node] = {}
        "By name; those that are up."
        self.write_failures = WriteFailures()
        "What `fail_next_write` has planned."
        declared = registry.all().values() if types is None else [_entity_type(each) for each in types]
        over = defaults or ShardingSettings()
        self.types = {each.name: each.renamed(each.name, each.settings.over(over)) for each in declared}
        self._faults = DeadProcesses()
        self.server = MemoryServer(now=self.loop.time, faults=self._faults)
        self.network = MemoryNetwork(faults=self._faults)
        self.client = Process(
            "p-client", dataclasses.replace(self.config, name="client"), self._ports("p-client"), self._list()
        )
        self.portal = Portal(self.loop, self.config.ask_timeout_seconds, self.config.region)
        self._make_together = make_together or (
            lambda journal: MemoryTogether(journal, lambda _: contextlib.nullcontext())
        )
        self._threads = threads or PlainThreads()
        self._listener = listener or NoListener()
        self._wanted = nodes
        self._numbers = itertools.count(1)
        self._writes_wait: asyncio.Future[None] | None = None

    # -- Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the nodes, and what asks them."""
        for _ in range(self._wanted):
            await self.add_node()
        await self._quickly(self.client.start())
        self.portal.joined(self.client)

    async def close(self) -> None:
        """End everything at once; whoever still waits is told."""
        self.portal.close("the cluster of this test is over")
        await self.client.close()
        for name in list(self.nodes):
            await self.kill_node(name)

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
        """Let all refs of this process lead to this cluster for a while."""
        with gateway.use_gateway(ClusterGateway(self.portal)) as made:
            yield made

    # -- Nodes -----------------------------------------------------------------------------------------------------

    async def add_node(self, name: str = "", roles: tuple[str, ...] | None = None) -> Node:
        """Start one more node, and return when it is up. It has every role that a type asks for, unless you say."""
        number = next(self._numbers)
        name = name or f"node{number}"
        if name in self.nodes:
            raise BadCall(f"there is a node called {name!r} already")
        incarnation = f"n-{name}-{number}"
        wanted = sorted({each.settings.role for each in self.types.values() if each.settings.role})
        config = dataclasses.replace(self.config, name=name, roles=tuple(wanted) if roles is None else roles)
        node = self.nodes[name] = Node(incarnation, config, self._node_ports(incarnation), self._list())
        await self._quickly(node.start())
        return node

    async def stop_node(self, name: str) -> None:
        """Let a node leave in order: its shards move first."""
        node = self._node(name)
        await self._quickly(node.stop(LEAVE_SECONDS))
        del self.nodes[name]

    async def kill_node(self, name: str) -> None:
        """End a node as ``kill -9`` does: nothing more of it reaches anybody."""
        node = self._node(name)
        self.cut_off(name)
        del self.nodes[name]
        self.server.client_died(node.incarnation)
        await node.close()

    def cut_off(self, name: str) -> None:
        """Take a node off every network, for good: what it sends from now on arrives nowhere."""
        self._faults.killed.add(self._node(name).incarnation)

    def home_of(self, entity: type[Any], entity_id: EntityId) -> str:
        """The name of the node where the entity's shard lives now; empty while it lives nowhere."""
        entity_type = self._type(entity)
        count = entity_type.settings.number_of_shards or self.config.number_of_shards
        wanted = naming.entity_id(entity_id)
        extractor = entity_type.extractor
        shard = shard_of(wanted, count) if extractor is None else extractor.checked_shard_id(wanted)
        for name, node in self.nodes.items():
            host = node.hosts.get(entity_type.name)
            if host is not None and shard in host.shards:
                return name
        return ""

    def is_in_memory(self, entity: type[Any], entity_id: EntityId) -> bool:
        """Whether the entity's object is there now."""
        wanted, name = naming.entity_id(entity_id), self._type(entity).name
        hosts = [node.hosts[name] for node in self.nodes.values() if name in node.hosts]
        return any(wanted in shard.slots for host in hosts for shard in host.shards.values())

    def forget(self, entity: type[Any] | None = None) -> int:
        """Throw all idle objects away, as if nobody had called them for long; the next call recovers them."""
        dropped = 0
        for node in self.nodes.values():
            for name, host in node.hosts.items():
                if entity is None or name == self._type(entity).name:
                    dropped += host.entity_life.forget_idle()
        return dropped

    # -- The journal -----------------------------------------------------------------------------------------------

    def events(self, entity: type[Any], entity_id: EntityId) -> list[Any]:
        """All events of an entity that the journal holds, oldest first."""
        decode = self._type(entity).event_codec.decode
        events = [decode(*record) for record in self.events_raw(entity, entity_id)]
        return [each for each in events if each is not None]

    def events_raw(self, entity: type[Any], entity_id: EntityId) -> list[tuple[str, int, bytes]]:
        """The same as plain records: name, version, JSON. Of a durable-state entity: its values."""
        rows = [each.row for each in self._rows(entity, entity_id).values()]
        return [(row.name, row.version, row.payload) for row in rows]

    def snapshots(self, entity: type[Any], entity_id: EntityId) -> list[Snapshot]:
        """Its snapshots, oldest first."""
        kept = self.server.journal.snapshots.get(self._key(entity, entity_id), {})
        return [kept[seq] for seq in sorted(kept)]

    def append(self, entity: type[Any], entity_id: EntityId, *events: object) -> None:
        """Put events into the journal before the entity is called, as if it had stored them long ago."""
        entity_type = self._type(entity)
        encoded = [entity_type.event_codec.encode(event) for event in events]
        self.append_raw(entity, entity_id, *encoded)

    def append_raw(self, entity: type[Any], entity_id: EntityId, *records: tuple[str, int, bytes]) -> None:
        """The same with plain records (name, version, JSON): what former code of yours may have left."""
        if self.is_in_memory(entity, entity_id):
            raise BadCall(
                "the entity is in memory already and would not see these events: `forget()` it before"
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
        reason: str = "the test wants this write to fail",
        times: int = 1,
    ) -> None:
        """Let the server refuse the next write (of that type, of that entity): its command fails, nothing is stored."""
        type_id = None if entity is None else self.server.cluster.type_ids[self._type(entity).name]
        wanted = None if entity_id is None else naming.entity_id(entity_id)
        self.write_failures.add(type_id, wanted, reason, times)

    @contextlib.contextmanager
    def writes_wait(self) -> Iterator[None]:
        """Hold every write of the cluster back for as long as the block lasts."""
        self._writes_wait = self.loop.create_future()
        try:
            yield
        finally:
            self._writes_wait.set_result(None)
            self._writes_wait = None

    # -- Inside ----------------------------------------------------------------------------------------------------

    async def _quickly(self, work: Coroutine[Any, Any, None]) -> None:
        """Where time can be skipped, what only waits takes none."""
        if isinstance(self.loop, TravelLoop):
            await self.loop.hurry(work)
        else:
            await work

    def _list(self) -> list[EntityType]:
        return list(self.types.values())

    def _type(self, entity: type[Any]) -> EntityType:
        name = _entity_type(entity).name
        found = self.types.get(name)
        if found is None:
            raise BadCall(
                f"this cluster does not know {name!r}: declare it before the first call of the test"
            )
        return found

    def _key(self, entity: type[Any], entity_id: EntityId) -> tuple[int, str]:
        return self.server.cluster.type_ids[self._type(entity).name], naming.entity_id(entity_id)

    def _rows(self, entity: type[Any], entity_id: EntityId) -> dict[int, Committed]:
        rows = self.server.journal.events.get(self._key(entity, entity_id), {})
        return dict(sorted(rows.items()))

    def _node(self, name: str) -> Node:
        found = self.nodes.get(name)
        if found is None:
            raise BadCall(f"no node is called {name!r}: there are {', '.join(self.nodes) or 'none'}")
        return found

    def _ports(self, client: str) -> ProcessPorts:
        return ProcessPorts(
            store=MemoryStore(self.server, client),
            transport=MemoryTransport(self.network, client),
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
                lifeline_keys(cluster_id, incarnation), incarnation, LifelineSettings(), callbacks,
            )  # fmt: skip

        journal = BreakableJournal(self.server, incarnation, self.write_failures, self._gate)
        return NodePorts(
            store=MemoryStore(self.server, incarnation),
            transport=MemoryTransport(self.network, incarnation),
            clock=self.clock,
            journal=journal,
            lifeline=lifeline,
            leases=lambda path: MemoryLeases(
                self.server, incarnation, self.config.shard_leases, self.config.lease_ttl_seconds
            ),
            together=self._make_together(journal),
            threads=self._threads,
            listener=self._listener,
        )

    def _gate(self) -> Awaitable[None] | None:
        return None if self._writes_wait is None else asyncio.shield(self._writes_wait)


def _entity_type(entity: type[Any] | EntityType) -> EntityType:
    if isinstance(entity, EntityType):
        return entity
    found = getattr(entity, "_sharding_type", None)
    if not isinstance(found, EntityType):
        raise BadCall(f"{entity!r} is not an entity class")
    return found
