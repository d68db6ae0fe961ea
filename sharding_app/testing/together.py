"""`persist(..., also=fn)` in the in-memory cluster: the user's rows in the test's database, the events in memory.

The events are appended inside the function's transaction, as its last step, so that both are there or neither. (A commit
that fails after that, such as a deferred constraint's, is the one difference: only the real mode has one transaction.)
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sharding_app.ports.journal import EventRow, Journal


class MemoryTogether:
    """`runtime.owner.Together`."""

    def __init__(self, journal: Journal, atomic: Callable[[], AbstractContextManager[object]]) -> None:
        self._journal = journal
        self._atomic = atomic

    async def __call__(self, rows: Sequence[EventRow], functions: Sequence[Callable[[], object]]) -> None:
        loop = asyncio.get_running_loop()

        def run() -> None:
            with self._atomic():
                for function in functions:
                    function()
                if rows:
                    asyncio.run_coroutine_threadsafe(self._journal.append(rows), loop).result()

        await asyncio.to_thread(run)

    def close(self) -> None:
        """Nothing is held."""
