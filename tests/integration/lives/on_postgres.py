"""The same lives on PostgreSQL, in real time: real journal, rows, fence and lifelines under a layer
in memory.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from sharding_app.adapters.memory import MemoryTransport
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable, Snapshot
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.runtime.base.config import LifelineSettings, NodePorts, ProcessPorts
from sharding_app.runtime.base.interfaces import LifelineCallbacks
from sharding_app.runtime.liveness.lifeline import Lifeline
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import OWN_LIMIT_SECONDS, EntityId, MemoryCluster
from tests.simulation.lives import ledgers
from tests.simulation.lives.ledgers import KINDS
from tests.simulation.lives.lives import CONFIG, Life
from tests.simulation.lives.trouble import Trouble

T = TypeVar("T")
Params = dict[str, Any]

WINDOW_SECONDS = 1.0
LOG = """
CREATE TABLE log (number bigserial PRIMARY KEY, type_id int, entity text, seq bigint, name text, payload json);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO log (type_id, entity, seq, name, payload)
    SELECT type_id, entity, seq, name, payload FROM fresh ORDER BY type_id, entity, seq;
    RETURN NULL;
END $$;
CREATE TRIGGER keep AFTER INSERT ON sharding_event REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION keep();
"""
"""Keeps what is trimmed later, too."""


class RealLoop(TravelLoop):
    """Time passes by itself."""

    async def hurry(self, work: Awaitable[T]) -> T:
        return await work

    async def travel(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class BreakableJournal(PostgresJournal):
    """Its next appends may be refused, get lost, or be committed without an answer."""

    def __init__(self, params: Params, owner: str, refuse: Callable[[Sequence[EventRow]], None]) -> None:
        super().__init__(params, owner=owner)
        self._owner = owner
        self._refuse = refuse
        self.trouble: Trouble | None = None

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        plan = None if self.trouble is None else self.trouble.plan(self._owner, "append")
        if plan is not None and plan.execute_after is None:
            raise JournalUnavailable("it never arrived")
        self._refuse(rows)
        at = await super().append(rows, changes, on=on)
        if plan is not None and plan.answer_after is None:
            backend = self._appends[on].backend
            if backend is not None:
                self._doubtful[on].append(backend)
            raise JournalUnavailable("its answer is lost")
        return at


class PostgresCluster(MemoryCluster):
    def __init__(self, params: Params, kinds: Sequence[type[Any]] = KINDS, **options: Any) -> None:
        self.params = params
        self.journals: dict[Incarnation, BreakableJournal] = {}
        super().__init__(kinds, **options)
        self.type_ids: dict[str, int] = {}

    def snapshots(self, entity: type[Any], entity_id: EntityId) -> list[Snapshot]:
        type_id = self.type_ids[self._type(entity).name]
        with psycopg.connect(**self.params) as connection:
            rows = connection.execute(
                "SELECT seq, shard, epoch, state::text FROM sharding_snapshot WHERE type_id = %s AND entity = %s ORDER BY seq",
                [type_id, entity_id],
            ).fetchall()
        return [
            Snapshot(type_id, str(entity_id), seq, shard, epoch, state.encode())
            for seq, shard, epoch, state in rows
        ]

    def fail_next_write(
        self,
        entity: type[Any] | None = None,
        entity_id: EntityId | None = None,
        *,
        reason: str = "the test wants this write to fail",
        times: int = 1,
    ) -> None:
        type_id = None if entity is None else self.type_ids[self._type(entity).name]
        self.write_failures.add(type_id, None if entity_id is None else str(entity_id), reason, times)

    def _ports(self, client: str) -> ProcessPorts:
        return ProcessPorts(
            store=PostgresStore(self.params, owner=client),
            transport=MemoryTransport(self.network, client),
            clock=self.clock,
        )

    def _node_ports(self, incarnation: Incarnation) -> NodePorts:
        def lifeline(cluster_id: str, callbacks: LifelineCallbacks) -> Lifeline:
            first, second = (
                PostgresLifelineSession(self.params, cluster_id=cluster_id, owner=incarnation, number=number)
                for number in range(2)
            )
            return Lifeline(
                (first, second), self.clock, Lease(OWN_LIMIT_SECONDS, self.config.lease_ttl_seconds),
                lifeline_keys(cluster_id, incarnation), incarnation, LifelineSettings(), callbacks,
            )  # fmt: skip

        journal = self.journals[incarnation] = BreakableJournal(
            self.params, incarnation, self.write_failures.check
        )
        journal.trouble = self.network.faults if isinstance(self.network.faults, Trouble) else None
        return NodePorts(
            store=PostgresStore(self.params, owner=incarnation),
            transport=MemoryTransport(self.network, incarnation),
            clock=self.clock,
            journal=journal,
            lifeline=lifeline,
        )


class PostgresLife(Life):
    window = WINDOW_SECONDS
    sees_commits = False
    "They are read when all is over."

    def __init__(self, params: Params) -> None:
        super().__init__(loop=RealLoop())
        self.params = params

    async def begin(self, nodes: int = 2) -> None:
        ledgers.rows.clear()
        config = dataclasses.replace(CONFIG, command_window_seconds=self.window)
        cluster = self.cluster = PostgresCluster(self.params, nodes=nodes, config=config)
        self.trouble = cluster.network.faults = Trouble(cluster._faults)
        await cluster.start()
        cluster.type_ids = await cluster.client.ports.store.type_ids()
        self._names = {number: name for name, number in cluster.type_ids.items()}
        self._stack.enter_context(cluster.in_use())

    async def end_connections(self) -> None:
        """An administrator ends every connection that writes or reads journals."""
        await asyncio.to_thread(self._end_connections)

    async def read_logs(self) -> None:
        self.logs.clear()
        with psycopg.connect(**self.params) as connection:
            found = connection.execute(
                "SELECT type_id, entity, seq, name, payload::text FROM log ORDER BY number"
            ).fetchall()
        for type_id, entity, seq, name, payload in found:
            row = EventRow(type_id, entity, seq, 0, 0, name, 1, payload.encode(), None, None, None)
            self.logs.setdefault((self._names[type_id], entity), []).append(row)

    def _end_connections(self) -> None:
        with psycopg.connect(**self.params, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name ~ '^sharding/n-[^/]*/(journal|recovery|reads)$'"
            )
