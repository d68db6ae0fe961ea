"""A line to the server: one psycopg connection that is opened at its next use after a loss.

Contract: one statement at a time, others wait for their turn. Each has a deadline of our own
besides the server's: when it passes, the socket is cut, which ends the wait at once even when the
server or the network is frozen. A connection is dropped if it is not idle after a failure, or if
its server says that it is of no use: our tables are not found, or nothing may be written. One that
the server has ended while it was idle is replaced before anything is sent on it. No statement is
ever sent twice by itself.

All settings that our statements rely on are set when a connection is opened, whatever the settings
of the role, the database or the server. A `pooled` line may lead through a transaction pooler: it
has no settings of its own, leaves nothing behind, and knows of no server process. A commit whose
wait for a synchronous standby was cancelled is a failure here, though the server calls it a success
(`NotReplicated`).

No statement runs on a connection before it is prepared, also when the line is closed meanwhile. The
preparation ends former statements in a transaction. An append in the middle of it would be reported
as done, and undone with it.
"""

import asyncio
import secrets
import select
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, cast

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from sharding_app.adapters.postgres.failed_database import NamedConnection
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.records import Backend, Lineage

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Conninfo = Mapping[str, Any]

KEEPALIVES = {"keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_NOTICED = {
    "TCP_KEEPIDLE": KEEPALIVES["keepalives_idle"], "TCP_KEEPINTVL": KEEPALIVES["keepalives_interval"],
    "TCP_KEEPCNT": KEEPALIVES["keepalives_count"], "TCP_USER_TIMEOUT": 11_000,
}  # fmt: skip
"""The same as options of a socket. The server's machine has to acknowledge sent bytes within the
time after which keepalives give it up."""
_NAME_LIMIT = 63
_LIMIT = "statement_seconds"
"""A parameter of ours beside those of libpq, which knows of no longest time of a statement."""
_REPLICATION_WAIT = "SyncRepWaitForLSN"
"""The function of the server that warns of a cancelled wait. Its name is in no language, unlike the
warning's text."""
_CONNECTION_FAILED = (psycopg.OperationalError, OSError)
BACK_OFF_SECONDS = 0.05
BACK_OFF_MAX_SECONDS = 1.0
_READINGS = 3
_SPARE_SECONDS = 0.5
"""Time that the server's own timeout has before our deadline cuts the line."""
RELIED_UPON = {
    "idle_session_timeout": "0",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "DateStyle": "ISO",
    "array_nulls": "on",
    "row_security": "off",
    "jit": "off",
}
"""Sent with the connection request, which overrides settings of a role or database. `rely.sql` sets
the others of a line. The server takes our statements for expensive ones where it knows little of a
table. It would compile them for a second each time they run."""
_UNUSABLE_CLASSES = {"3D", "3F", "42"}
"""No such database or schema; no such table or function, or no right to it. A setting that was
wrong for a moment lasts as long as the connection. If the error has another reason, a new
connection costs little."""
_UNUSABLE = {"0A000", "25006", "26000"}
"""A plan of a table that has changed since, a server that is a standby now, a statement that was
forgotten."""


class NotReplicated(psycopg.OperationalError):
    """The commit is in the server's log, but the server did not wait for its synchronous standby.

    An administrator has cancelled that wait. A failover may still lose the commit: it is in doubt.
    """

    def __init__(self) -> None:
        super().__init__("the wait for the synchronous standby was cancelled: it may not have the commit")


def is_about_replication(warning: psycopg.errors.Diagnostic) -> bool:
    """Tell whether a warning says that a commit was not waited for."""
    return warning.source_function == _REPLICATION_WAIT


def application_name(owner: str, purpose: str) -> str:
    """Return a connection's name in the server's list, by which a dead node's connections are
    found.
    """
    return f"sharding/{owner}/{purpose}"[:_NAME_LIMIT]


def session_options(given: str, settings: Mapping[str, str]) -> str:
    """Return the `options` of a connection: the user's, and our settings after them."""
    ours = " ".join(f"-c {name}={_escaped(value)}" for name, value in settings.items())
    return f"{given} {ours}".strip()


def hurried(conninfo: Conninfo, seconds: float, connect_seconds: int) -> dict[str, Any]:
    """Return parameters for `open_session` on behalf of a page: the server works on no statement
    for longer, and is given up if it falls silent.
    """
    return {"connect_timeout": connect_seconds, **conninfo, _LIMIT: seconds}


def next_server_first(conninfo: Conninfo) -> dict[str, Any]:
    """Return parameters that try the first of several servers last."""
    lists = {each: str(conninfo.get(each) or "").split(",") for each in ("host", "hostaddr", "port")}
    return {**conninfo, **{name: ",".join([*rest, first]) for name, (first, *rest) in lists.items() if rest}}


def _is_former(found: Lineage | None, wanted: Lineage) -> bool:
    """Tell whether that server has been replaced. One that is ahead has not: it is about to be
    used.
    """
    return found is not None and found.system == wanted.system and found.timeline < wanted.timeline


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def open_session(conninfo: Conninfo, purpose: str) -> NamedConnection:
    """Open a session of an operator's command. Its commits are durable, and what its statements
    rely upon holds, against settings of the role. Raises psycopg.OperationalError.
    """
    given = dict(conninfo)
    limit: float | None = given.pop(_LIMIT, None)
    session = NamedConnection.connect(**_session_parameters(given, purpose, limit), autocommit=True)
    try:
        if limit is not None:
            _bound_waits(session, limit + float(given["connect_timeout"]))
        session.execute(QUERIES["durable"])
    except BaseException:
        session.close()
        raise
    return session


def _session_parameters(conninfo: Conninfo, purpose: str, limit: float | None) -> dict[str, Any]:
    """Return the parameters for an operator's command: it waits for no lock for long, but fails
    with a message. A statement over a whole journal may take hours, unless a page waits for it.
    """
    of_statements = "0" if limit is None else f"{limit * 1000:.0f}ms"
    limits = {"statement_timeout": of_statements, "idle_in_transaction_session_timeout": "0"}
    settings = {**RELIED_UPON, **limits, "lock_timeout": "2s"}
    options = session_options(str(conninfo.get("options") or ""), settings)
    named = {"application_name": application_name("", purpose), "options": options}
    return {**KEEPALIVES, **conninfo, **named}


class Line:
    def __init__(
        self,
        conninfo: Conninfo,
        *,
        purpose: str,
        owner: str = "",
        connect_seconds: float = 5.0,
        answer_seconds: float = 5.0,
        settings: Mapping[str, str] | None = None,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
        pooled: bool = False,
        ends_former: bool = False,
        backs_off: bool = True,
        keeps_session: bool = False,
    ) -> None:
        """`ends_former`: end the statement of an abandoned connection before the next connection is
        used.

        The server does not notice by itself: a commit that waits for a standby would keep its
        server process until that is back.

        `keeps_session`: the caller holds locks of the session. If the session has ended, work fails
        rather than run in another one.
        """
        self.backend: Backend | None = None
        "The server process of the present or of the last connection."
        self.lineage: Lineage | None = None
        "The lineage of the server at the other end; sessions end where it changes."
        self.wanted: Lineage | None = None
        self._ends_former = ends_former
        self._keeps_session = keeps_session
        self._former: Backend | None = None
        "The server process of a connection that was given up in the middle of a statement."
        self._unreplicated = False
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._prepare = prepare
        self._connection: Connection | None = None
        self._opening: Connection | None = None
        "A connection that is being prepared: nothing else may use it."
        self._turn = asyncio.Lock()
        self._others = asyncio.Lock()
        """Held by the one piece of other work that waits for the line; the rest waits for this
        lock.
        """
        timeout = f"{max(1, round(answer_seconds * 1000))}ms"
        options = {
            "statement_timeout": timeout,
            "idle_in_transaction_session_timeout": timeout,
            **RELIED_UPON,
            **(settings or {}),
        }
        self._conninfo: dict[str, Any] = {
            "target_session_attrs": "read-write",
            **KEEPALIVES,
            **conninfo,
            "application_name": application_name(owner, purpose),
        }
        self._backs_off = backs_off
        self._failures = 0
        "Failed attempts to connect, in a row."
        self._not_before = 0.0
        self._refused = ""
        self._schema: str | None = None
        "The schema in which our tables were found."
        self._pooled = pooled
        if pooled:  # nothing may be left behind on a session that others use next
            self._conninfo["prepare_threshold"] = None
        else:
            self._conninfo["options"] = session_options(str(conninfo.get("options") or ""), options)

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    @property
    def is_busy(self) -> bool:
        """Work is under way on the connection."""
        return self._turn.locked()

    async def open(self) -> Backend:
        """Connect unless connected, and return the server process at the other end."""
        turn = await self._our_turn()
        try:
            await self._opened()
            if self.backend is None:
                raise psycopg.OperationalError("a pooler's server process is not ours to know")
            return self.backend
        finally:
            turn.release()

    def live_in(self, lineage: Lineage) -> None:
        """Use only a server of that lineage from now on. Work that was requested before is not done
        any more, or counts as lost: its server may have been left, and its answer on its way.
        """
        self.wanted = lineage

    async def run(self, work: Callable[[Connection], Awaitable[T]], *, first: bool = False) -> T:
        """Do some work on the connection within the deadline. Raises one of `failures.LOST`.

        `first`: before other work that waits, except for one piece of it, or two after a `close`.
        """
        wanted = self.wanted
        turn = await self._our_turn(first=first)
        try:
            connection = await self._opened()
            if wanted is not None and wanted != self.lineage:
                self._forget(connection)
                await _hang_up(connection)
                if _is_former(self.lineage, wanted):
                    self._conninfo = next_server_first(self._conninfo)
                raise psycopg.OperationalError(
                    f"the server is on {self.lineage}, and what is in memory on {wanted}"
                )
            self._still_in(wanted)
            result = await self._within(connection, work(connection))
            self._still_in(wanted)
            return result
        finally:
            turn.release()

    async def rows(
        self, query: str, params: Mapping[str, Any] | None = None, *, first: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run one of the named statements and return its rows."""

        async def work(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(QUERIES[query], params, binary=True)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self.run(work, first=first)

    async def rows_as_login(
        self, query: str, params: Mapping[str, Any], *, first: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run a statement about server processes as the role that logged in, where another one is
        assumed.
        """

        return await self.run(lambda connection: _as_login(connection, query, params), first=first)

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` repeatedly while there is something to read, until the returned function is
        called.

        Nothing may run on the connection during a watch: it would read from the same socket.
        """
        connection = self._connection
        if connection is None or connection.closed:
            return _nothing
        loop, socket = asyncio.get_running_loop(), connection.fileno()
        loop.add_reader(socket, heard)

        def ends() -> None:
            loop.remove_reader(socket)

        return ends

    async def close(self) -> None:
        """Hang up at once. A statement under way fails, and the next one does not wait for it."""
        connection = self._connection or self._opening
        self._connection = self._opening = None
        if self._turn.locked():
            self._turn, self._others = asyncio.Lock(), asyncio.Lock()
            if connection is not None:
                cut(connection)  # the task that uses it sees its end, and drops it
        elif connection is not None:
            await _hang_up(connection)

    async def _our_turn(self, *, first: bool = False) -> asyncio.Lock:
        """Wait for the line; return the lock that the caller releases. A task that waited for one
        that was closed meanwhile waits anew: its lock guards nothing any more, and another task may
        use the next connection by now.
        """
        if not first:
            async with self._others:
                return await self._our_turn(first=True)
        while True:
            turn = self._turn
            await turn.acquire()
            if turn is self._turn:
                return turn
            turn.release()

    async def _opened(self) -> Connection:
        turn, connection = self._turn, self._connection
        if connection is not None and not connection.closed:
            if self._keeps_session or not has_ended(connection):
                return connection
            self._forget(connection)
            await _hang_up(connection)
        if self._failures and asyncio.get_running_loop().time() < self._not_before:
            raise psycopg.OperationalError(f"not tried again yet: {self._refused}")
        try:
            async with asyncio.timeout(self._connect_seconds):
                connection = await psycopg.AsyncConnection.connect(**self._conninfo, autocommit=True)
        except _CONNECTION_FAILED as error:
            if self._backs_off:
                self._back_off(error)
            raise
        self._failures = 0
        try:
            self._still_ours(turn)
            connection.add_notice_handler(self._warned)
            if not self._pooled:
                self._opening = connection
                backend, lineage = await self._within(connection, self._introduce(connection))
                self._still_ours(turn)
                self.backend, self.lineage = backend, lineage
        except BaseException:
            self._forget(connection)
            await _hang_up(connection)
            raise
        self._connection, self._opening = connection, None
        return connection

    def _still_in(self, wanted: Lineage | None) -> None:
        """Raise OperationalError if another lineage is wanted since."""
        if wanted != self.wanted:
            raise psycopg.OperationalError("the database has gone on elsewhere meanwhile")

    def _still_ours(self, turn: asyncio.Lock) -> None:
        """Raise OperationalError if the line was closed since: another task may open it now."""
        if self._turn is not turn:
            raise psycopg.OperationalError("the line was closed while it was opened")

    async def _introduce(self, connection: Connection) -> tuple[Backend, Lineage]:
        cursor = await connection.execute(QUERIES["introduce"])
        cursor.nextset()
        row = await cursor.fetchone()
        if row is None or row[1] is None:
            raise psycopg.OperationalError(
                "the server does not show when this session began (pg_stat_activity.backend_start), so that no process could "
                "see its end: let nodes log in to PostgreSQL itself, as a role that may see its own sessions"
            )
        pid, started, may_end, login, timeline, system = row
        if not may_end:
            raise psycopg.OperationalError(
                f"role {login} may not end its own sessions, without which no append that is in doubt and no dead node "
                f"could be settled: GRANT EXECUTE ON FUNCTION pg_terminate_backend(integer, bigint) TO {login}"
            )
        former, self._former = self._former, None
        if self._ends_former and former is not None:
            params = {"pid": former.pid, "started": former.started}
            with suppress(psycopg.DatabaseError):  # not ours to end: this connection is still good
                await _as_login(connection, "end_backend", params)
        cursor = await connection.execute(QUERIES["rely"], {"schema": self._schema})
        found = await cursor.fetchone()
        self._schema = self._schema if found is None else found[3]
        if self._prepare is not None:
            await self._prepare(connection)
        return Backend(pid=pid, started=started), Lineage(system, timeline)

    async def _within(self, connection: Connection, work: Awaitable[T]) -> T:
        loop, backend = asyncio.get_running_loop(), self.backend
        deadline = self._answer_seconds + _SPARE_SECONDS
        timer = loop.call_later(deadline, cut, connection)
        self._unreplicated = unusable = False
        try:
            result = await work
            if self._unreplicated:
                raise NotReplicated
        except (*_CONNECTION_FAILED, psycopg.Error) as error:
            unusable = _is_unusable(error)
            if loop.time() >= timer.when() and isinstance(error, _CONNECTION_FAILED):
                raise TimeoutError(f"no answer within {deadline:g} s") from error
            raise
        else:
            return result
        finally:
            timer.cancel()
            known = connection is self._connection or connection is self._opening
            if unusable or not known or not is_idle(connection):
                self._former = backend
                self._forget(connection)
                await _hang_up(connection)

    def _warned(self, warning: psycopg.errors.Diagnostic) -> None:
        self._unreplicated = self._unreplicated or is_about_replication(warning)

    def _back_off(self, error: Exception) -> None:
        """Pause until the next attempt: a server that starts, or is full, has enough to do.

        The pause is random, so that the nodes of a cluster do not come all at once. Calls during
        the pause raise the same error again.
        """
        self._refused = " ".join(str(error).split()) or type(error).__name__
        seconds = doubled(BACK_OFF_SECONDS, self._failures, BACK_OFF_MAX_SECONDS)
        self._failures += 1
        self._not_before = asyncio.get_running_loop().time() + seconds * (1 - secrets.randbelow(1000) / 2000)

    def _forget(self, connection: Connection) -> None:
        if self._connection is connection:
            self._connection = None
        if self._opening is connection:
            self._opening = None


async def _as_login(connection: Connection, query: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    async with connection.transaction():
        await connection.execute(QUERIES["act_as_login"])
        cursor = await connection.execute(QUERIES[query], params, binary=True)
        return await cursor.fetchall()


def is_idle(connection: Connection) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


def has_ended(connection: Connection) -> bool:
    """Tell whether the other side has ended an idle connection, without asking it.

    A statement that is sent on such a connection fails, and an append is in doubt.
    """
    pgconn = connection.pgconn
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    try:
        # The first reading may find why it ends, and a later one that it has.
        for _ in range(_READINGS):
            if not poll.poll(0):
                return False
            pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def _is_unusable(error: BaseException) -> bool:
    """Tell whether the connection is at fault, not the statement, so that the next connection may
    do better.
    """
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    return state is not None and (state[:2] in _UNUSABLE_CLASSES or state in _UNUSABLE)


def cut(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Shut the socket down: the waiting task sees its end at once, whatever the other side does.

    It takes no descriptor: a process that has none left would wait without an end.
    """
    with suppress(psycopg.Error, OSError):
        borrowed = socket.socket(fileno=connection.pgconn.socket)
        try:
            borrowed.shutdown(socket.SHUT_RDWR)
        finally:
            borrowed.detach()  # it stays the connection's


def notice_silence(connection: psycopg.Connection[Any]) -> None:
    """Have the kernel end a connection of Django's whose server, or the way to it, has gone without
    a word. It may have to wait for two hours otherwise. Shorter times of the user's own stay.
    """
    with suppress(psycopg.Error, OSError):
        borrowed = socket.socket(fileno=connection.pgconn.socket)
        try:
            if borrowed.family == socket.AF_UNIX:
                return
            borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, ours in _NOTICED.items():
                option = getattr(socket, name, None)  # not on every system
                if option is not None and not (0 < borrowed.getsockopt(socket.IPPROTO_TCP, option) < ours):
                    borrowed.setsockopt(socket.IPPROTO_TCP, option, ours)
        finally:
            borrowed.detach()  # it stays the connection's


@contextmanager
def bounded_waits(connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Cut the connection where a statement of the block is not answered within that time.

    A server that is frozen keeps to no timeout of its own, and its network answers for it. No other
    thread watches over a statement: one that finds no memory to begin with would hold up this one.
    """
    former = vars(connection).get("wait")
    _bound_waits(connection, seconds)
    try:
        yield
    finally:
        if former is None:
            del connection.wait
        else:
            connection.wait = former  # type: ignore[method-assign]


def _bound_waits(connection: psycopg.Connection[Any], seconds: float) -> None:
    wait = connection.wait

    def bounded(gen: PQGen[T], *args: Any, **options: Any) -> T:
        return wait(_within(connection, gen, seconds), *args, **options)

    connection.wait = bounded  # type: ignore[method-assign]


def _within(connection: psycopg.Connection[Any], gen: PQGen[T], seconds: float) -> PQGen[T]:
    """Pass a wait on, which psycopg wakes ten times a second, and cut the connection in the end."""
    ends, was_cut = time.monotonic() + seconds, False
    try:
        wanted = next(gen)
        while True:
            wanted = gen.send((yield wanted))
            if not was_cut and time.monotonic() >= ends:
                was_cut = True
                cut(connection)
    except StopIteration as end:
        return cast(T, end.value)
    except psycopg.OperationalError as error:
        if was_cut:
            raise psycopg.OperationalError(f"no answer within {seconds:g} s") from error
        raise


async def _hang_up(connection: Connection) -> None:
    if not is_idle(connection):
        cut(connection)
    with suppress(psycopg.Error, OSError):
        await connection.close()


def _nothing() -> None:
    """Do nothing: there is no watch to end."""
