"""Deletes all that one type has stored: events, snapshots, remembered ids. For `sharding_remove_journal` alone.

Contract: refuses while a node is alive, and looks again before each piece. A piece is of whole entities, in one
transaction, so that whoever interrupts it leaves no entity without its beginning or its end. First the epochs of the type's shards and
the term are raised: a process that was frozen all the while writes nothing any more.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import psycopg

from sharding_app.adapters.postgres.line import Conninfo, command_parameters
from sharding_app.adapters.postgres.removal import NodesAlive, UnknownTypes
from sharding_app.adapters.postgres.sql import QUERIES

ROWS_AT_ONCE = 20_000


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
        number = _number(connection, type_name)
        row = _one(connection, "journal_count", {"type_id": number})
    return Removed(*row)


def remove_journal(
    conninfo: Conninfo,
    type_name: str,
    progress: Callable[[Removed], None],
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Removed:
    """Delete it, piece by piece. Raises NodesAlive, UnknownTypes, or psycopg.Error."""
    with _connected(conninfo) as connection:
        number = _number(connection, type_name)
        with connection.transaction():
            _refuse_nodes(connection)
            connection.execute(QUERIES["remove_term"])
            connection.execute(QUERIES["journal_fence"], {"type_id": number})
        total, more = Removed(), True
        while more:
            with connection.transaction():
                _refuse_nodes(connection)
                params = {"type_id": number, "rows": rows_at_once}
                *counts, more = _one(connection, "journal_remove", params)
            total += Removed(*counts)
            progress(total)
        connection.execute(QUERIES["journal_removed"], {"type": type_name, "events": total.events})
    return total


def _refuse_nodes(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    connection.execute(QUERIES["remove_lock"])
    alive = [name for (name,) in connection.execute(QUERIES["remove_alive"]).fetchall()]
    if alive:
        raise NodesAlive(alive)


def _number(connection: psycopg.Connection[tuple[Any, ...]], type_name: str) -> int:
    row = connection.execute(QUERIES["journal_type"], {"type": type_name}).fetchone()
    if row is None:
        raise UnknownTypes([type_name])
    return int(row[0])


def _one(
    connection: psycopg.Connection[tuple[Any, ...]], query: str, params: dict[str, Any]
) -> tuple[Any, ...]:
    row = connection.execute(QUERIES[query], params).fetchone()
    if row is None:
        raise psycopg.OperationalError("the server did not say what it removed")
    return row


def _connected(conninfo: Conninfo) -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(**command_parameters(conninfo, "journal removal"), autocommit=True)
