"""A question whose answer must be younger than the question.

Callers that come during a round share the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Rounds:
    def __init__(self, job: Callable[[], Awaitable[None]]) -> None:
        self._job = job
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def next(self) -> None:
        """Run the job, or wait for a run that begins from now on. Raises the job's error."""
        if self._next is None:
            self._next = asyncio.create_task(self._round(self._running), name="sharding round")
            self._next.add_done_callback(_look)
        await asyncio.shield(self._next)

    async def _round(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._next = self._next, None
        await self._job()


def _look(task: "asyncio.Task[None]") -> None:
    """Mark the job's error as retrieved: its callers get it, unless all of them have gone."""
    if not task.cancelled():
        task.exception()
