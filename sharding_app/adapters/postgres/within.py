"""The user's transaction in which events are appended: its preparation, and its outcome. And the
standby's part in commits of an operator's command.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from sharding_app.adapters.postgres.connection import is_about_replication
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.records import Backend, Lineage

Connection = psycopg.Connection[tuple[Any, ...]]
_WHO = 3
"""Index of the result of `within.sql` that names the server process."""


def prepare_within(
    connection: Connection, name: str, lock_timeout_ms: int, lineage: Lineage | None = None
) -> Backend:
    """Prepare an open transaction for an append, in one round trip, and return the server process.

    `lineage` is that of the object whose events are appended. Raises JournalUnavailable, also on a
    server of another lineage: it may lack the object's last events, and the next one would leave a
    gap.
    """
    with psycopg.ClientCursor(connection) as cursor:
        params = {"name": name, "lock_timeout": f"{lock_timeout_ms}ms"}
        cursor.execute(QUERIES["within"], params)
        for _ in range(_WHO):
            cursor.nextset()
        row = cursor.fetchone()
    if row is None or row[1] is None:
        raise JournalUnavailable(
            "the server does not show when this session began (pg_stat_activity.backend_start), so that no process could"
            " see its end if the answer to its commit were lost"
        )
    found = Lineage(row[3], row[2])
    if lineage not in (None, found):
        raise JournalUnavailable(f"the server is on {found}, and what is in memory on {lineage}")
    return Backend(row[0], row[1])


class Replication:
    """Whether the wait for a synchronous standby was cancelled, though the server called the commit
    a success.
    """

    cancelled = False


@contextmanager
def watched(connection: Connection, found: Replication) -> Iterator[None]:
    """Note the server's warnings about the commits of this block."""

    def warned(warning: psycopg.errors.Diagnostic) -> None:
        found.cancelled = found.cancelled or is_about_replication(warning)

    connection.add_notice_handler(warned)
    try:
        yield
    finally:
        connection.remove_notice_handler(warned)


def secure(connection: Connection) -> None:
    """Wait until a synchronous standby has all that this connection has committed.

    An administrator may cancel the wait of a commit: the server calls that a success, and warns.
    The commit of a small write covers all that came before it.
    """
    while True:
        found = Replication()
        with watched(connection, found):
            connection.execute(QUERIES["secure"])
        if not found.cancelled:
            return
