"""The health of the cluster's database in one place: tables, locks, transaction numbers.

Doctor, dashboard and metrics read it here. The reads are of the server's statistics and catalogs;
`recent_writes` reads events of the last minutes, and `longest_histories` the ends of some entities'
histories. All raise Django's DatabaseError.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connections

from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query
from sharding_app.operations.each_journal import Copies, name_of

MOST_WAITS = 50
MOST_TYPES = 20
MOST_HISTORIES = 10
PLACES = 200
ROWS_OF_A_PAGE = 40
WRAPAROUND = 2_147_483_648 - 3_000_000
"""The age at which PostgreSQL refuses to give out transaction numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """One table, as the server's statistics know it."""

    name: str
    table_bytes: int
    index_bytes: int
    live_rows: int
    dead_rows: int
    vacuumed_seconds: float | None
    "Since the last vacuum; None: there was none, or the server has lost its statistics."
    age: int
    "Transactions since its oldest number that is not frozen."
    partitions: int = 0
    "How many tables it is the sum of; 0: it is one table."


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWait:
    """A session that waits for a lock, and one that holds it up."""

    pid: int
    application: str
    user: str
    seconds: float
    tables: str
    "Tables of ours in which it has or wants locks."
    holder_pid: int | None
    holder: str
    holder_user: str
    holder_state: str
    holder_seconds: float | None
    "How long the holder's transaction has been open."


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    tables: Sequence[TableHealth] = ()
    waits: Sequence[LockWait] = ()
    age: int = 0
    "Transactions since the database's oldest number that is not frozen."
    freeze_max_age: int = 200_000_000
    wal_bytes: int = 0
    "Bytes of write-ahead log since the server was made: two readings give a rate."


@dataclass(frozen=True, slots=True)
class TypeWrites:
    """What was written lately of one type."""

    type: str
    events: int
    entities: int


@dataclass(frozen=True, slots=True)
class LongHistory:
    """An entity with many events, and how many of them its recovery reads."""

    type: str
    entity: str
    events: int
    recovered: int


def read_health(alias: str | None = None) -> Health:
    """Read statistics and catalogs once."""
    alias = alias or journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        age, freeze_max_age, wal_bytes = run_query(cursor, "health_server")[0]
        tables = [
            TableHealth(
                name=name, table_bytes=size, index_bytes=indexes, live_rows=live, dead_rows=dead,
                vacuumed_seconds=vacuumed, age=oldest, partitions=partitions,
            )
            for name, size, indexes, live, dead, vacuumed, oldest, partitions in run_query(cursor, "health_tables")
        ]  # fmt: skip
    return Health(
        tables=tables,
        waits=read_lock_waits(alias),
        age=age,
        freeze_max_age=freeze_max_age,
        wal_bytes=wal_bytes,
    )


def read_lock_waits(alias: str | None = None) -> list[LockWait]:
    """Read who waits for whom, the longest wait first."""
    alias = alias or journal_alias()
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "lock_waits", {"limit": MOST_WAITS})
    return [
        LockWait(
            pid=pid, application=application, user=user, seconds=seconds or 0.0, tables=tables, holder_pid=holder_pid,
            holder=holder, holder_user=holder_user, holder_state=state, holder_seconds=since,
        )
        for pid, application, user, seconds, tables, holder_pid, holder, holder_user, state, since in rows
    ]  # fmt: skip


def read_recent_writes(
    seconds: float, alias: str | None = None, copies: Copies | None = None
) -> list[TypeWrites]:
    """Count the events of the last seconds by type, the most first. Those of a copy are left
    out.
    """
    alias = alias or journal_alias()
    without = (copies or Copies()).parameters(name_of(alias))
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        rows = run_query(cursor, "recent_writes", {"seconds": seconds, "limit": MOST_TYPES, **without})
    return [TypeWrites(*row) for row in rows]


def read_longest_histories(
    alias: str | None = None, seed: int | None = None, copies: Copies | None = None
) -> list[LongHistory]:
    """Read the longest histories among the entities of random events: those with the most events
    are the likeliest. Copies of entities that do not lie there are left out.
    """
    alias = alias or journal_alias()
    copies, name = copies or Copies(), name_of(alias)
    chance = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        ((last,),) = run_query(cursor, "sample_page", {"type_id": None, "pages": 1})
        places = [f"({chance.randint(0, last)},{chance.randint(1, ROWS_OF_A_PAGE)})" for _ in range(PLACES)]
        rows = run_query(cursor, "longest_histories", {"places": places, "limit": PLACES})
    return [
        LongHistory(kind, entity, events, recovered)
        for kind, entity, events, recovered, number, shard in rows
        if copies.lies_in(name, number, entity, shard)
    ][:MOST_HISTORIES]
