"""The worlds that the ports' contracts hold in: each gives adapters that look at one and the same
cluster.

A world is an async context manager made by an entry of FACTORIES; the fixture `world` runs every
contract test in each.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import psycopg
import pytest

from sharding_app.adapters.memory import (
    MemoryJournal,
    MemoryLeases,
    MemoryLifelineSession,
    MemoryServer,
    MemoryStore,
)
from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.adapters.memory.journal import LOCK_SECONDS
from sharding_app.adapters.memory.store import LOCK_SECONDS as STORE_LOCK_SECONDS
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.leases import PostgresLeases
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.journal import Journal
from sharding_app.ports.lease import Leases
from sharding_app.ports.lifeline import LifelineSession
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.liveness.shard_lease import LeaseTerms
from sharding_app.protocol.records import Backend, Lineage
from tests.support.scratch import empty_tables


class World(Protocol):
    """One cluster's database, and new adapters over it for as many processes as a test needs."""

    def store(self, owner: str = "", *, lock_seconds: float = STORE_LOCK_SECONDS) -> ClusterStore: ...

    def spread_store(self, weights: Mapping[str, float]) -> ClusterStore:
        """Return a store that spreads new shards over journals."""

    def journal(
        self, owner: str = "", *, connections: int = 1, lock_seconds: float = LOCK_SECONDS
    ) -> Journal: ...

    def session(self, owner: str = "", number: int = 0) -> LifelineSession: ...

    def leases(self, owner: str, ttl_seconds: float, node_ttl_seconds: float = 3.0) -> Leases: ...

    async def end(self, backend: Backend) -> None:
        """End one server process, as an administrator would, and return when it is gone."""
        ...

    def holding(self, type_id: int, shard: ShardId) -> AbstractAsyncContextManager[None]:
        """While the block runs, a session that is none of ours holds the row of a shard."""
        ...

    async def leave(self, type_id: int, shard: ShardId, journal: str) -> None:
        """Say of a shard of this journal that it has moved to another one; "": it has not."""
        ...

    async def lie(self, type_id: int, shard: ShardId, journal: str) -> None:
        """Say in the cluster's own rows in which journal a shard lies."""

    async def of_other_lineage(self) -> None:
        """Let the last election be one of another lineage than the server's: it has been
        promoted.
        """
        ...


def terms(ttl_seconds: float) -> LeaseTerms:
    return LeaseTerms(ttl_seconds=ttl_seconds, renew_seconds=ttl_seconds / 4, answer_seconds=1.0)


class PostgresWorld:
    def __init__(self, params: dict[str, Any], cluster_id: str) -> None:
        self.params = params
        self._cluster_id = cluster_id
        self._made: list[PostgresStore | PostgresJournal | PostgresLifelineSession] = []

    def store(self, owner: str = "", *, lock_seconds: float = STORE_LOCK_SECONDS) -> PostgresStore:
        store = PostgresStore(self.params, owner=owner, lock_timeout_seconds=lock_seconds)
        self._made.append(store)
        return store

    def spread_store(self, weights: Mapping[str, float]) -> PostgresStore:
        store = PostgresStore(self.params, journals=weights)
        self._made.append(store)
        return store

    def journal(
        self, owner: str = "", *, connections: int = 1, lock_seconds: float = LOCK_SECONDS
    ) -> PostgresJournal:
        journal = PostgresJournal(
            self.params, owner=owner, connections=connections, lock_timeout_seconds=lock_seconds
        )
        self._made.append(journal)
        return journal

    def session(self, owner: str = "", number: int = 0) -> PostgresLifelineSession:
        session = PostgresLifelineSession(
            self.params,
            cluster_id=self._cluster_id,
            owner=owner,
            number=number,
            ttl_seconds=60.0,
            connect_seconds=30.0,
        )
        self._made.append(session)
        return session

    def leases(self, owner: str, ttl_seconds: float, node_ttl_seconds: float = 3.0) -> PostgresLeases:
        store = self.store(owner, lock_seconds=60)  # several ask at once
        return PostgresLeases(store, owner, terms(ttl_seconds), node_ttl_seconds)

    async def end(self, backend: Backend) -> None:
        async with await psycopg.AsyncConnection.connect(**self.params, autocommit=True) as admin:
            await admin.execute("SELECT pg_terminate_backend(%s, 60000)", [backend.pid])

    @asynccontextmanager
    async def holding(self, type_id: int, shard: ShardId) -> AsyncIterator[None]:
        connection = await psycopg.AsyncConnection.connect(**self.params)
        async with connection, connection.transaction(force_rollback=True):
            await connection.execute(
                "SELECT FROM sharding_shard WHERE type_id = %s AND shard = %s FOR UPDATE", [type_id, shard]
            )
            yield

    async def leave(self, type_id: int, shard: ShardId, journal: str) -> None:
        async with await psycopg.AsyncConnection.connect(**self.params, autocommit=True) as mover:
            await mover.execute(
                "UPDATE sharding_shard SET journal = %s, home = NULL, step = 'stopped' WHERE type_id = %s AND shard = %s",
                [journal, type_id, shard],
            )

    async def lie(self, type_id: int, shard: ShardId, journal: str) -> None:
        async with await psycopg.AsyncConnection.connect(**self.params, autocommit=True) as mover:
            await mover.execute(
                "UPDATE sharding_shard SET journal = %s WHERE type_id = %s AND shard = %s",
                [journal, type_id, shard],
            )

    async def of_other_lineage(self) -> None:
        async with await psycopg.AsyncConnection.connect(**self.params, autocommit=True) as admin:
            await admin.execute("UPDATE sharding_coordinator SET lineage = 'former/1'")

    async def close(self) -> None:
        for adapter in self._made:
            await adapter.close()


@asynccontextmanager
async def postgres_world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    params = request.getfixturevalue("contract_database")
    empty_tables(params)
    first = PostgresStore(params)
    world = PostgresWorld(params, await first.cluster_id())
    await first.close()
    try:
        yield world
    finally:
        await world.close()


class MemoryWorld:
    """The fakes: they have to do whatever the real adapters do."""

    def __init__(self, server: MemoryServer | None = None) -> None:
        self._server = server or MemoryServer()

    def store(self, owner: str = "", *, lock_seconds: float = STORE_LOCK_SECONDS) -> MemoryStore:
        return MemoryStore(self._server, owner, lock_seconds=lock_seconds)

    def spread_store(self, weights: Mapping[str, float]) -> MemoryStore:
        self._server.cluster.journal_weights = weights
        return self.store()

    def journal(
        self, owner: str = "", *, connections: int = 1, lock_seconds: float = LOCK_SECONDS
    ) -> MemoryJournal:
        return MemoryJournal(self._server, owner, connections=connections, lock_seconds=lock_seconds)

    def session(self, owner: str = "", number: int = 0) -> MemoryLifelineSession:
        return MemoryLifelineSession(self._server, owner)

    def leases(self, owner: str, ttl_seconds: float, node_ttl_seconds: float = 3.0) -> MemoryLeases:
        return MemoryLeases(self._server, owner, terms(ttl_seconds), node_ttl_seconds)

    async def end(self, backend: Backend) -> None:
        self._server.sessions.end_backends([backend])

    @asynccontextmanager
    async def holding(self, type_id: int, shard: ShardId) -> AsyncIterator[None]:
        outsider = self._server.locks.hold(shard_key(type_id, shard), "another session")
        yield
        self._server.locks.release(outsider)

    async def leave(self, type_id: int, shard: ShardId, journal: str) -> None:
        if journal:
            self._server.cluster.left[type_id, shard] = journal
        else:
            self._server.cluster.left.pop((type_id, shard))

    async def lie(self, type_id: int, shard: ShardId, journal: str) -> None:
        cluster = self._server.cluster
        (name,) = [each for each, number in cluster.type_ids.items() if number == type_id]
        cluster.journals[name, shard] = journal

    async def of_other_lineage(self) -> None:
        self._server.cluster.lineage = Lineage("former", 1)


@asynccontextmanager
async def memory_world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    yield MemoryWorld()


FACTORIES: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[World]]] = {
    "memory": memory_world,
    "postgres": postgres_world,
}
