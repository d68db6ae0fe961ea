"""`ports.lifeline.LifelineSession` over the virtual server."""

from collections.abc import Callable
from typing import TypeVar

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.server import COORDINATOR_LOCK, MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, Session
from sharding_app.core.ids import Incarnation, Term
from sharding_app.core.records import Backend
from sharding_app.ports.lifeline import Pulse, SessionLost

T = TypeVar("T")


class MemoryLifelineSession:
    def __init__(
        self, server: MemoryServer, client: str = "client", *, idle_timeout_seconds: float = 3.0
    ) -> None:
        self._server = server
        self._connection = Connection(server, client, idle_timeout_seconds)

    async def open(self) -> Backend:
        try:
            return await self._connection.open()
        except ConnectionLost as error:
            raise SessionLost(str(error)) from error

    async def lock(self, key: int) -> bool:
        return await self._ask("lock", lambda session: self._server.sessions.lock(session, key))

    async def unlock(self, key: int) -> None:
        await self._ask("unlock", lambda session: self._server.sessions.unlock(session, key))

    async def ping(self) -> Pulse:
        def pulse(session: Session) -> Pulse:
            row = self._server.cluster.coordinator
            locked = self._server.sessions.holder(COORDINATOR_LOCK) is not None
            return Pulse(self._server.identity, row.term, row.incarnation, locked)

        return await self._ask("ping", pulse)

    async def elect(self, incarnation: Incarnation) -> Term | None:
        def elect(session: Session) -> Term | None:
            sessions, cluster = self._server.sessions, self._server.cluster
            if (
                sessions.holder(COORDINATOR_LOCK) is session
                and cluster.coordinator.incarnation == incarnation
            ):
                return cluster.coordinator.term
            if cluster.outranked(incarnation) or not sessions.lock(session, COORDINATOR_LOCK):
                return None
            return cluster.raise_term(incarnation)

        return await self._ask("elect", elect)

    async def resign(self) -> None:
        await self._ask("resign", lambda session: self._server.sessions.unlock(session, COORDINATOR_LOCK))

    async def close(self) -> None:
        self._connection.close()

    async def _ask(self, kind: str, request: Callable[[Session], T]) -> T:
        session = self._connection.session
        try:
            if session is None:
                raise ConnectionLost("not connected")
            return await self._connection.call(kind, lambda: request(session))
        except ConnectionLost as error:
            raise SessionLost(str(error)) from error
