"""Virtual time for a cluster in memory: a real event loop whose clock a test can advance.

Time passes as usual, and `Clock.advance(60)` lets a minute pass at once: every timer due in it
runs, in order and at its time, with its consequences. Work in threads and on sockets is awaited in
real time. Only the loop's time moves (timers, timeouts, passivation, leases), not
``datetime.now()``.
"""

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REAL_WAIT_SECONDS = 0.005


class _Selector(selectors.DefaultSelector):
    """A selector that skips time, if allowed, where the loop would sleep until its next timer."""

    def __init__(self) -> None:
        super().__init__()
        self.skip: Callable[[float | None], float | None] = lambda timeout: timeout

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            ready = super().select(0)
            if ready:
                return ready
            timeout = self.skip(timeout)
        return super().select(timeout)


class TravelLoop(asyncio.SelectorEventLoop):
    """An event loop that can skip the time until its next timer."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._target: float | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._jumping = 0
        self._threads = 0
        selector = _Selector()
        super().__init__(selector)
        selector.skip = self._skip

    def time(self) -> float:
        return time.monotonic() + self._skipped

    async def travel(self, seconds: float) -> None:
        """Let this much time pass as quickly as possible."""
        if self._target is not None:
            raise RuntimeError("time is already being advanced")
        self._arrived = self.create_future()
        self._target = self.time() + seconds
        try:
            await self._arrived
        finally:
            self._target = self._arrived = None

    async def hurry(self, work: Awaitable[T]) -> T:
        """Do some work, and skip the time in which it only waits."""
        self._jumping += 1
        try:
            return await work
        finally:
            self._jumping -= 1

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, future: object) -> None:
        self._threads -= 1

    def _skip(self, timeout: float | None) -> float | None:
        """Return the real time to wait; the loop is idle for `timeout` (None: it has no timer)."""
        if self._target is None and not self._jumping:
            return timeout
        if self._threads:
            return REAL_WAIT_SECONDS if timeout is None else min(timeout, REAL_WAIT_SECONDS)
        left = None if self._target is None else self._target - self.time()
        if left is not None and (timeout is None or left <= timeout):
            self._skipped += max(left, 0.0)
            if self._arrived is not None and not self._arrived.done():
                self._arrived.set_result(None)
            return 0.0
        if timeout is None:
            return None
        self._skipped += timeout
        return 0.0


class Clock:
    """The time of one loop, for code on other threads."""

    def __init__(self, loop: TravelLoop) -> None:
        self._loop = loop

    def advance(self, seconds: float) -> None:
        """Let this many seconds pass at once."""
        if seconds < 0:
            raise ValueError("time cannot go backwards")
        asyncio.run_coroutine_threadsafe(self._loop.travel(seconds), self._loop).result()

    def now(self) -> float:
        """Seconds on the cluster's clock."""
        return self._loop.time()
