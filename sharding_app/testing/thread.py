"""A `MemoryCluster` on its own thread, for tests that block or have their own loop.

It has the methods of `MemoryCluster` without `await`; `clock` advances its time.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sharding_app.client.gateway import ClusterGateway
from sharding_app.entities.settings import ShardingSettings
from sharding_app.ports.journal import Journal, Snapshot
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.base.interfaces import Together
from sharding_app.runtime.base.threads import Threads
from sharding_app.testing.clock import Clock, TravelLoop
from sharding_app.testing.cluster import EntityId, MemoryCluster

T = TypeVar("T")
START_SECONDS = 30.0


class ClusterThread:
    """The in-memory cluster of one test, created at first use; its creator closes it."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        config: NodeConfig | None = None,
        defaults: ShardingSettings | None = None,
        make_together: Callable[[Journal], Together] | None = None,
        threads: Threads | None = None,
        database: str = "default",
        prepare: Callable[[], Awaitable[None]] | None = None,
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`prepare` is awaited on the cluster's loop before anything else, `finish` after
        everything.
        """
        self._finish = finish
        self._loop = TravelLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sharding-test", daemon=True)
        self._thread.start()

        async def start() -> MemoryCluster:
            if prepare is not None:
                await prepare()
            cluster = MemoryCluster(
                nodes=nodes,
                config=config,
                defaults=defaults,
                make_together=make_together,
                threads=threads,
                database=database,
            )
            try:
                await cluster.start()
            except BaseException:
                await cluster.close()
                raise
            return cluster

        try:
            self.cluster = self._wait(start())
        except BaseException:
            self._end()
            raise
        self.clock = Clock(self._loop, self.cluster)
        "``clock.advance(60)`` lets a minute pass."
        self.gateway = ClusterGateway(self.cluster.portal, self.cluster.outside)
        "The gateway of refs."

    def close(self) -> None:
        """End the cluster and its thread."""

        async def close() -> None:
            try:
                await self.cluster.close()
            finally:
                if self._finish is not None:
                    await self._finish()

        try:
            self._wait(close())
        finally:
            self._end()

    # -- Nodes -------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[str]:
        """Return the names of the nodes that are up."""
        return self._call(lambda: list(self.cluster.nodes))

    def add_node(self, name: str = "", roles: tuple[str, ...] | None = None) -> str:
        """Start a node; return its name."""
        return self._wait(self.cluster.add_node(name, roles)).config.name

    def stop_node(self, name: str) -> None:
        """Let a node leave in order; its shards move first."""
        self._wait(self.cluster.stop_node(name))

    def kill_node(self, name: str) -> None:
        """End a node as ``kill -9`` does."""
        self._wait(self.cluster.kill_node(name))

    def cut_off(self, name: str) -> None:
        """Disconnect a node from every network permanently."""
        self._call(lambda: self.cluster.cut_off(name))

    def home_of(self, entity: type[Any], entity_id: EntityId) -> str:
        """Return the name of the node that is the entity's home; empty if it has none."""
        return self._call(lambda: self.cluster.home_of(entity, entity_id))

    def is_in_memory(self, entity: type[Any], entity_id: EntityId) -> bool:
        """Tell whether the entity is in memory."""
        return self._call(lambda: self.cluster.is_in_memory(entity, entity_id))

    def forget(self, entity: type[Any] | None = None) -> int:
        """Drop all idle entities from memory; the next call recovers them."""
        return self._call(lambda: self.cluster.forget(entity))

    # -- The journal -------------------------------------------------------------------------------

    def events(self, entity: type[Any], entity_id: EntityId) -> list[Any]:
        """Return all events of an entity, oldest first."""
        return self._call(lambda: self.cluster.events(entity, entity_id))

    def events_raw(self, entity: type[Any], entity_id: EntityId) -> list[tuple[str, int, bytes]]:
        """Return records (name, version, JSON); for a durable-state entity its values."""
        return self._call(lambda: self.cluster.events_raw(entity, entity_id))

    def snapshots(self, entity: type[Any], entity_id: EntityId) -> list[Snapshot]:
        """Return its snapshots, oldest first."""
        return self._call(lambda: self.cluster.snapshots(entity, entity_id))

    def append(self, entity: type[Any], entity_id: EntityId, *events: object) -> None:
        """Put events into the journal before the entity is called."""
        self._call(lambda: self.cluster.append(entity, entity_id, *events))

    def append_raw(self, entity: type[Any], entity_id: EntityId, *records: tuple[str, int, bytes]) -> None:
        """Put records (name, version, JSON) into the journal."""
        self._call(lambda: self.cluster.append_raw(entity, entity_id, *records))

    def fail_next_write(
        self,
        entity: type[Any] | None = None,
        entity_id: EntityId | None = None,
        *,
        reason: str = "the test makes this write fail",
        times: int = 1,
    ) -> None:
        """Make the next write (of that type or entity) fail."""
        self._call(lambda: self.cluster.fail_next_write(entity, entity_id, reason=reason, times=times))

    @contextmanager
    def writes_wait(self) -> Iterator[None]:
        """Hold back all writes within the block."""
        block = self.cluster.writes_wait()
        self._call(block.__enter__)
        try:
            yield
        finally:
            self._call(lambda: block.__exit__(None, None, None))

    # -- Inside ------------------------------------------------------------------------------------

    def _call(self, work: Callable[[], T]) -> T:
        async def run() -> T:
            return work()

        return self._wait(run())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
