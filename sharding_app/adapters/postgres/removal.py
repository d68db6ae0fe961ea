"""Removes what the cluster keeps about itself, never a journal: for `sharding_remove_data`, so it is synchronous.

Contract: refuses while a node is alive; of types that are named, while one is that hosts any of them. Homes are forgotten, but their rows stay with a higher epoch, and the term is
raised if no node is alive: a process that was frozen all the while is fenced for ever, also when the shards are given out again. The types
may be configured anew afterwards.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from sharding_app.adapters.postgres.line import Conninfo, command_parameters
from sharding_app.adapters.postgres.sql import QUERIES

ServerError = psycopg.Error
"""What these functions raise when the server cannot be reached or refuses."""


class NodesAlive(Exception):
    """These nodes hold their lifeline: nothing was removed."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"still alive: {', '.join(names)}")
        self.names = tuple(names)


class UnknownTypes(Exception):
    """The cluster knows no types of these names: nothing was removed."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(f"unknown: {', '.join(names)}")
        self.names = tuple(names)


class Removal(msgspec.Struct, frozen=True):
    """How many of each were, or would be, removed."""

    homes: int
    remembered: int
    leases: int
    nodes: int
    locations: int = 0


def remove_data(
    conninfo: Conninfo, types: Sequence[str] | None = None, *, by: str = "", dry_run: bool = False
) -> Removal:
    """Remove homes, locations and remembered ids of these types; of all types, with leases and node rows too, when none is named.

    Raises NodesAlive, UnknownTypes, or psycopg.Error.
    """
    params: dict[str, Any] = {"types": None if types is None else list(types), "by": by}
    with (
        psycopg.connect(**command_parameters(conninfo, "removal")) as connection,
        connection.transaction(force_rollback=dry_run),
    ):
        unknown = [name for (name,) in _run(connection, "remove_unknown", params).fetchall()]
        if unknown:
            raise UnknownTypes(unknown)
        if not dry_run:
            _run(connection, "remove_lock", None)
        alive = [name for (name,) in _run(connection, "remove_alive", params).fetchall()]
        if alive and not dry_run:
            raise NodesAlive(alive)
        if not dry_run and not _run(connection, "remove_alive", {"types": None}).fetchall():
            # Where others live on, their coordinator has no part in these types: it meets the higher epochs.
            _run(connection, "remove_term", None)
        row = _run(connection, "remove_count" if dry_run else "remove_all", params).fetchone()
    if row is None:
        raise psycopg.OperationalError("the server did not say what it removed")
    return Removal(*row)


def _run(
    connection: psycopg.Connection[tuple[Any, ...]], query: str, params: dict[str, Any] | None
) -> psycopg.Cursor[tuple[Any, ...]]:
    return connection.execute(QUERIES[query], params)
