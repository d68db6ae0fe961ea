"""The virtual server's sessions: who is connected, which advisory locks they hold, and when silence ends them."""

from collections.abc import Callable, Iterable
from itertools import count

from sharding_app.core.records import Backend


class ConnectionLost(Exception):
    """The session is gone, or the server cannot be reached."""


class ConnectionRefused(ConnectionLost):
    """The server is there, and has no room for one more session."""


class Unanswered(ConnectionLost):
    """The session is gone, and the client is not told: it waits for as long as it has patience."""


class MayNotEnd(Exception):
    """The server refuses to end a session: the role has not the right."""


class ServerError(Exception):
    """The server's own answer: it has done nothing of what it was asked, and goes on."""

    def __init__(self, state: str, reason: str, seconds: float = 0.0) -> None:
        """`state` is the SQLSTATE; `seconds`: so long it has tried."""
        super().__init__(f"{reason} ({state})")
        self.state = state
        self.seconds = seconds


class Session:
    """One connection, as the server sees it."""

    __slots__ = ("backend", "client", "ended", "heard_at", "idle_timeout", "locks", "on_end", "unheard")

    def __init__(self, client: str, backend: Backend, now: float, idle_timeout: float | None) -> None:
        self.client = client
        self.backend = backend
        self.heard_at = now
        self.idle_timeout = idle_timeout
        self.locks: dict[int, int] = {}
        "How often it has taken each: it must give it back as often."
        self.ended = False
        self.on_end: Callable[[], None] | None = None
        "What the client hears when the server ends it."
        self.unheard = False
        "It has ended, and nothing that the client sends is answered."


class Sessions:
    """All sessions, and the lock table."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pids = count(1000)
        self._by_pid: dict[int, Session] = {}
        self._holders: dict[int, Session] = {}
        self._mortal: dict[Session, None] = {}
        "Those that silence ends."

    def begin(self, client: str, idle_timeout: float | None = None) -> Session:
        pid = next(self._pids)
        session = Session(client, Backend(pid, f"{self._now():.6f}"), self._now(), idle_timeout)
        self._by_pid[pid] = session
        if idle_timeout is not None:
            self._mortal[session] = None
        return session

    def end(self, session: Session) -> None:
        """End it and free what it holds. What it had sent and the server has not begun is never executed."""
        if not session.ended:
            session.ended = True
            self._by_pid.pop(session.backend.pid, None)
            self._mortal.pop(session, None)
            for key in session.locks:
                del self._holders[key]
            session.locks.clear()
            if session.on_end is not None:
                session.on_end()

    def count(self) -> int:
        return len(self._by_pid)

    def lose(self, session: Session) -> None:
        """End it towards the server alone, as something on the way may do: the client hears nothing of it."""
        session.on_end = None
        session.unheard = True
        self.end(session)

    def end_backends(self, backends: Iterable[Backend]) -> None:
        """`pg_terminate_backend`, for those that are still the same process."""
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
        """`idle_session_timeout`: end what has been silent for too long."""
        now = self._now()
        for session in list(self._mortal):
            if session.idle_timeout is not None and now - session.heard_at >= session.idle_timeout:
                self.end(session)

    def heard(self, session: Session) -> None:
        self.reap()
        if session.ended:
            lost = Unanswered if session.unheard else ConnectionLost
            raise lost("the server has ended the session")
        session.heard_at = self._now()

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
