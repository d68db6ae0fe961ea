"""Reads what PostgreSQL says of itself and of the cluster, through Django's connection: short queries with a deadline.

Raises Django's DatabaseError.
"""

import time
from typing import Any

import msgspec
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from sharding_app.db import steady_reads
from sharding_app.doctor.look import (
    Clock,
    ClusterLook,
    DatabaseLook,
    Prepared,
    ReplicationSlot,
    Session,
    ShardLook,
)
from sharding_app.http.rows import read_rows
from sharding_app.models import Node

SHARDS_NAMED = 2000

_SETTINGS = (
    "autovacuum", "default_transaction_read_only", "fsync", "full_page_writes", "max_connections",
    "reserved_connections", "session_replication_role", "superuser_reserved_connections", "synchronous_commit",
)  # fmt: skip
_SESSIONS = """
    WITH locks AS MATERIALIZED (
        SELECT l.pid, string_agg(DISTINCT c.relname, ', ') AS tables
        FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE l.locktype = 'relation' AND l.granted AND starts_with(c.relname, 'sharding_')
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND l.mode <> 'AccessShareLock'
            AND (c.relname IN ('sharding_shard', 'sharding_node', 'sharding_coordinator')
                OR l.mode NOT IN ('RowShareLock', 'RowExclusiveLock', 'ShareUpdateExclusiveLock'))
        GROUP BY l.pid
    )
    SELECT a.pid, coalesce(application_name, ''), coalesce(usename, ''), coalesce(state, ''),
        extract(epoch FROM clock_timestamp() - xact_start)::float8,
        backend_xmin IS NOT NULL AND datname = current_database(), coalesce(locks.tables, '')
    FROM pg_stat_activity a LEFT JOIN locks ON locks.pid = a.pid
    WHERE backend_type = 'client backend' AND a.pid <> pg_backend_pid()
"""
_PREPARED = """
    SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 20
"""
_SLOTS = """
    SELECT slot_name, active, xmin IS NOT NULL OR catalog_xmin IS NOT NULL OR restart_lsn IS NOT NULL
    FROM pg_replication_slots LIMIT 100
"""
_UNVACUUMED = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind = 'r' AND starts_with(c.relname, 'sharding_')
        AND EXISTS (SELECT FROM pg_options_to_table(c.reloptions) o
            WHERE o.option_name = 'autovacuum_enabled' AND o.option_value IN ('false', 'off', 'no', '0'))
    ORDER BY c.relname
"""
_RIGHTS = """
    SELECT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user),
        has_database_privilege('public', current_database(), 'CONNECT')
"""
_PLACE = """
    SELECT current_database() || ' of the server that started at ' || pg_postmaster_start_time()::text
"""
_SHARDS = """
    SELECT t.name, s.shard, s.home, s.step, extract(epoch FROM clock_timestamp() - s.updated_at)::float8
    FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id
    WHERE s.shard < t.number_of_shards AND (s.step <> 'home'
        OR NOT EXISTS (SELECT FROM sharding_node n WHERE n.incarnation = s.home))
    ORDER BY s.type_id, s.shard LIMIT %s
"""


def read_database(alias: str, lifeline_alias: str) -> DatabaseLook:
    with steady_reads(alias) as cursor:
        missing, unknown = _migrations(alias)
        settings = dict(
            _rows(cursor, "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [list(_SETTINGS)])
        )
        sessions = tuple(
            Session(
                pid=pid, application=name, user=user, state=state, transaction_seconds=seconds,
                holds_snapshot=bool(holds), holds_up=tables,
            )
            for pid, name, user, state, seconds, holds, tables in _rows(cursor, _SESSIONS)
        )  # fmt: skip
        prepared = tuple(Prepared(name=name, seconds=seconds) for name, seconds in _rows(cursor, _PREPARED))
        slots = tuple(
            ReplicationSlot(name=name, active=active, holds_snapshot=holds)
            for name, active, holds in _rows(cursor, _SLOTS)
        )
        unvacuumed = tuple(name for (name,) in _rows(cursor, _UNVACUUMED))
        place = _rows(cursor, _PLACE)[0][0]
        superuser, public_may_connect = _rows(cursor, _RIGHTS)[0]
    return DatabaseLook(
        alias=alias,
        superuser=superuser,
        public_may_connect=public_may_connect,
        settings=settings,
        sessions=sessions,
        prepared=prepared,
        slots=slots,
        unvacuumed=unvacuumed,
        missing_migrations=missing,
        unknown_migrations=unknown,
        other_place=_other_place(lifeline_alias, place) if lifeline_alias != alias else "",
    )


def read_cluster(alias: str) -> ClusterLook:
    """The rows. The tables must be there."""
    with steady_reads(alias) as cursor:
        found = _rows(cursor, _SHARDS, [SHARDS_NAMED])
        rows = read_rows(alias)
        more = {
            incarnation: {"asked": asked, "wire": tuple(wire)}
            for incarnation, asked, wire in Node.objects.using(alias).values_list(
                "incarnation", "asked", "wire"
            )
            if wire
        }
    return ClusterLook(
        now=rows.now,
        cluster_id=rows.cluster_id,
        coordinator=rows.coordinator,
        members=tuple(
            msgspec.structs.replace(each, **more.get(each.incarnation, {})) for each in rows.members
        ),
        types=tuple(each.config for each in rows.types),
        numbers={each.config.name: each.number for each in rows.types},
        shards=tuple(
            ShardLook(type=name, shard=shard, home=home, step=step, seconds=seconds)
            for name, shard, home, step, seconds in found
        ),
    )


def read_clock(alias: str) -> tuple[float, float, float]:
    """The server's time, and this machine's before and after it was asked."""
    with steady_reads(alias) as cursor:
        before = time.time()
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        server = float(cursor.fetchone()[0])
        return server, before, time.time()


def server_clock(reading: tuple[float, float, float]) -> Clock:
    server, before, after = reading
    return Clock(
        who="PostgreSQL", ahead_seconds=server - (before + after) / 2, uncertain_seconds=(after - before) / 2
    )


def _migrations(alias: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    executor = MigrationExecutor(connections[alias])
    loader = executor.loader
    targets = [node for node in loader.graph.leaf_nodes() if node[0] == "sharding"]
    missing = tuple(each.name for each, _ in executor.migration_plan(targets) if each.app_label == "sharding")
    applied = sorted(name for app, name in loader.applied_migrations if app == "sharding")
    return missing, tuple(name for name in applied if ("sharding", name) not in loader.disk_migrations)


def _other_place(alias: str, place: str) -> str:
    with steady_reads(alias) as cursor:
        other = str(_rows(cursor, _PLACE)[0][0])
    return "" if other == place else other


def _rows(cursor: Any, query: str, params: list[Any] | None = None) -> list[tuple[Any, ...]]:
    cursor.execute(query, params)
    found: list[tuple[Any, ...]] = cursor.fetchall()
    return found
