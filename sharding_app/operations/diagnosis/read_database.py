"""Reads facts of PostgreSQL through Django's connection, with time limits.

Raises Django's DatabaseError.
"""

import time

from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from sharding_app.adapters.django.database import run_query, steady_reads
from sharding_app.adapters.personal.vault import names_of
from sharding_app.adapters.postgres.failed_database import of_database
from sharding_app.operations.database_health import read_health
from sharding_app.operations.diagnosis.look import (
    Clock,
    DatabaseLook,
    Prepared,
    ReplicationSlot,
    Session,
)
from sharding_app.settings.load import get_settings

_SETTINGS = (
    "autovacuum", "default_transaction_read_only", "fsync", "full_page_writes", "max_connections",
    "reserved_connections", "session_replication_role", "superuser_reserved_connections", "synchronous_commit",
)  # fmt: skip


def read_database(alias: str, lifeline_alias: str) -> DatabaseLook:
    with steady_reads(alias) as cursor:
        missing, unknown = _migrations(alias)
        settings = dict(run_query(cursor, "doctor_settings", {"names": list(_SETTINGS)}))
        sessions = tuple(
            Session(
                pid=pid, application=name, user=user, state=state, transaction_seconds=seconds,
                holds_snapshot=bool(holds), holds_up=tables,
            )
            for pid, name, user, state, seconds, holds, tables in run_query(cursor, "doctor_sessions")
        )  # fmt: skip
        prepared = tuple(
            Prepared(name=name, seconds=seconds) for name, seconds in run_query(cursor, "doctor_prepared")
        )
        slots = tuple(
            ReplicationSlot(name=name, active=active, holds_snapshot=holds)
            for name, active, holds in run_query(cursor, "doctor_slots")
        )
        unvacuumed = tuple(name for (name,) in run_query(cursor, "doctor_unvacuumed"))
        copying, former, partitioning, is_one = run_query(cursor, "doctor_partitioning")[0]
        place = run_query(cursor, "doctor_place")[0][0]
        names = names_of(get_settings().personal_secrets)
        locked, unfinished = (0, 0) if missing else run_query(cursor, "doctor_subjects", {"names": names})[0]
        imports = () if missing else tuple(name for (name,) in run_query(cursor, "doctor_imports"))
        superuser, public_may_connect = run_query(cursor, "doctor_rights")[0]
        health = read_health(alias)
    return DatabaseLook(
        alias=alias,
        superuser=superuser,
        public_may_connect=public_may_connect,
        settings=settings,
        sessions=sessions,
        prepared=prepared,
        slots=slots,
        unvacuumed=unvacuumed,
        copying_journal=copying,
        former_journal=former,
        partitioning=partitioning,
        unpartitioned=get_settings().partition_journal and is_one,
        locked_keys=locked,
        unfinished_erasures=unfinished,
        unfinished_imports=imports,
        health=health,
        missing_migrations=missing,
        unknown_migrations=unknown,
        other_place=_other_place(lifeline_alias, place) if lifeline_alias != alias else "",
    )


def read_clock(alias: str) -> tuple[float, float, float]:
    """Return the server's time, and this machine's before and after."""
    with steady_reads(alias) as cursor:
        before = time.time()
        server = float(run_query(cursor, "doctor_clock")[0][0])
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
    with of_database(alias), steady_reads(alias) as cursor:
        other = str(run_query(cursor, "doctor_place")[0][0])
    return "" if other == place else other
