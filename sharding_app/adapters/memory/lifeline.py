"""`ports.lifeline.LifelineSession` over the virtual server."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sharding_app.adapters.memory.cluster_writes import ClusterWrites
from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.server import COORDINATOR_LOCK, MemoryServer
from sharding_app.adapters.memory.sessions import (
    ConnectionLost,
    ConnectionRefused,
    ServerError,
    Session,
)
from sharding_app.adapters.memory.steps import Steps, at_once
from sharding_app.ports.lifeline import Pulse, SessionLost, SessionRefused
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.records import Backend

T = TypeVar("T")


class MemoryLifelineSession:
    def __init__(
        self, server: MemoryServer, client: str = "client", *, idle_timeout_seconds: float = 3.0
    ) -> None:
        self._server = server
        self._client = client
        self._connection = Connection(server, client, idle_timeout_seconds, lock_seconds=idle_timeout_seconds)
        self.older = 0
        self._holds_lock = False
        self._term: Term | None = None

    async def open(self) -> Backend:
        await self.close()
        try:
            return await self._connection.open()
        except ConnectionRefused as error:
            raise SessionRefused(str(error)) from error
        except ConnectionLost as error:
            raise SessionLost(str(error)) from error

    async def lock(self, key: int) -> bool:
        return await self._ask("lock", lambda session: self._server.sessions.lock(session, key))

    async def unlock(self, key: int) -> None:
        await self._ask("unlock", lambda session: self._server.sessions.unlock(session, key))

    async def ping(self) -> Pulse:
        def pulse(session: Session) -> Pulse:
            locked = self._server.sessions.holder(COORDINATOR_LOCK) is not None
            return Pulse(self._server.identity, locked)

        return await self._ask("ping", pulse)

    async def elect(self, incarnation: Incarnation) -> Term | None:
        """Make two requests: the session may be lost in between, with the lock held and the term
        not raised.
        """

        def stand(session: Session) -> bool:
            self.older = self._server.cluster.older_candidates(incarnation)
            return self.older == 0 and self._server.sessions.lock(session, COORDINATOR_LOCK)

        if self._term is None:
            self._holds_lock = self._holds_lock or await self._ask("stand", stand)
            if self._holds_lock:
                writes = ClusterWrites(self._server)
                self._term = await self._write("raise_term", lambda: writes.raise_term(incarnation))
        return self._term

    async def resign(self) -> None:
        self._term = None
        if self._holds_lock:
            await self._ask("resign", lambda one: self._server.sessions.unlock(one, COORDINATOR_LOCK))
            self._holds_lock = False

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` when the server ends the session, if the network lets that through.

        A session that has ended meanwhile is heard of at once. What was heard has closed the
        client's end too: the next request fails there and takes no way to the server.
        """
        session = self._connection.session
        if session is None:
            return _nothing
        loop, server, client = asyncio.get_running_loop(), self._server, self._client

        def hears() -> None:
            if self._connection.session is session:
                self._connection.broken = True
            heard()

        def ended() -> None:
            plan = server.faults.plan(client, "heard") if server.faults is not None else None
            if plan is None or plan.execute_after is not None:
                delay = 0.0 if plan is None else plan.answer_after or 0.0
                server.later(delay, lambda: loop.call_soon_threadsafe(hears))

        def forget() -> None:
            session.on_end = None

        session.on_end = ended
        if session.ended and not session.unheard:
            ended()
        return forget

    async def close(self) -> None:
        self._forget()
        self._connection.close()

    async def _ask(self, kind: str, request: Callable[[Session], T]) -> T:
        session = self._connection.session
        if session is None:
            self._forget()
            raise SessionLost("not connected")
        return await self._write(kind, lambda: at_once(lambda: request(session)))

    async def _write(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        try:
            return await self._connection.call(kind, request)
        except ConnectionLost as error:
            self._forget()
            raise SessionLost(str(error)) from error
        except ServerError as error:
            await self.close()  # the locks of the session are in doubt
            raise SessionLost(str(error)) from error

    def _forget(self) -> None:
        self._holds_lock = False
        self._term = None


def _nothing() -> None:
    """Do nothing: there is no watch to end."""
