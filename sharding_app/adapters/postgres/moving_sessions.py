"""The sessions of a command that moves shards, one in each database, and their transactions.

Contract: a session works as the owner of the tables, whatever settings its role has. No transaction
waits for a lock for long, and none of a command that is frozen lasts for long: nodes work beside
it. A server that waits for rows (`COPY … FROM STDIN`) is ended by no time limit while the kernel of
a frozen command answers it, so none is sent where locks are held that nodes wait for.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import sql

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.further_journals import Connection, Further, UnknownJournals, connect
from sharding_app.adapters.postgres.moving_locks import hold_rows
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.protocol.moving import CLOSED_SECONDS, CannotMove, InUse

IDLE_SECONDS = 60
"""A command that is frozen in a transaction loses it."""
KEEPALIVE_SECONDS = 10
"""A command whose machine is gone loses its sessions soon, whatever they wait for."""
LOCK_SECONDS = 0.2
PAUSE_SECONDS = 0.3
TRIES = 60

T = TypeVar("T")


@contextmanager
def session(name: str, conninfo: Conninfo, further: Further) -> Iterator[Connection]:
    """Give a connection to a journal, as the owner of its tables. Raises JournalDown,
    CannotMove.
    """
    if name and name not in further:
        raise UnknownJournals([name])
    opened = connect(name, further, "moving") if name else None
    with opened or open_session(conninfo, "moving") as connection:
        found = connection.execute(QUERIES["partition_state"]).fetchone()
        if found is None:
            raise CannotMove(
                f"There is no table sharding_event in {name or 'DATABASE'}: run manage.py migrate."
            )
        *_, schema, owner, owns, may_be_owner, may_create = found
        if not (owns or may_be_owner) or not may_create:
            raise CannotMove(
                f"sharding_event belongs to {owner}, which has to be allowed to make tables in {schema}: run this command as that"
                " role."
            )
        connection.execute(
            "SELECT set_config('search_path', quote_ident(%s::text) || ', pg_temp', false)", [schema]
        )
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(owner)))
        if connection.execute(
            "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
        ).fetchone() != (True,):
            raise CannotMove(f"{owner} has to be allowed to make temporary tables in {name or 'DATABASE'}.")
        connection.execute(_SETTINGS, [IDLE_SECONDS * 1000] * 2 + [KEEPALIVE_SECONDS] * 2)
        yield connection


@contextmanager
def rows_session(
    name: str, conninfo: Conninfo, further: Further, type_id: int, type_name: str, names: Callable[[str], str]
) -> Iterator[Connection]:
    """Give a connection to a journal whose rows of a type no other command moves as long as it
    lasts. Raises JournalDown, CannotMove.

    A command whose session in the cluster's own database has ended may still be at work here.
    """
    with session(name, conninfo, further) as connection:
        if not hold_rows(connection, type_id):
            raise CannotMove(
                f"A session of another sharding_move_journal of {type_name} is still at work in {names(name)}: end that process."
            )
        yield connection


_SETTINGS = (
    "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, YMD', false), set_config('bytea_output', 'hex', false),"
    " set_config('idle_in_transaction_session_timeout', %s::text, false), set_config('tcp_user_timeout', %s::text, false),"
    " set_config('tcp_keepalives_idle', %s::text, false), set_config('tcp_keepalives_interval', %s::text, false)"
)
"""These hold against the settings of the role, as do those of `open_session`: no time limit ends a
long copy. A command that is frozen loses its locks, also where the server waits for it in the
middle of an answer. Both databases write the same row as the same text.
"""


def briefly(connection: Connection, work: Callable[[], T], tries: int = TRIES) -> T:
    """Do it in one transaction that waits a moment at most for each lock, as often as it takes."""
    for tried in range(1, tries + 1):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{round(LOCK_SECONDS * 1000)}ms'")
                for setting in ("idle_in_transaction_session_timeout", "tcp_user_timeout"):
                    connection.execute(f"SET LOCAL {setting} = '{round(CLOSED_SECONDS)}s'")
                return work()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if tried == tries:
                raise InUse(
                    f"A table was in use at each of {tries} tries ({error}). Run the command again when that has ended: a dump or an"
                    " open transaction, mostly."
                ) from error
            time.sleep(PAUSE_SECONDS)
    raise AssertionError("the last try raises")
