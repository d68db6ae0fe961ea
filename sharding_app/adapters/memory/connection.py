"""The client's end of one connection to the virtual server: requests pass the fault policy, one at
a time.

Contract: one request is executed at most once, whatever answer the client gets. After
`ConnectionLost`, or a cancelled call, the client's end is dead; the server's end may live on, and
may still execute what it was sent.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sharding_app.adapters.memory.faults import Plan
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError, Session, Unanswered
from sharding_app.adapters.memory.steps import Steps, Told
from sharding_app.protocol.records import Backend

T = TypeVar("T")
Run = Callable[[Plan, Told], None]
AT_ONCE = Plan()

UNUSABLE = frozenset({"25006"})
"""After such an answer the real clients hang up: the next connection may lead to a server that
accepts it."""


class Connection:
    def __init__(
        self,
        server: MemoryServer,
        client: str,
        idle_timeout: float | None = None,
        line: str = "",
        *,
        lock_seconds: float = 1.0,
    ) -> None:
        self.server = server
        self.client = client
        self.opens = f"open_{line}" if line else "open"
        """The kind of its connect request: one connection of a client may fail where the others do
        not."""
        self._idle_timeout = idle_timeout
        self._lock_seconds = lock_seconds
        self.session: Session | None = None
        "The server's end, also after the client's end is dead, until `close` or `open`."
        self.broken = True
        self.doubtful: list[Session] = []
        "Server's ends that may still execute a request whose answer we did not get."
        self._turn = asyncio.Lock()

    async def open(self) -> Backend:
        """Connect again."""
        async with self._turn:
            return await self._open()

    async def call(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        """Have the server execute a request, and return or raise its outcome."""
        async with self._turn:
            return await self._call(kind, request)

    async def reach(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        """Call, on a new connection if the last one is lost."""
        async with self._turn:
            if self.broken:
                await self._open()
            return await self._call(kind, request)

    async def reach_after_late_ones(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        """Like `reach`, once no request whose answer was lost can execute any more.

        The answer of one that came before it may be lost while this waits for its turn.
        """
        async with self._turn:
            if self.broken:
                await self._open()
            late = list(self.doubtful)

            def end_and_execute() -> Steps[T]:
                self.server.end_own(late)
                return request()

            answer = await self._call(kind, end_and_execute)
            self.doubtful = [each for each in self.doubtful if each not in late]
            return answer

    def close(self) -> None:
        self.broken = True
        if self.session is not None:
            self.server.sessions.end(self.session)
            self.session = None

    async def _open(self) -> Backend:
        def connect(plan: Plan, told: Told) -> None:
            try:
                session = self.server.connect(self.client, self._idle_timeout, self._lock_seconds)
            except Exception as error:  # noqa: BLE001  (the answer is an error: the client raises it)
                told(error, True)
            else:
                told(session, False)

        session: Session = await self._through(self.opens, connect)
        self.session, self.broken = session, False
        return session.backend

    async def _call(self, kind: str, request: Callable[[], Steps[T]]) -> T:
        session = self.session
        if self.broken or session is None:
            raise ConnectionLost("not connected")

        def execute(plan: Plan, told: Told) -> None:
            self.server.execute(session, kind, plan.refuse if plan.error else request, told)

        session.awaited = True
        try:
            return cast(T, await self._through(kind, execute))
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
        finally:
            session.awaited = False

    async def _through(self, kind: str, run: Run) -> Any:
        faults = self.server.faults
        plan = faults.plan(self.client, kind) if faults is not None else None
        if plan is None and not self.server.standby.away:
            return await self._unplanned(run)
        return await _Way(self.server, plan or AT_ONCE, kind, run).answer

    async def _unplanned(self, run: Run) -> Any:
        """Run a request without faults. The server answers at once unless it waits for
        something.
        """
        outcomes: list[tuple[object, bool]] = []
        waiting: list[Callable[[], object]] = []

        def told(outcome: object, failed: bool) -> None:
            outcomes.append((outcome, failed))
            for wake in waiting:
                wake()

        run(AT_ONCE, told)
        if not outcomes:
            loop = asyncio.get_running_loop()
            answered = asyncio.Event()
            waiting.append(lambda: loop.call_soon_threadsafe(answered.set))
            await answered.wait()
        outcome, failed = outcomes[0]
        if failed:
            raise cast(Exception, outcome)
        return outcome


class _Way:
    """A request on its way to the server, there, and its answer on the way back."""

    def __init__(self, server: MemoryServer, plan: Plan, kind: str, run: Run) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self._loop.create_future()
        self._later, self._standby = server.later, server.standby
        self._plan, self._kind, self._run = plan, kind, run
        self._over = False
        "The server is done with it."
        if plan.execute_after is not None:
            self._later(plan.execute_after, self._execute)
        if plan.lost_after is not None:
            self._later(plan.lost_after, self._lose)

    def _execute(self) -> None:
        if self._standby.hides(self._kind):
            self._standby.hold(self._execute)
        else:
            self._run(self._plan, self._told)
        if not self._over:
            self._later(self._standby.give_up_seconds, self._lose)

    def _told(self, value: object, failed: bool) -> None:
        self._over = True
        if self._plan.answer_after is None or isinstance(value, Unanswered):
            return
        after = self._plan.answer_after + (value.seconds if isinstance(value, ServerError) else 0.0)

        def send() -> None:
            self._later(after, lambda: self._tell(value, failed))

        if not failed and self._standby.holds(self._kind, value):
            self._standby.hold(send)
            self._later(self._standby.give_up_seconds, self._lose)
        else:
            send()

    def _lose(self) -> None:
        self._tell(ConnectionLost("the connection is lost"), failed=True)

    def _tell(self, value: Any, failed: bool) -> None:
        def tell() -> None:
            if self.answer.done():
                return
            if failed:
                self.answer.set_exception(value)
            else:
                self.answer.set_result(value)

        self._loop.call_soon_threadsafe(tell)
