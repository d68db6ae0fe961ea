"""The client's end of one connection to the virtual server: requests go through the fault policy, one at a time.

Contract: one request is executed at most once, whatever the client is told. After `ConnectionLost`, or a caller that
was cancelled, the client's end is dead; the server's end may live on, and may still execute what was sent.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sharding_app.adapters.memory.faults import Plan
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError, Session, Unanswered
from sharding_app.core.records import Backend

T = TypeVar("T")

UNUSABLE = frozenset({"25006"})
"""After such an answer the real clients hang up: the next connection may lead to a server that does it."""


class Connection:
    def __init__(
        self, server: MemoryServer, client: str, idle_timeout: float | None = None, line: str = ""
    ) -> None:
        self.server = server
        self.client = client
        self.opens = f"open_{line}" if line else "open"
        "The kind of request by which it connects: one connection of a client may fail where the others do not."
        self._idle_timeout = idle_timeout
        self.session: Session | None = None
        "The server's end, also after the client's end is dead, until `close` or `open`."
        self.broken = True
        self.doubtful: list[Session] = []
        "Server's ends that may still execute something whose answer we did not get."
        self._turn = asyncio.Lock()

    async def open(self) -> Backend:
        """Connect anew."""
        async with self._turn:
            return await self._open()

    async def call(self, kind: str, request: Callable[[], T]) -> T:
        """Have the server execute a request, and return or raise what it did."""
        async with self._turn:
            return await self._call(kind, request)

    async def reach(self, kind: str, request: Callable[[], T]) -> T:
        """Like `call`, on a new connection if the last one is lost."""
        async with self._turn:
            if self.broken:
                await self._open()
            return await self._call(kind, request)

    def close(self) -> None:
        self.broken = True
        if self.session is not None:
            self.server.sessions.end(self.session)
            self.session = None

    async def _open(self) -> Backend:
        def connect(_: Plan) -> Session:
            return self.server.connect(self.client, self._idle_timeout)

        session = self.session = await self._through(self.opens, connect)
        self.broken = False
        return session.backend

    async def _call(self, kind: str, request: Callable[[], T]) -> T:
        session = self.session
        if self.broken or session is None:
            raise ConnectionLost("not connected")
        try:
            return await self._through(
                kind, lambda plan: self.server.execute(session, plan.refuse if plan.error else request)
            )
        except (ConnectionLost, asyncio.CancelledError):
            self.broken = True
            if not session.ended:
                self.doubtful.append(session)
            raise
        except ServerError as error:
            if error.state in UNUSABLE:
                self.broken = True
                self.server.sessions.end(session)
            raise

    async def _through(self, kind: str, run: Callable[[Plan], T]) -> T:
        faults = self.server.faults
        plan = faults.plan(self.client, kind) if faults is not None else None
        if plan is None and not self.server.standby.away:
            return run(Plan())
        return await self._planned(plan or Plan(), kind, run)

    async def _planned(self, plan: Plan, kind: str, run: Callable[[Plan], T]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        later, standby = self.server.later, self.server.standby

        def tell(setter: Callable[[Any], None], value: object) -> None:
            if not answer.done():
                setter(value)

        def execute() -> None:
            if standby.hides(kind):
                standby.hold(execute)
                later(standby.give_up_seconds, lose)
                return
            setter: Callable[[Any], None] = answer.set_result
            value: object
            try:
                value = run(plan)
            except Exception as error:  # noqa: BLE001  (the answer is an error: the client raises it)
                setter, value = answer.set_exception, error
            if plan.answer_after is None or isinstance(value, Unanswered):
                return
            answer_after = plan.answer_after + (value.seconds if isinstance(value, ServerError) else 0.0)

            def send() -> None:
                later(answer_after, lambda: loop.call_soon_threadsafe(tell, setter, value))

            if setter == answer.set_result and standby.holds(kind, value):
                standby.hold(send)
                later(standby.give_up_seconds, lose)
            else:
                send()

        def lose() -> None:
            lost = ConnectionLost("the connection is lost")
            loop.call_soon_threadsafe(tell, answer.set_exception, lost)

        if plan.execute_after is not None:
            later(plan.execute_after, execute)
        if plan.lost_after is not None:
            later(plan.lost_after, lose)
        return await answer
