"""Probes a server before anything relies on it, synchronously: for system checks and commands.

Contract: changes nothing, waits `connect_seconds` at most for the connection, raises psycopg.Error
when there is none.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
import psycopg

from sharding_app.adapters.postgres.connection import Conninfo, application_name
from sharding_app.adapters.postgres.sql import QUERIES

POOLER_PORT = 6432
OLDEST_VERSION = 140000
"""The first version with `idle_session_timeout` and `client_connection_check_interval`."""

Way = Literal["direct", "session pooler", "transaction pooler"]


class ServerFacts(msgspec.Struct, frozen=True):
    """The facts on which the promises depend."""

    version_number: int
    version: str
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    "The server's or role's default; our own sessions raise it where it is too weak."
    max_connections: int
    reserved_connections: int
    autovacuum: bool
    encoding: str
    standby: bool
    connections: int
    "Client connections now, ours among them."


class SchemaFacts(msgspec.Struct, frozen=True):
    """Whether the tables, the fence and the other triggers are in place."""

    missing_tables: tuple[str, ...]
    unfenced_tables: tuple[str, ...]
    lost_triggers: tuple[str, ...] = ()
    "Those that fence nothing, and are missing or off, each with its table."
    filtered_tables: tuple[str, ...] = ()
    "Those of which row-level security leaves rows out, for this role."


def server_facts(conninfo: Conninfo, *, connect_seconds: int = 5) -> ServerFacts:
    with _connected(conninfo, connect_seconds) as connection:
        row = connection.execute(QUERIES["server_facts"]).fetchone()
    if row is None:
        raise psycopg.OperationalError("the server has no answer about itself")
    return ServerFacts(*row)


def schema_facts(conninfo: Conninfo, *, connect_seconds: int = 5) -> SchemaFacts:
    """Look for our tables on the search path, and for a fence and other triggers on each that needs
    them, switched on for every session.
    """
    with _connected(conninfo, connect_seconds) as connection:
        rows = connection.execute(QUERIES["schema_facts"]).fetchall()
    return SchemaFacts(
        missing_tables=tuple(table for table, found, *_ in rows if not found),
        unfenced_tables=tuple(table for table, found, fenced, *_ in rows if found and not fenced),
        lost_triggers=lost_triggers(rows),
        filtered_tables=tuple(f"sharding_{table}" for table, *_, filtered in rows if filtered),
    )


def lost_triggers(rows: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """Return what rows of `schema_facts` say of triggers that fence nothing."""
    return tuple(f"{each} on sharding_{table}" for table, found, _, lost, _ in rows if found for each in lost)


def way_to(conninfo: Conninfo, *, connect_seconds: int = 5) -> Way:
    """Tell whether a pooler stands between: the lifeline needs sessions of its own, end to end.

    A pooler gives its clients invented cancel keys. One that lends connections for single
    transactions gives one client the server process that another has just used.
    """
    try:
        with _connected(conninfo, connect_seconds) as one, _connected(conninfo, connect_seconds) as other:
            first = _pid(one)
            invented = first != one.pgconn.backend_pid
            with other.transaction():
                second = _pid(other)
                third = _pid(one)
    except psycopg.OperationalError as error:
        if "unsupported startup parameter" in str(error):
            return "transaction pooler"
        raise
    if second == first or third != first:
        return "transaction pooler"
    return "session pooler" if invented else "direct"


def looks_pooled(conninfo: Conninfo) -> bool:
    """Guess from the port alone, without a connection."""
    return str(conninfo.get("port", "")) == str(POOLER_PORT)


def _pid(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    if row is None:
        raise psycopg.OperationalError("the server has no answer about itself")
    return int(row[0])


@contextmanager
def _connected(conninfo: Conninfo, connect_seconds: int) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    name = application_name("", "probe")
    params: dict[str, Any] = {**conninfo, "application_name": name, "connect_timeout": connect_seconds}
    with psycopg.connect(**params, autocommit=True) as connection:
        yield connection
