"""The database of a run: its kind of server, and the removal of the benchmarks' rows.

All of it happens on one thread with a Django connection of its own: Django allows none on a thread
whose loop runs. A run holds a lock there, so that no two clean up each other's rows.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from zlib import crc32

from django.db import connections

from sharding_app.bench.isolation import NODE_PREFIX, PREFIX
from sharding_app.protocol.allocation.workers import WORKERS

T = TypeVar("T")

LOCK = crc32(b"sharding_bench")
SERVER_17 = 170_000
FACTS = ("fsync", "full_page_writes", "synchronous_commit", "server_version")
PIECE = 20_000
"""Rows that one statement removes."""
LARGE = ("sharding_event", "sharding_snapshot", "sharding_remembered")
"""Tables that are emptied in pieces."""
REMOVAL = """
DELETE FROM {table} WHERE type_id = %s AND ctid = ANY (ARRAY(
    SELECT ctid FROM {table} WHERE type_id = %s LIMIT {rows}))
"""
"""Where the table is partitioned, rows of other types have the same places."""
CLEANING = (
    "DELETE FROM sharding_position WHERE projection_id IN (SELECT id FROM sharding_projection WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_filled WHERE projection_id IN (SELECT id FROM sharding_projection WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_held WHERE projection_id IN (SELECT id FROM sharding_projection WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_following WHERE projection_id IN (SELECT id FROM sharding_projection WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_projection WHERE name LIKE %(types)s",
    "DELETE FROM sharding_change WHERE type_id IN (SELECT id FROM sharding_type WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_shard WHERE type_id IN (SELECT id FROM sharding_type WHERE name LIKE %(workers)s)",
    "DELETE FROM sharding_type WHERE name LIKE %(workers)s",
    "DELETE FROM sharding_message WHERE type_id IN (SELECT id FROM sharding_type WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_shard WHERE type_id IN (SELECT id FROM sharding_type WHERE name LIKE %(types)s)",
    "DELETE FROM sharding_type WHERE name LIKE %(types)s",
    "DELETE FROM sharding_node WHERE incarnation LIKE %(nodes)s",
    "DELETE FROM sharding_decision"
    " WHERE subject LIKE %(types)s OR subject LIKE %(nodes)s OR subject LIKE %(workers)s",
)
WAITING = """
SELECT EXISTS (
    SELECT FROM sharding_message m JOIN sharding_type t ON t.id = m.type_id
    WHERE m.id >= %s AND m.id < %s AND t.name = %s)
"""


class Busy(Exception):
    """Another benchmark runs on this database."""


class Database:
    """The database of a run. Its methods are for its own thread: `run` and `arun` lead there."""

    def __init__(self, alias: str, journals: Sequence[str] = ()) -> None:
        """`journals`: the aliases of further databases that share the journal."""
        self.alias = alias
        self._aliases = (alias, *journals)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sharding-bench")

    def run(self, work: Callable[..., T], *args: Any) -> T:
        """Run `work` on the database's thread, and wait."""
        return self._thread.submit(work, *args).result()

    async def arun(self, work: Callable[..., T], *args: Any) -> T:
        """Do the same on an event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    @contextmanager
    def reserved(self, *, keep: bool = False) -> Iterator[None]:
        """Keep other benchmarks away, and remove the rows of this one at the end, unless they are
        kept until the next run. Raises Busy.
        """
        try:
            if not self.run(self.value, "SELECT pg_try_advisory_lock(%s)", LOCK):
                raise Busy("another sharding_bench runs on this database")
            self.run(self.clean)
            try:
                yield
            finally:
                if not keep:
                    self.run(self.clean)
        finally:
            self.run(self._close)  # and with it goes the lock
            self._thread.shutdown()

    def _close(self) -> None:
        for alias in self._aliases:
            connections[alias].close()

    def clean(self) -> None:
        """Remove every row of the benchmarks' types and nodes."""
        wanted = {
            "types": f"{PREFIX}%",
            "nodes": f"{NODE_PREFIX}%",
            "workers": f"{WORKERS}projection:{PREFIX}%",
        }
        for alias in self._aliases:
            with connections[alias].cursor() as cursor:
                cursor.execute("SELECT id FROM sharding_type WHERE name LIKE %s", [wanted["types"]])
                for (number,) in cursor.fetchall():
                    for table in LARGE:
                        removal = REMOVAL.format(table=table, rows=PIECE)
                        cursor.execute(removal, [number, number])
                        while cursor.rowcount:
                            cursor.execute(removal, [number, number])
                for statement in CLEANING:
                    cursor.execute(statement, wanted)

    def facts(self) -> dict[str, str]:
        """Return the settings that make the figures of two servers differ most."""
        return {name: str(self.value(f"SHOW {name}")) for name in FACTS}

    def others(self) -> list[str]:
        """Return the names of nodes that are not ours."""
        rows = self.rows("SELECT name FROM sharding_node WHERE incarnation NOT LIKE %s", f"{NODE_PREFIX}%")
        return [str(name) for (name,) in rows]

    def commits(self) -> int:
        """Return how many transactions the databases have ended so far."""
        query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        return sum(int(number) for (number,) in self._everywhere(query))

    def checkpoints(self) -> int:
        """Return how many checkpoints this server has begun so far. PostgreSQL 17 counts them in
        their own view.
        """
        if self.value("SELECT current_setting('server_version_num')::integer") >= SERVER_17:
            return int(self.value("SELECT num_timed + num_requested FROM pg_stat_checkpointer"))
        return int(self.value("SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"))

    def journal_bytes(self) -> int:
        """Return the size of the journal with its indexes, and of all partitions if it has any."""
        sizes = self._everywhere(
            "SELECT pg_total_relation_size('sharding_event') + coalesce(sum(pg_total_relation_size(relid)), 0)"
            " FROM pg_partition_tree('sharding_event')"
        )
        return sum(int(size) for (size,) in sizes)

    def messages(self, type_name: str, prefix: str = "") -> bool:
        """Tell whether messages or timers of a type wait whose ids begin like that."""
        return any(waits for (waits,) in self._everywhere(WAITING, prefix, f"{prefix}\x7f", type_name))

    def execute(self, statement: str, *params: str | int) -> int:
        """Run a statement, and return how many rows it changed."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement, params)
            return int(cursor.rowcount)

    def value(self, query: str, *params: str | int) -> Any:
        return self.rows(query, *params)[0][0]

    def rows(self, query: str, *params: str | int) -> list[tuple[Any, ...]]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(query, params)
            return list(cursor.fetchall())

    def _everywhere(self, query: str, *params: str | int) -> list[tuple[Any, ...]]:
        """Return the rows of a query in the databases of all journals."""
        found: list[tuple[Any, ...]] = []
        for alias in self._aliases:
            with connections[alias].cursor() as cursor:
                cursor.execute(query, params)
                found += cursor.fetchall()
        return found
