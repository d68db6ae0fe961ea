"""A large database, made and removed in pieces.

Types that no process hosts own nearly all of it. Each has shards at an epoch and without a home, so
the fence takes their rows and no coordinator moves them. Events are written round-robin: an
entity's events lie on different pages, as in life, and their times are spread over thirty days.
"""

from collections.abc import Callable
from dataclasses import dataclass

from django.db import ProgrammingError

from sharding_app.adapters.postgres.partitioning import change_layout, read_layout
from sharding_app.bench.database import Database
from sharding_app.bench.isolation import PREFIX
from sharding_app.wiring import conninfo

PIECE = 20_000
"""Rows that one statement writes."""

NAMES = f"{PREFIX}Large"
"""Prefix of the names of the types."""

_TYPES = """
INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)
SELECT %s || number, 'event_sourced', %s, 'default', '1', '', 'none'
FROM generate_series(1, %s) AS number
"""
_SHARDS = """
INSERT INTO sharding_shard (type_id, shard, epoch, step)
SELECT t.id, shard, 1, 'stopped'
FROM sharding_type t, generate_series(0, t.number_of_shards - 1) AS shard
WHERE starts_with(t.name, %s)
"""
# Row `number` of all belongs to one type after another, and to one entity after another.
_ROWS = """
WITH types AS (
    SELECT t.id, t.number_of_shards, row_number() OVER (ORDER BY t.id) - 1 AS place, count(*) OVER () AS types
    FROM sharding_type t
    WHERE starts_with(t.name, %s)
), numbered AS (
    SELECT number, number %% %s AS entity, number / %s + 1 AS seq
    FROM generate_series(%s::bigint, %s::bigint) AS number
), wanted AS (
    SELECT t.id AS type_id, 'e-' || lpad(n.entity::text, 9, '0') AS entity, n.seq,
        (n.entity / t.types %% t.number_of_shards)::integer AS shard, n.number
    FROM numbered n JOIN types t ON t.place = n.entity %% t.types
)
"""
_EVENTS = (
    _ROWS
    + """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, at)
SELECT type_id, entity, seq, shard, 1, 'Increased', 1, json_build_object('by', 1, 'text', repeat('x', %s)),
    now() - interval '30 days' * (1 - number::float8 / %s)
FROM wanted ORDER BY number
"""
)
_SNAPSHOTS = (
    _ROWS
    + """
INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)
SELECT type_id, entity, seq, shard, 1, '{"count":1}' FROM wanted
"""
)
_REMEMBERED = (
    _ROWS
    + """
INSERT INTO sharding_remembered (type_id, shard, entity, epoch)
SELECT type_id, shard, entity, 1 FROM wanted
"""
)
_OTHERS = """
SELECT EXISTS (SELECT FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id WHERE NOT starts_with(t.name, %s))
"""
PARTS = 8
"""Of each type that is divided."""
ENTITIES_WITH_A_SNAPSHOT = 5
"""One entity of this number has a snapshot, and a remembered id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a database is."""

    types: int = 20
    shards: int = 1000
    "Of each type."
    entities: int = 200_000
    "Of all types together."
    events: int = 2_000_000
    payload_bytes: int = 60
    divided: str = ""
    """The journal has a partition for each type, and those of this type and of the first one are
    divided. Empty: it is one table."""


class CannotBePartitioned(Exception):
    """The layout of this database is not changed for a measurement."""


def refuse_partitions(database: Database) -> None:
    """Refuse a journal whose layout is not ours to change, on the database's thread: there is no
    way back to one table. Raises CannotBePartitioned.
    """
    if read_layout(conninfo(database.alias)).partitioned:
        raise CannotBePartitioned("the journal is partitioned already, and 'large' begins with one table")
    if database.value(_OTHERS, PREFIX):
        raise CannotBePartitioned("the journal has events of other types, and partitions would stay")


def fill(database: Database, shape: Shape, progress: Callable[[str], None]) -> bool:
    """Write all rows, on the database's thread. False: the server still has to write their pages,
    since the role may not ask it for a checkpoint.
    """
    database.execute(_TYPES, NAMES, shape.shards, shape.types)
    database.execute(_SHARDS, NAMES)
    if shape.divided:
        progress("large, partitioning the journal")
        parts = dict.fromkeys((shape.divided, f"{NAMES}1"), PARTS)
        for _step in change_layout(conninfo(database.alias), parts, "sharding_bench"):
            pass
    for first in range(0, shape.events, PIECE):
        progress(f"large, writing {shape.events:,} events, {100 * first // shape.events} %")
        last = min(first + PIECE, shape.events) - 1
        each = (NAMES, shape.entities, shape.entities, first, last)
        database.execute(_EVENTS, *each, shape.payload_bytes, shape.events)
    some = shape.entities // ENTITIES_WITH_A_SNAPSHOT
    for first in range(0, some, PIECE):
        progress("large, writing snapshots and remembered ids")
        each = (NAMES, shape.entities, shape.entities, first, min(first + PIECE, some) - 1)
        database.execute(_SNAPSHOTS, *each)
        database.execute(_REMEMBERED, *each)
    progress("large, collecting statistics")
    for table in ("event", "snapshot", "remembered", "shard"):
        database.execute(f"VACUUM (ANALYZE) sharding_{table}")
    try:
        database.execute("CHECKPOINT")
    except ProgrammingError:
        return False
    return True
