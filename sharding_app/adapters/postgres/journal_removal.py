"""Deletes all that one type has stored: events, snapshots, remembered ids. For `sharding_remove_journal` alone.

Contract: refuses while a living node hosts the type; other types go on meanwhile. First the epochs of the type's shards are
raised, so that a process that was frozen all the while writes nothing any more. Each piece is one short transaction that
holds the shards' rows and looks whether one of them has been given a home. A piece is of whole entities, or of the end of
one large entity: a removal that is interrupted leaves no gap.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import psycopg

from sharding_app.adapters.postgres.line import Conninfo, command_parameters
from sharding_app.adapters.postgres.removal import UnknownTypes
from sharding_app.adapters.postgres.sql import QUERIES

ROWS_AT_FIRST = 2_000
ROWS_AT_MOST = 50_000
PIECE_SECONDS = 0.3
"""A piece holds rows that the coordinator may want to change: it is to be over before a wait for them is noticed."""

Connection = psycopg.Connection[tuple[Any, ...]]


class TypeHosted(Exception):
    """Living nodes host the type, or one of its shards has just been given a home: the removal has stopped."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"hosted by {', '.join(names) or 'a node that has just joined'}")
        self.names = tuple(names)


class Removed(msgspec.Struct, frozen=True):
    """How many of each were, or would be, deleted."""

    events: int = 0
    snapshots: int = 0
    remembered: int = 0

    def __add__(self, other: "Removed") -> "Removed":
        return Removed(
            self.events + other.events, self.snapshots + other.snapshots, self.remembered + other.remembered
        )


def count_journal(conninfo: Conninfo, type_name: str) -> Removed:
    """Say how much there is: this counts rows, and takes its time on a large journal. Raises UnknownTypes."""
    with _connected(conninfo) as connection:
        connection.read_only = True
        number = _number(connection, type_name)
        row = _one(connection, "journal_count", {"type_id": number})
    return Removed(*row)


def remove_journal(
    conninfo: Conninfo,
    type_name: str,
    by: str,
    progress: Callable[[Removed], object],
    *,
    rows_at_once: int | None = None,
) -> Removed:
    """Delete it, piece by piece. Raises TypeHosted, UnknownTypes, or psycopg.Error; the timeline notes how far it came.

    The size of a piece follows the time that the last one took, unless it is given.
    """
    with _connected(conninfo) as connection:
        number = _number(connection, type_name)
        _refuse_hosts(connection, type_name)
        connection.execute(QUERIES["journal_fence"], {"type_id": number, "type": type_name, "by": by})
        total, done = Removed(), False
        rows = rows_at_once or ROWS_AT_FIRST
        try:
            while not done:
                began = time.monotonic()
                with connection.transaction():
                    removed, done = _piece(connection, number, type_name, rows)
                total += removed
                progress(total)
                if rows_at_once is None:
                    rows = _next_rows(rows, time.monotonic() - began)
        finally:
            if not connection.closed:
                action = "journal_removed" if done else "journal_partly_removed"
                noted = {"action": action, "type": type_name, "events": total.events, "by": by}
                connection.execute(QUERIES["journal_note"], noted)
    return total


def _piece(connection: Connection, number: int, type_name: str, rows: int) -> tuple[Removed, bool]:
    """Delete one piece; return how much it was, and whether it was the last one."""
    _refuse_hosts(connection, type_name)
    if not _one(connection, "journal_homeless", {"type_id": number})[0]:
        raise TypeHosted([])
    params: dict[str, Any] = {"type_id": number, "rows": rows}
    first, bound = _one(connection, "journal_bound", params)
    if bound is None:
        removed = Removed(*_one(connection, "journal_remove_rest", params))
        return removed, max(removed.snapshots, removed.remembered) < rows
    query = "journal_remove_tail" if bound == first else "journal_remove"
    return Removed(*_one(connection, query, {**params, "bound": bound})), False


def _next_rows(rows: int, seconds: float) -> int:
    """Return the size of the next piece: towards the aim, at most twice or half of the last one."""
    wanted = rows * PIECE_SECONDS / max(seconds, 0.001)
    return round(min(max(wanted, rows / 2, 100), rows * 2, ROWS_AT_MOST))


def _refuse_hosts(connection: Connection, type_name: str) -> None:
    hosts = [
        name for (name,) in connection.execute(QUERIES["remove_alive"], {"types": [type_name]}).fetchall()
    ]
    if hosts:
        raise TypeHosted(hosts)


def _number(connection: Connection, type_name: str) -> int:
    row = connection.execute(QUERIES["journal_type"], {"type": type_name}).fetchone()
    if row is None:
        raise UnknownTypes([type_name])
    return int(row[0])


def _one(connection: Connection, query: str, params: dict[str, Any]) -> tuple[Any, ...]:
    row = connection.execute(QUERIES[query], params).fetchone()
    if row is None:
        raise psycopg.OperationalError("the server did not say what it removed")
    return row


def _connected(conninfo: Conninfo) -> Connection:
    return psycopg.connect(**command_parameters(conninfo, "journal removal"), autocommit=True)
