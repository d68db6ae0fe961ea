"""`ports.lifeline.LifelineSession` over the virtual server."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.server import COORDINATOR_LOCK, MemoryServer
from sharding_app.adapters.memory.sessions import (
    ConnectionLost,
    ConnectionRefused,
    ServerError,
    Session,
)
from sharding_app.core.ids import Incarnation, Term
from sharding_app.core.records import Backend
from sharding_app.ports.lifeline import Pulse, SessionLost, SessionRefused

T = TypeVar("T")


class MemoryLifelineSession:
    def __init__(
        self, server: MemoryServer, client: str = "client", *, idle_timeout_seconds: float = 3.0
    ) -> None:
        self._server = server
        self._client = client
        self._connection = Connection(server, client, idle_timeout_seconds)
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
        """Two requests: the lock may be held, and the term not raised, when the session is lost in between."""

        def stand(session: Session) -> bool:
            self.older = self._server.cluster.older_candidates(incarnation)
            return self.older == 0 and self._server.sessions.lock(session, COORDINATOR_LOCK)

        if self._term is None:
            self._holds_lock = self._holds_lock or await self._ask("stand", stand)
            if self._holds_lock:
                server = self._server
                self._term = await self._ask(
                    "raise_term",
                    lambda _: server.cluster.raise_term(incarnation, server.identity.lineage, server.now()),
                )
        return self._term

    async def resign(self) -> None:
        self._term = None
        if self._holds_lock:
            await self._ask("resign", lambda one: self._server.sessions.unlock(one, COORDINATOR_LOCK))
            self._holds_lock = False

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Have it told when the server ends the session, if the network lets that through."""
        session = self._connection.session
        if session is None:
            return _nothing
        loop, server, client = asyncio.get_running_loop(), self._server, self._client

        def ended() -> None:
            plan = server.faults.plan(client, "heard") if server.faults is not None else None
            if plan is None or plan.execute_after is not None:
                delay = 0.0 if plan is None else plan.answer_after or 0.0
                server.later(delay, lambda: loop.call_soon_threadsafe(heard))

        def forget() -> None:
            session.on_end = None

        session.on_end = ended
        return forget

    async def close(self) -> None:
        self._forget()
        self._connection.close()

    async def _ask(self, kind: str, request: Callable[[Session], T]) -> T:
        session = self._connection.session
        try:
            if session is None:
                raise ConnectionLost("not connected")
            return await self._connection.call(kind, lambda: request(session))
        except ConnectionLost as error:
            self._forget()
            raise SessionLost(str(error)) from error
        except ServerError as error:
            await self.close()  # what the session holds is not certain any more
            raise SessionLost(str(error)) from error

    def _forget(self) -> None:
        self._holds_lock = False
        self._term = None


def _nothing() -> None:
    """There is no watch to end."""
