"""One virtual Postgres: rows, sessions and time. Requests are transactions; they overlap where
their steps take time.

Like a real server, it does not know whether a client whose connection is silent is dead, frozen or
cut off. It may be restarted, fail over, or be out of reach; a client may die with requests under
way.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.faults import Later, Pace, ServerFaults
from sharding_app.adapters.memory.journal_rows import JournalRows
from sharding_app.adapters.memory.lease_row import LeaseRow
from sharding_app.adapters.memory.locks import Key, Lock, RowLocks
from sharding_app.adapters.memory.message_rows import MessageRows
from sharding_app.adapters.memory.projection_rows import ProjectionRows, Transactions
from sharding_app.adapters.memory.sessions import (
    ConnectionLost,
    ConnectionRefused,
    MayNotEnd,
    ServerError,
    Session,
    Sessions,
    Unanswered,
)
from sharding_app.adapters.memory.standby import Standby
from sharding_app.adapters.memory.steps import Pause, Steps, Told, lock_timeout, statement_timeout
from sharding_app.protocol.records import Server

COORDINATOR_LOCK = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _on_running_loop(delay: float, callback: Callable[[], object]) -> object:
    return asyncio.get_running_loop().call_later(delay, callback)


class MemoryServer:
    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        later: Later = _on_running_loop,
        faults: ServerFaults | None = None,
        pace: Pace | None = None,
        cluster_id: str | None = None,
        began: datetime | None = None,
        steady: Callable[[], float] | None = None,
    ) -> None:
        """`began`: the date at which `now` is 0; None: the one that makes it this moment now.
        `steady`: the clock of sessions and leases, if dates may step ahead of it.
        """
        self.now = now
        self.steady = steady or now
        self._began = datetime.now(UTC) - timedelta(seconds=now()) if began is None else began
        self.later = later
        self.faults = faults
        self.pace = pace
        "Duration of a step; None: no time, so transactions overlap only when they wait for others."
        self.statement_seconds = float("inf")
        "A transaction that waits for a row is given up this long after its beginning."
        self.locks = RowLocks()
        self.on_request: Callable[[str, str, str], None] | None = None
        """Called with the kind of a request that has waited for a row or was cut, and its end: for
        checks."""
        self.cluster_id = cluster_id or uuid4().hex
        self.sessions = Sessions(self.steady)
        self.messages = MessageRows()
        self.cluster = ClusterRows(
            lambda key: self.sessions.holder(key) is not None,
            lambda type_id: type_id in self.messages.types,
        )
        self.journal = JournalRows(self.cluster.epochs)
        self.transactions = Transactions()
        self.projections = ProjectionRows()
        self.leases: dict[str, LeaseRow] = {}
        self.standby = Standby((self.cluster, self.journal, self.messages, self.projections), self.leases)
        self.journal_of = ""
        "The cluster of which its database is a further journal."
        self.timeline = 1
        self.system = "system"
        self.up = True
        self.room: int | None = None
        "Most sessions that it accepts; None: any number."
        self.ends_own = True
        """Whether a role may end its own sessions. Without that right none is opened, because its
        end could not be seen."""
        self.ends_others = True
        "Whether a role sees and ends those of other processes: each process may have its own role."
        self.unended = 0
        "Number of sessions of buried processes that were left alone for lack of that right."
        self.serving: Session | None = None
        "The session whose step was executed last, or is being executed."
        self._started = self._stamp()

    @property
    def identity(self) -> Server:
        return Server(self._started, self.timeline, self.system)

    def date(self) -> datetime:
        """Return the time of its clock as a date."""
        return self._began + timedelta(seconds=self.now())

    def moment(self, time: float) -> int:
        """Return a time of its clock in microseconds since 1970, as events show it."""
        return (self._began + timedelta(seconds=time) - _EPOCH) // timedelta(microseconds=1)

    def lasts(self, lease: LeaseRow) -> bool:
        """Tell whether a lease's time is not over."""
        until = lease.expires_at
        if until is None and lease.owner is not None:
            until = self.cluster.leases_until.get(lease.owner)
        return until is None or until > self.steady()

    def connect(self, client: str, idle_timeout: float | None = None, lock_seconds: float = 1.0) -> Session:
        if not self.up:
            raise ConnectionLost("the server is down")
        if not self.ends_own:
            raise ConnectionLost("the role may not end its own sessions")
        self.sessions.reap()
        if self.room is not None and self.sessions.count() >= self.room:
            raise ConnectionRefused("too many connections")
        return self.sessions.begin(client, idle_timeout, lock_seconds)

    def execute(self, session: Session, kind: str, request: Callable[[], Steps[Any]], told: Told) -> None:
        """Begin a request of a session, if that still exists; `told` gets its outcome."""
        try:
            if not self.up:
                raise ConnectionLost("the server is down")
            self.sessions.heard(session)
            steps = request()
        except Exception as error:  # noqa: BLE001  (the answer is an error: the client raises it)
            told(error, True)
            return
        Transaction(self, session, kind, steps, told).go()

    def insert(self, key: Key, is_there: Callable[[], bool]) -> Steps[bool]:
        """Hold the key of a new row. One who inserts such a row, or writes it, is waited for.
        False: there is a row.
        """
        while True:
            yield Lock(key, kept=False)
            if is_there():
                return False
            if not self.locks.is_held(key):
                yield Lock(key)
                return True

    def end_own(self, sessions: Iterable[Session]) -> None:
        """End sessions that a client has left behind. Raises MayNotEnd."""
        for session in sessions:
            if not self.ends_own and not session.ended:
                raise MayNotEnd("the role may not end its own sessions")
            self.sessions.end(session)

    def end_those_of(self, dead: str) -> None:
        """End the visible sessions that a buried process has left behind."""
        for session in self.sessions.of(dead):
            if self.ends_others:
                self.sessions.end(session)
            else:
                self.unended += 1

    # -- Faults ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """End every session; pending requests are never executed. Rows stay."""
        self.up = False
        self.sessions.end_all()

    def start(self) -> None:
        if not self.up:
            self.up = True
            self._started = self._stamp()
            self.locks.clear()  # their holders are gone

    def fail_over(self) -> None:
        """Let the standby take over, with every acknowledged commit."""
        self.stop()
        self.promote()
        self.start()

    def promote(self) -> None:
        """Let the standby go on from its own rows, on a new timeline."""
        self.timeline += 1
        self.standby.take_over()

    def client_died(self, client: str) -> None:
        """End the sessions of a client: its machine's kernel has closed its sockets."""
        for session in self.sessions.of(client):
            self.sessions.end(session)

    def _stamp(self) -> str:
        return f"{self.now():.6f}"


class Transaction:
    """A request under way. It holds the rows that it has locked, and may wait for others. The end
    of its session rolls it back.
    """

    __slots__ = ("_began", "_kind", "_server", "_steps", "_told", "_waits", "over", "session", "waiting")

    def __init__(
        self, server: MemoryServer, session: Session, kind: str, steps: Steps[Any], told: Told
    ) -> None:
        self._server = server
        self._kind = kind
        self._steps = steps
        self._told = told
        self._began = server.steady()
        self._waits = 0
        "Number of its waits."
        self.session = session
        self.waiting = False
        self.over = False
        session.transaction = self

    @property
    def name(self) -> str:
        return self.session.client

    def go(self, error: ServerError | None = None) -> None:
        """Run on until it waits for something, or is over."""
        server, steps = self._server, self._steps
        while not self.over:
            server.serving = self.session
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                self._end(end.value, failed=False)
                return
            except Exception as raised:  # noqa: BLE001  (the answer is an error: the client raises it)
                self._end(raised, failed=True)
                return
            error = None
            if isinstance(step, Lock):
                if not server.locks.take(self, step):
                    self._wait()
                    return
            elif step is Pause.NEXT:
                server.transactions.end(self.session)
                server.locks.release(self, changed=True)
            elif server.pace is not None and (seconds := server.pace(self.session.client, self._kind, step)):
                server.later(seconds, self._commit if step is Pause.COMMIT else self.go)
                return

    def _commit(self) -> None:
        """Go on; if the synchronous standby has gone in between, only when it is back."""
        if self._server.standby.hides(self._kind):
            self._server.standby.hold(self.go)
        else:
            self.go()

    def granted(self) -> None:
        self._waited("goes on")
        self.go()

    def abort(self) -> None:
        """Roll back: the session has ended."""
        if not self.over:
            if self.waiting:
                self._waited("is cut")
            elif self._server.on_request is not None:
                self._server.on_request(self._kind, "is under way", "is cut")
            lost = Unanswered if self.session.unheard else ConnectionLost
            self._end(lost("the server has ended the session"), failed=True)

    def _wait(self) -> None:
        self.waiting = True
        number, session, server = self._waits, self.session, self._server
        left = self._began + server.statement_seconds - server.steady()
        error = lock_timeout if session.lock_seconds <= left else statement_timeout

        def give_up() -> None:
            if self._waits == number and not self.over:
                self._waited("gives up")
                self.go(error())

        server.later(max(0.0, min(session.lock_seconds, left)), give_up)

    def _waited(self, then: str) -> None:
        self.waiting = False
        self._waits += 1
        if self._server.on_request is not None:
            self._server.on_request(self._kind, "waits", then)

    def _end(self, outcome: object, *, failed: bool) -> None:
        if self.over:
            return
        self.over = True
        self.session.transaction = None
        self._server.transactions.end(self.session)
        self.session.heard_at = self._server.steady()
        self._told(outcome, failed)
        self._server.locks.release(self, changed=not failed)
