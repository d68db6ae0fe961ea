"""The client's end of one connection to the virtual server: requests go through the fault policy.

Contract: one request is executed at most once, whatever the client is told. After `ConnectionLost` the client's end is
dead; the server's end may live on, and may still execute what was sent.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, Session
from sharding_app.core.records import Backend

T = TypeVar("T")


class Connection:
    def __init__(self, server: MemoryServer, client: str, idle_timeout: float | None = None) -> None:
        self.server = server
        self.client = client
        self._idle_timeout = idle_timeout
        self.session: Session | None = None
        "The server's end, also after the client's end is dead, until `close` or `open`."
        self.broken = True

    async def open(self) -> Backend:
        def connect() -> Session:
            return self.server.connect(self.client, self._idle_timeout)

        self.broken = False
        self.session = await self._through("open", connect)
        return self.session.backend

    async def call(self, kind: str, request: Callable[[], T]) -> T:
        """Have the server execute a request, and return or raise what it did."""
        session = self.session
        if self.broken or session is None:
            raise ConnectionLost("not connected")
        return await self._through(kind, lambda: self.server.execute(session, request))

    async def reach(self, kind: str, request: Callable[[], T]) -> T:
        """Like `call`, on a new connection if the last one is lost."""
        if self.broken:
            await self.open()
        return await self.call(kind, request)

    def close(self) -> None:
        self.broken = True
        if self.session is not None:
            self.server.sessions.end(self.session)
            self.session = None

    async def _through(self, kind: str, run: Callable[[], T]) -> T:
        faults = self.server.faults
        plan = faults.plan(self.client, kind) if faults is not None else None
        try:
            if plan is None:
                return run()
            return await self._planned(plan.execute_after, plan.answer_after, plan.lost_after, run)
        except ConnectionLost:
            self.broken = True
            raise

    async def _planned(
        self,
        execute_after: float | None,
        answer_after: float | None,
        lost_after: float | None,
        run: Callable[[], T],
    ) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        later = self.server.later

        def tell(setter: Callable[[Any], None], value: object) -> None:
            loop.call_soon_threadsafe(lambda: None if answer.done() else setter(value))

        def execute() -> None:
            setter: Callable[[Any], None] = answer.set_result
            value: object
            try:
                value = run()
            except Exception as error:  # noqa: BLE001  (the answer is an error: the client raises it)
                setter, value = answer.set_exception, error
            if answer_after is not None:
                later(answer_after, lambda: tell(setter, value))

        if execute_after is not None:
            later(execute_after, execute)
        if lost_after is not None:
            later(lost_after, lambda: tell(answer.set_exception, ConnectionLost("the connection is lost")))
        return await answer
