"""How the lifeline waits: for answers of a server that may never come, and between its pings, until somebody wakes it.

Contract: nothing here waits for longer than it was told. A call that ignores its cancellation is left behind.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from sharding_app.ports.lifeline import SessionLost

T = TypeVar("T")


class Waits:
    def __init__(self, answer_seconds: float) -> None:
        self._answer_seconds = answer_seconds
        self._abandoned: set[asyncio.Future[Any]] = set()
        self._sleepers: dict[int, asyncio.Future[None]] = {}

    async def answer(self, call: Coroutine[Any, Any, T], seconds: float = 0.0) -> T:
        """Await an answer for so long at most, or for as long as is usual. Raises SessionLost, or what the call raises."""
        limit = seconds or self._answer_seconds
        task = asyncio.ensure_future(call)
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise SessionLost(f"no answer within {limit:g} s")
        return task.result()

    async def pause(self, who: int, seconds: float) -> None:
        """Sleep for so long, or until somebody wakes `who`."""
        loop = asyncio.get_running_loop()
        sleeper = self._sleepers[who] = loop.create_future()
        timer = loop.call_later(seconds, _finish, sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.pop(who, None)

    def wake(self, who: int) -> None:
        if (sleeper := self._sleepers.get(who)) is not None:
            _finish(sleeper)

    def _abandon(self, task: "asyncio.Future[Any]") -> None:
        def forget(done: "asyncio.Future[Any]") -> None:
            self._abandoned.discard(done)
            if not done.cancelled():
                done.exception()

        self._abandoned.add(task)
        task.add_done_callback(forget)
        task.cancel()


def _finish(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)
