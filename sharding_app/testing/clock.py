"""Virtual time for a cluster in memory: a real event loop whose clock a test can advance.

Time passes as usual, and `Clock.advance(60)` lets a minute pass at once: every timer due in it
runs, in order and at its time, with its consequences. Work in threads and on sockets is awaited in
real time. Only the cluster's time moves (timers, timeouts, passivation, leases, the dates of
events, ``self.context.now()``), not ``datetime.now()``.

A loop has two times. `TravelLoop.time` passes with each timer of it. `TravelLoop.jump` brings the
*date* ahead without that: timers of users come nearer, and those of the cluster's upkeep, such as
heartbeats and leases, do not notice. So a jump can cost no node its lease.
"""

import asyncio
import heapq
import selectors
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

REAL_WAIT_SECONDS = 0.005

BETWEEN = ("asyncio", "contextlib", "sharding_app.runtime.base.", "sharding_app.testing.clock")
"""Modules that set timers for their callers."""
UPKEEP = (
    "sharding_app.adapters.memory.",
    "sharding_app.client.",
    "sharding_app.runtime.asking.",
    "sharding_app.runtime.coordinator_shell",
    "sharding_app.runtime.hosting.following",
    "sharding_app.runtime.hosting.node_host",
    "sharding_app.runtime.hosting.shard_leases",
    "sharding_app.runtime.links.",
    "sharding_app.runtime.liveness.",
    "sharding_app.runtime.node.",
)
"""Modules whose timers keep the cluster going. No jump moves them: nothing of a user waits for them
while no call is under way.
"""
LOOKS = ("sharding_app.runtime.delivery.", "sharding_app.runtime.journal.")
"""Modules that look at the server's clock when their timers fire: a jump moves these, and passes
them. The rows say what is due.
"""


class Upkeep(asyncio.TimerHandle):
    """A timer that no jump moves."""

    __slots__ = ()


class Look(asyncio.TimerHandle):
    """A timer that a jump may pass."""

    __slots__ = ()


def _kind() -> type[asyncio.TimerHandle]:
    """Return the kind of a timer by the module that sets it."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(BETWEEN):
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "")
    if name.startswith(UPKEEP):
        return Upkeep
    return Look if name.startswith(LOOKS) else asyncio.TimerHandle


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
        self.ahead = 0.0
        "Seconds by which jumps have brought the date ahead of `time`."
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

    def date(self) -> float:
        """Return the seconds that have passed, those of jumps included."""
        return self.time() + self.ahead

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        timer.__class__ = _kind()
        return timer

    @property
    def is_working(self) -> bool:
        """Whether a function runs in a thread of the loop."""
        return self._threads > 0

    def next_timer(self) -> float:
        """Return the seconds until the next timer that no jump may pass."""
        now = self.time()
        timers = [each for each in self._timers() if type(each) is asyncio.TimerHandle]
        return min((each.when() - now for each in timers if not each.cancelled()), default=float("inf"))

    def jump(self, seconds: float) -> None:
        """Bring the date ahead."""
        timers = self._timers()
        for each in timers:
            if not isinstance(each, Upkeep):
                each._when -= seconds  # type: ignore[attr-defined]
        heapq.heapify(timers)
        self.ahead += seconds

    def _timers(self) -> list[asyncio.TimerHandle]:
        return cast(list[asyncio.TimerHandle], self._scheduled)  # type: ignore[attr-defined]

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


class Traveller(Protocol):
    """The cluster whose time passes."""

    async def advance(self, seconds: float) -> None: ...

    def date(self) -> datetime: ...


class Clock:
    """The time of one cluster, for code on other threads."""

    def __init__(self, loop: TravelLoop, cluster: Traveller) -> None:
        self._loop = loop
        self._cluster = cluster

    def advance(self, seconds: float | timedelta) -> None:
        """Let this much time pass at once."""
        wanted = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if wanted < 0:
            raise ValueError("time cannot go backwards")
        asyncio.run_coroutine_threadsafe(self._cluster.advance(wanted), self._loop).result()

    def now(self) -> float:
        """Seconds on the cluster's clock."""
        return self._loop.date()

    def date(self) -> datetime:
        """Return the cluster's date."""
        return self._cluster.date()
