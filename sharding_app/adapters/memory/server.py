"""One virtual Postgres: rows, sessions and time. It executes one request at a time, each as one transaction.

What a real server cannot know, this one does not know either: whether a client whose connection is silent is dead,
frozen or cut off. It may be restarted, fail over, or be out of reach; a client may die with requests under way.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import uuid4

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.faults import Later, ServerFaults
from sharding_app.adapters.memory.journal_rows import JournalRows
from sharding_app.adapters.memory.lease_row import LeaseRow
from sharding_app.adapters.memory.sessions import (
    ConnectionLost,
    ConnectionRefused,
    MayNotEnd,
    Session,
    Sessions,
)
from sharding_app.adapters.memory.standby import Standby
from sharding_app.core.records import Server

T = TypeVar("T")

COORDINATOR_LOCK = -1


def _on_running_loop(delay: float, callback: Callable[[], object]) -> object:
    return asyncio.get_running_loop().call_later(delay, callback)


class MemoryServer:
    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        later: Later = _on_running_loop,
        faults: ServerFaults | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.now = now
        self.later = later
        self.faults = faults
        self.cluster_id = cluster_id or uuid4().hex
        self.sessions = Sessions(now)
        self.cluster = ClusterRows(lambda key: self.sessions.holder(key) is not None)
        self.journal = JournalRows(self.cluster.epochs)
        self.leases: dict[str, LeaseRow] = {}
        self.standby = Standby(self.cluster, self.journal, self.leases)
        self.timeline = 1
        self.system = "system"
        self.up = True
        self.room: int | None = None
        "How many sessions it takes; None: any number."
        self.ends_own = True
        "Whether a role may end its own sessions. Without that right none is opened: its end could not be seen."
        self.ends_others = True
        "Whether a role sees and ends those of other processes: each may have a role of its own."
        self.unended = 0
        "Sessions of buried processes that were left alone for that."
        self.serving: Session | None = None
        "Whose request was executed last, or is being executed."
        self._started = self._stamp()

    @property
    def identity(self) -> Server:
        return Server(self._started, self.timeline, self.system)

    def connect(self, client: str, idle_timeout: float | None = None) -> Session:
        if not self.up:
            raise ConnectionLost("the server is down")
        if not self.ends_own:
            raise ConnectionLost("the role may not end its own sessions")
        self.sessions.reap()
        if self.room is not None and self.sessions.count() >= self.room:
            raise ConnectionRefused("too many connections")
        return self.sessions.begin(client, idle_timeout)

    def execute(self, session: Session, request: Callable[[], T]) -> T:
        """Run one request of a session that still exists."""
        if not self.up:
            raise ConnectionLost("the server is down")
        self.sessions.heard(session)
        self.serving = session
        return request()

    def end_own(self, sessions: Iterable[Session]) -> None:
        """End what a client has left behind. Raises MayNotEnd."""
        for session in sessions:
            if not self.ends_own and not session.ended:
                raise MayNotEnd("the role may not end its own sessions")
            self.sessions.end(session)

    def end_those_of(self, dead: str) -> None:
        """End what a process that is being buried has left behind, as far as that is seen."""
        for session in self.sessions.of(dead):
            if self.ends_others:
                self.sessions.end(session)
            else:
                self.unended += 1

    # -- What may happen to it ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Every session ends; requests that were not executed never are. Rows stay."""
        self.up = False
        self.sessions.end_all()

    def start(self) -> None:
        if not self.up:
            self.up = True
            self._started = self._stamp()
            self.journal.locked.clear()  # who held rows is gone

    def fail_over(self) -> None:
        """The standby takes over, with every acknowledged commit."""
        self.stop()
        self.promote()
        self.start()

    def promote(self) -> None:
        """The standby is to go on from what it has, on a timeline of its own."""
        self.timeline += 1
        self.standby.take_over()

    def client_died(self, client: str) -> None:
        """The kernel of the client's machine has closed its sockets."""
        for session in self.sessions.of(client):
            self.sessions.end(session)

    def _stamp(self) -> str:
        return f"{self.now():.6f}"
