"""Callers: N at once, each waiting for its answer before it asks again; or a fixed number each
second.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from sharding_app.errors import ShardingError

Call = Callable[[int], Awaitable[object]]
"""Run the operation with that number."""


class NothingMeasured(Exception):
    """No operation was done in the time of a measurement."""

    def __init__(self) -> None:
        super().__init__("no operation was done in the time of a measurement: give more --seconds")


class Driven:
    """The callers' measurements."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.elapsed = 0.0
        self.cpu_seconds = 0.0
        "CPU time of this process."


async def at_once(call: Call, in_flight: int, *, seconds: float = 0.0, count: int = 0) -> Driven:
    """Keep `in_flight` operations under way, for a time or until a number of them is done. Raises
    NothingMeasured.
    """
    driven = Driven()
    note = driven.seconds.append
    numbers = iter(range(count)) if count else iter(range(1 << 62))
    clock = time.perf_counter
    until = clock() + seconds if seconds else float("inf")

    async def caller() -> None:
        for number in numbers:
            begun = clock()
            if begun >= until:
                return
            await call(number)
            note(clock() - begun)

    begun, cpu = clock(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    if not driven.seconds:
        raise NothingMeasured
    driven.elapsed, driven.cpu_seconds = clock() - begun, time.process_time() - cpu
    return driven


async def paced(call: Call, per_second: float, callers: int, *, seconds: float) -> Driven:
    """Make `per_second` calls a second, by callers that wait for their answers; times count from
    when a call was due.

    An outage does not hide: a call that is late because earlier answers were late counts as late.
    Raises NothingMeasured.
    """
    driven = Driven()
    note = driven.seconds.append
    numbers = iter(range(int(per_second * seconds)))
    clock = time.perf_counter
    begun, cpu = clock(), time.process_time()

    async def caller() -> None:
        for number in numbers:
            due = begun + number / per_second
            if (early := due - clock()) > 0:
                await asyncio.sleep(early)
            await call(number)
            note(clock() - due)

    await asyncio.gather(*(caller() for _ in range(callers)))
    if not driven.seconds:
        raise NothingMeasured
    driven.elapsed, driven.cpu_seconds = clock() - begun, time.process_time() - cpu
    return driven


class FixedRate:
    """Makes N calls a second, whether answers come or not; `answered` gets each that succeeds."""

    def __init__(self, call: Call, per_second: int, answered: Callable[[int, float, float], None]) -> None:
        """`answered(number, due, ended)`, by the clock of `time.perf_counter`: a late start counts
        as late.
        """
        self.sent = 0
        self.succeeded = 0
        self.failures: dict[str, int] = {}
        self._call = call
        self._rate = per_second
        self._answered = answered
        self._under_way: set[asyncio.Task[None]] = set()
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Send no more, and wait for the calls under way."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _run(self) -> None:
        begun = time.perf_counter()
        while True:
            due = int((time.perf_counter() - begun) * self._rate)
            for number in range(self.sent, due):
                task = asyncio.ensure_future(self._one(number, begun + number / self._rate))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
            self.sent = max(self.sent, due)
            await asyncio.sleep(0.002)

    async def _one(self, number: int, due: float) -> None:
        try:
            await self._call(number)
        except ShardingError as error:
            name = type(error).__name__
            self.failures[name] = self.failures.get(name, 0) + 1
        else:
            self.succeeded += 1
            self._answered(number, due, time.perf_counter())
