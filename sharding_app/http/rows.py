"""What the database says of the cluster, read through Django's connection, a few short queries for one look.

Raises Django's DatabaseError, also where the tables are missing. Whether a row of a journal counts is not shown
here: no query looks at an event.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connections

from sharding_app.core.ids import Incarnation
from sharding_app.core.records import CoordinatorRow, Member, ShardRow, TypeConfig
from sharding_app.db import bounded_reads, journal_alias

LOCKS = """
    WITH held AS MATERIALIZED (
        SELECT (l.classid::bigint << 32) | l.objid::bigint AS key
        FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT n.incarnation, n.name, n.host, n.pid, n.age, n.state, n.roles::text, n.app_version, n.candidate,
        n.types::text, n.deaf, n.joined_at,
        (SELECT count(DISTINCT held.key) FROM held WHERE held.key IN (n.lock_key_1, n.lock_key_2))
    FROM sharding_node n ORDER BY n.age
"""
ONCE = """
    SELECT now(), (SELECT cluster_id FROM sharding_cluster), c.term, c.incarnation, c.elected_at,
        (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables
            WHERE relid = 'sharding_event'::regclass
                OR relid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'sharding_event'::regclass))
    FROM (VALUES (1)) AS always (one) LEFT JOIN sharding_coordinator c ON true
"""
TYPES = """
    SELECT id, name, kind, number_of_shards, extractor, hash_version, role, store_mode, registered_at
    FROM sharding_type ORDER BY name
"""
SHARDS = """
    SELECT t.name, s.shard, s.epoch, s.home, s.step
    FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id
    WHERE s.shard < t.number_of_shards ORDER BY s.type_id, s.shard
"""


@dataclass(frozen=True, slots=True)
class TypeRow:
    number: int
    config: TypeConfig
    registered: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One reading. Times are the server's."""

    now: datetime
    cluster_id: str
    coordinator: CoordinatorRow
    elected: datetime | None
    events: int
    "In the journal, as the server's statistics know it."
    members: list[Member]
    joined: Mapping[Incarnation, datetime]
    types: list[TypeRow]
    shards: list[ShardRow]


def read_rows(alias: str | None = None) -> Rows:
    """Look once."""
    alias = alias or journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        now, cluster_id, term, leader, elected, events = _all(cursor, ONCE)[0]
        nodes = _all(cursor, LOCKS)
        types = _all(cursor, TYPES)
        shards = [ShardRow(*row) for row in _all(cursor, SHARDS)]
    return Rows(
        now=now,
        cluster_id=cluster_id or "",
        coordinator=CoordinatorRow(term or 0, leader),
        elected=elected,
        events=events,
        members=[_member(row) for row in nodes],
        joined={row[0]: row[11] for row in nodes},
        types=[TypeRow(row[0], TypeConfig(*row[1:8]), row[8]) for row in types],
        shards=shards,
    )


def _all(cursor: Any, query: str) -> list[tuple[Any, ...]]:
    cursor.execute(query)
    found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(str(each) for each in json.loads(text))


def _member(row: tuple[Any, ...]) -> Member:
    return Member(
        incarnation=row[0], name=row[1], host=row[2], pid=row[3], age=row[4], state=row[5], roles=_names(row[6]),
        app_version=row[7], candidate=row[8], types=_names(row[9]), deaf=row[10], locks=row[12],
    )  # fmt: skip
