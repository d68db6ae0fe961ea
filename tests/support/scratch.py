"""A database of the tests' own on the shared server, with the tables that the migrations make."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sharding_app.migrations._sql import load
from tests.support.slack import SLACK

FILES = (
    "0001_tables",
    "0001_fence",
    "0001_messages",
    "0001_sessions",
    "0001_coordinator",
    "0001_leases",
    "0001_locations",
    "0001_resizing",
    "0001_journals",
    "0001_projections",
    "0001_partitions",
)
TABLES = (
    "cluster", "coordinator", "node", "type", "shard", "event", "snapshot", "remembered", "message", "lease", "decision",
    "location", "change", "projection", "position", "filled", "held", "following", "secured", "subject",
    "taken", "journal", "move",
)  # fmt: skip
GONE_SECONDS = 30.0


@contextmanager
def scratch_database(url: str) -> Iterator[dict[str, Any]]:
    """Give the connection parameters of a new database; it is dropped afterwards."""
    params: dict[str, Any] = conninfo_to_dict(url)
    name = f"scratch_{uuid4().hex}"
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'")
    try:
        yield {**params, "dbname": name}
    finally:
        with psycopg.connect(**params, autocommit=True) as admin:
            checkpoint(admin)
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def checkpoint(admin: psycopg.Connection) -> None:
    """Put on the disk what was written, before a database is dropped.

    DROP DATABASE does that itself, in a transaction. On a slow disk it takes a minute, in which no
    projection of the server's other databases can tell that earlier transactions are over.
    """
    with suppress(psycopg.errors.InsufficientPrivilege):  # a server that was given to the tests
        admin.execute("CHECKPOINT")


def make_tables(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as connection:
        for file in FILES:
            connection.execute(load(file).encode())


def empty_tables(params: dict[str, Any]) -> None:
    """Empty all tables; what a test has left connected is ended first, so nothing of it is in the
    way.
    """
    with psycopg.connect(**params, autocommit=True) as connection:
        found = connection.execute(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
        wait_for_ends(connection, [pid for pid, _ in found])
        names = ", ".join(f"sharding_{table}" for table in TABLES)
        connection.execute(f"TRUNCATE {names} RESTART IDENTITY".encode())


def wait_for_ends(connection: psycopg.Connection, pids: list[int]) -> None:
    """Wait until these sessions have ended: a terminated one does so a moment later, and a test
    that counts the sessions would count it. The server's own wait looks each 100 ms only.
    """
    deadline = time.monotonic() + GONE_SECONDS * SLACK
    look = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"
    while pids and connection.execute(look, (pids,)).fetchone() != (0,):
        assert time.monotonic() < deadline, "a terminated session has not ended"
        time.sleep(0.005)
