"""The cluster's database (the alias in `SHARDING["DATABASE"]`), and bounded reads of it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from django.conf import settings
from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext as _

from sharding_app.adapters.postgres import within
from sharding_app.adapters.postgres.connection import bounded_waits
from sharding_app.adapters.postgres.further_journals import whereabouts_of
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.protocol.whereabouts import Whereabouts

READ_SECONDS = 5.0
"""Longest time that the server works on one statement for a page or for the site's metrics."""
CONNECT_SECONDS = 3
"""Longest time that a page waits for a further journal's server to answer at all."""
OF_PERSIST = "the function of in_transaction="
"""What `refuse_broken` calls it."""
FILTERED = "row-level security on sharding_event or sharding_change of {!r} would leave events out for this role: see sharding.E017"
QUERY_CANCELED = "57014"
_BOUNDS = """
    SELECT current_setting('statement_timeout'), current_setting('row_security'),
        set_config('statement_timeout', %s, true), set_config('row_security', coalesce(%s, current_setting('row_security')), true)
"""
_STEADY = """
    SELECT set_config('statement_timeout', %s, true), set_config('idle_in_transaction_session_timeout', '60s', true),
        set_config('row_security', 'off', true),
        set_config('DateStyle', 'ISO', true), set_config('extra_float_digits', '1', true),
        CASE WHEN current_setting('transaction_timeout', true) <> '0'
            THEN set_config('transaction_timeout', '0', true) END
"""


class ReadTooLong(DatabaseError):
    """A read that the server gave up after READ_SECONDS."""

    def __init__(self) -> None:
        super().__init__(
            _(
                "PostgreSQL did not finish a read for this page in {:g} s, and was told to give it up. Ask for less, or look "
                "again when the server has less to do."
            ).format(READ_SECONDS)
        )


class UnknownJournal(DatabaseError):
    """Rows name a journal that this process's settings do not."""

    def __init__(self, name: str) -> None:
        super().__init__(
            _(
                "DATABASES has no {!r}, in which shards of the cluster lie: give this process the settings of the nodes."
            ).format(name)
        )


def secure(connection: BaseDatabaseWrapper) -> None:
    """Wait until a synchronous standby has all that was committed before. Not in a transaction."""
    connection.ensure_connection()
    with connection.wrap_database_errors:
        within.secure(connection.connection)


def secure_here(alias: str) -> None:
    """Do the same on this thread's connection, behind a commit of it. Within a transaction of the
    caller nothing is committed yet: the caller waits, if it wants to.
    """
    connection = connections[alias]
    if not connection.in_atomic_block:
        secure(connection)


def refuse_broken(used: BaseDatabaseWrapper, who: str) -> None:
    """Raise an error if a function of the user's has broken its transaction, and has returned all
    the same: Django rolls it back at its end without a word.

    `who` names the function. A lost connection is left to the next statement.
    """
    raw: Any = used.connection
    if raw is None or getattr(raw, "closed", False):
        return
    status = getattr(getattr(raw, "info", None), "transaction_status", None)
    if used.needs_rollback or getattr(status, "name", "") == "INERROR":
        raise transaction.TransactionManagementError(
            f"{who} has ended its transaction, perhaps by an error that it has caught: put the statement that may fail"
            " into transaction.atomic(), inside the try"
        )


def journal_alias() -> str:
    """Return the alias of the cluster's database."""
    alias = getattr(settings, "SHARDING", {}).get("DATABASE", "default")
    return str(alias)


def further_journals() -> list[str]:
    """Return the aliases of the databases beside the cluster's own that share the journal."""
    named = getattr(settings, "SHARDING", {}).get("JOURNALS") or {}
    return [str(alias) for alias in named if alias != journal_alias()]


def commits(alias: str) -> bool:
    """Whether Django commits there behind an `atomic()`: not with the setting AUTOCOMMIT off."""
    return bool(connections[alias].settings_dict.get("AUTOCOMMIT", True))


def no_commits(alias: str) -> str:
    return (
        f"DATABASES[{alias!r}] has AUTOCOMMIT off: Django then ends no transaction of the app with a commit, so what was"
        " acknowledged would be lost."
    )


def alias_of(journal: str) -> str:
    """Return the alias of a journal; empty: the cluster's own. Raises UnknownJournal."""
    if not journal:
        return journal_alias()
    if journal not in connections:
        raise UnknownJournal(journal)
    return journal


@contextmanager
def soon_connected(alias: str) -> Iterator[BaseDatabaseWrapper]:
    """Give a connection to a further journal that fails within CONNECT_SECONDS if there is no
    server, and within that beyond READ_SECONDS if it falls silent. It is closed afterwards unless
    the project keeps connections.
    """
    connection = connections[alias]
    nested = connection.in_atomic_block
    if connection.connection is None:
        _limit_connecting(connection)
    raw: Any = None
    try:
        connection.ensure_connection()
        raw = connection.connection
        with bounded_waits(raw, READ_SECONDS + CONNECT_SECONDS):
            yield connection
    finally:
        is_kept = connection.settings_dict["CONN_MAX_AGE"] and raw is not None and not raw.closed
        if not (nested or connection.in_atomic_block or is_kept):
            connection.close()


def second_to(connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """Return a second connection to the same database, which the caller closes. It comes from no
    pool: this thread has one of the pool's, and would wait for itself where there is no other.
    """
    second: BaseDatabaseWrapper = connection.copy()
    second.settings_dict["OPTIONS"].pop("pool", None)
    return second


def _limit_connecting(connection: BaseDatabaseWrapper) -> None:
    """Have this thread's connections to that database give up soon, unless the project says
    when.
    """
    params = connection.get_connection_params
    if "connect_timeout" not in params():

        def limited() -> dict[str, Any]:
            return {**params(), "connect_timeout": CONNECT_SECONDS}

        connection.get_connection_params = limited  # type: ignore[method-assign]


def holds_our_tables(connection: BaseDatabaseWrapper) -> bool:
    """Whether our tables belong on this connection: PostgreSQL, and the alias of a journal, or the
    direct way to the cluster's database. A project whose other alias has a pooler migrates there.
    """
    direct = getattr(settings, "SHARDING", {}).get("LIFELINE_DATABASE") or journal_alias()
    aliases = (journal_alias(), direct, *further_journals())
    return connection.vendor == "postgresql" and connection.alias in aliases


def without_transaction(view: Callable[..., Any]) -> Callable[..., Any]:
    """Keep a view out of transactions of the request (ATOMIC_REQUESTS), on any database.

    A probe answers without a database, and a coroutine can have no such transaction. The line of
    the history that comes before an operator's action stays, whatever happens to the request. The
    page says that an action is done behind its commit. A reset of rows elsewhere has two commits.
    """
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


@contextmanager
def answering(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Connect, and give the server up where it says nothing: a frozen one keeps to no limit of its
    own. Raises OperationalError, within CONNECT_SECONDS for a connection, and within that beyond
    READ_SECONDS for a statement of the block.
    """
    with connecting_soon(connection):
        connection.ensure_connection()
        raw = connection.connection
        is_bounded = "wait" in vars(raw)  # by a block around this one
        with nullcontext() if is_bounded else bounded_waits(raw, READ_SECONDS + CONNECT_SECONDS):
            yield


@contextmanager
def connecting_soon(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Have connections of the block fail within CONNECT_SECONDS. Django makes another one behind a
    transaction that has lost its own. Those that come after the block are the project's.
    """
    former = vars(connection).get("get_connection_params")
    if not connection.settings_dict["OPTIONS"].get("pool"):  # a pool has a limit of its own
        _limit_connecting(connection)
    try:
        yield
    finally:
        if former is None:
            vars(connection).pop("get_connection_params", None)
        else:
            connection.get_connection_params = former  # type: ignore[method-assign]


@contextmanager
def bounded_reads(alias: str | None = None, *, has_other_rows: bool = False) -> Iterator[None]:
    """Let the server end each statement inside after READ_SECONDS, even if this process is gone,
    and give it up where it says nothing (`answering`). Have it refuse a read from which row-level
    security would leave rows out: they would pass for rows that are not there.

    Raises ReadTooLong if it ended one. The limits are local to a transaction, so they hold behind a
    transaction pooler too, and leave nothing on the connection. `has_other_rows`: the block reads
    rows of the project too, which may have policies of their own, so it gets those that they leave.
    """
    alias = alias or journal_alias()
    connection = connections[alias]
    nested = connection.in_atomic_block
    try:
        with answering(connection), transaction.atomic(using=alias):
            before = _set_bounds(connection, f"{READ_SECONDS * 1000:.0f}", None if has_other_rows else "off")
            yield
            if nested:  # the end of a savepoint does not end the settings
                _set_bounds(connection, *before)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", None) != QUERY_CANCELED:
            raise
        raise ReadTooLong from error


@contextmanager
def steady_reads(alias: str) -> Iterator[CursorWrapper]:
    """Give a cursor of a transaction that can write nothing, and whose statements end after
    READ_SECONDS.

    What a DBA has set on the role does not count: limits of milliseconds, dates as Django does not
    read them, numbers without most of their digits. A read from which row-level security would
    leave rows out fails. The connection is closed behind it, since a role may also end sessions
    that do nothing for a moment.
    """
    connection = connections[alias]
    nested = connection.in_atomic_block
    try:
        with answering(connection), transaction.atomic(using=alias), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(_STEADY, [f"{READ_SECONDS * 1000:.0f}"])
            yield cursor
    finally:
        if not nested:
            connection.close()


def run_query(
    cursor: CursorWrapper, name: str, params: Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Run a statement of `adapters/postgres/queries` through Django's connection."""
    cursor.execute(QUERIES[name].decode(), params)
    found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def whereabouts(cursor: CursorWrapper, type_id: int) -> Whereabouts:
    """Read in which journals the entities of a type lie, from the cluster's database."""
    for row in run_query(cursor, "whereabouts", {"type_id": type_id}):
        return whereabouts_of(row)
    return Whereabouts(None, {})


def _set_bounds(
    connection: BaseDatabaseWrapper, milliseconds: str, row_security: str | None
) -> tuple[str, str]:
    """Set a transaction's limits; return the former ones. None: that one stays."""
    with connection.cursor() as cursor:
        cursor.execute(_BOUNDS, [milliseconds, row_security])
        ((timeout, security, *_),) = cursor.fetchall()
    return timeout, security
