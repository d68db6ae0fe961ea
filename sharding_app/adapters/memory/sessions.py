"""The virtual server's sessions: the connected clients, their advisory locks, and when silence ends
them.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from sharding_app.adapters.memory.locks import Owner
from sharding_app.protocol.records import Backend


class ConnectionLost(Exception):
    """The session is gone, or the server cannot be reached."""


class ConnectionRefused(ConnectionLost):
    """The server is there, and has no room for one more session."""


class Unanswered(ConnectionLost):
    """The session is gone, and the client gets no answer: it waits as long as its patience
    lasts.
    """


class MayNotEnd(Exception):
    """The server refuses to end a session: the role lacks the right."""


class ServerError(Exception):
    """The server's own answer: the request had no effect, and the server goes on."""

    def __init__(self, state: str, reason: str, seconds: float = 0.0) -> None:
        """`state` is the SQLSTATE, `seconds` the time that the server has tried."""
        super().__init__(f"{reason} ({state})")
        self.state = state
        self.seconds = seconds


class Request(Owner, Protocol):
    """A request of a session under way, with the rows that it has locked."""

    def abort(self) -> None:
        """Roll back: the session has ended."""
        ...


class Session:
    """One connection, as the server sees it."""

    __slots__ = (
        "awaited", "backend", "client", "ended", "heard_at", "idle_timeout", "lock_seconds", "locks", "on_end", "transaction", "unheard",
    )  # fmt: skip

    def __init__(
        self, client: str, backend: Backend, now: float, idle_timeout: float | None, lock_seconds: float
    ) -> None:
        self.client = client
        self.backend = backend
        self.heard_at = now
        self.idle_timeout = idle_timeout
        self.lock_seconds = lock_seconds
        "Seconds that it waits for a row."
        self.transaction: Request | None = None
        "The request under way."
        self.locks: dict[int, int] = {}
        "How often it has taken each lock: it must release it as often."
        self.ended = False
        self.on_end: Callable[[], None] | None = None
        "Called when the server ends the session."
        self.awaited = False
        "The client waits for an answer."
        self.unheard = False
        "It has ended, and the client's requests get no answer."


class Sessions:
    """All sessions, and the lock table."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pids = count(1000)
        self._by_pid: dict[int, Session] = {}
        self._holders: dict[int, Session] = {}
        self._mortal: dict[Session, None] = {}
        "Sessions that silence ends."
        self.lifelines_heard: dict[str, float] = {}
        "When such a session of each client was last heard, even if it has ended since: for checks."

    def begin(self, client: str, idle_timeout: float | None = None, lock_seconds: float = 1.0) -> Session:
        pid = next(self._pids)
        session = Session(client, Backend(pid, f"{self._now():.6f}"), self._now(), idle_timeout, lock_seconds)
        self._by_pid[pid] = session
        if idle_timeout is not None:
            self._mortal[session] = None
        return session

    def end(self, session: Session) -> None:
        """End a session and free its locks. A request on its way is never executed, and one under
        way is rolled back.
        """
        if not session.ended:
            session.ended = True
            self._by_pid.pop(session.backend.pid, None)
            self._mortal.pop(session, None)
            for key in session.locks:
                del self._holders[key]
            session.locks.clear()
            if session.transaction is not None:
                session.transaction.abort()
            if session.on_end is not None:
                session.on_end()

    def count(self) -> int:
        return len(self._by_pid)

    def lose(self, session: Session) -> None:
        """End a session towards the server alone, as something on the way may do: the client hears
        nothing.
        """
        session.on_end = None
        session.unheard = True
        self.end(session)

    def end_backends(self, backends: Iterable[Backend]) -> None:
        """End, like `pg_terminate_backend`, the backends that are still the same process."""
        for backend in backends:
            session = self._by_pid.get(backend.pid)
            if session is not None and session.backend == backend:
                self.end(session)

    def end_all(self) -> None:
        for session in list(self._by_pid.values()):
            self.end(session)

    def of(self, client: str) -> list[Session]:
        return [session for session in self._by_pid.values() if session.client == client]

    def reap(self) -> None:
        """End sessions that have been silent for too long (`idle_session_timeout`)."""
        now = self._now()
        for session in list(self._mortal):
            if session.idle_timeout is None or session.transaction is not None:
                continue
            if now - session.heard_at >= session.idle_timeout:
                self.end(session)

    def heard(self, session: Session) -> None:
        self.reap()
        if session.ended:
            lost = Unanswered if session.unheard else ConnectionLost
            raise lost("the server has ended the session")
        session.heard_at = self._now()
        if session.idle_timeout is not None:
            self.lifelines_heard[session.client] = session.heard_at

    def lock(self, session: Session, key: int) -> bool:
        holder = self._holders.setdefault(key, session)
        if holder is session:
            session.locks[key] = session.locks.get(key, 0) + 1
        return holder is session

    def unlock(self, session: Session, key: int) -> None:
        if session.locks.get(key, 0) > 1:
            session.locks[key] -= 1
        elif session.locks.pop(key, None):
            del self._holders[key]

    def holder(self, key: int) -> Session | None:
        return self._holders.get(key)
