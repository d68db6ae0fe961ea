"""`persist(..., in_transaction=fn)` in the in-memory cluster: the user's rows in the test's
database, the events in memory.

The events are appended inside the function's transaction, as its last step, so that both are there
or neither. (A commit that fails after that, such as a deferred constraint's, is the one difference:
only the real mode has one transaction.)
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, Journal

logger = logging.getLogger("sharding.journal")


class MemoryTogether:
    """`runtime.base.interfaces.Together`."""

    def __init__(
        self,
        journal: Journal,
        atomic: Callable[[Callable[[], None]], AbstractContextManager[object]],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`atomic`: a transaction that calls functions after its commit, before any hook of the
        user. `check` raises an error if the user's functions have broken it.
        """
        self._journal = journal
        self._atomic = atomic
        self._check = check

    async def __call__(
        self,
        rows: Sequence[EventRow],
        functions: Sequence[Callable[[], object]],
        changes: MessageChanges | None = None,
    ) -> datetime | None:
        loop = asyncio.get_running_loop()
        hooks_run = False
        at: datetime | None = None

        def begin_hooks() -> None:
            nonlocal hooks_run
            hooks_run = True

        def run() -> None:
            nonlocal at
            try:
                with self._atomic(begin_hooks):
                    for function in functions:
                        function()
                    self._check()
                    append = self._journal.append(rows, changes)
                    at = asyncio.run_coroutine_threadsafe(append, loop).result()
            except Exception:
                if not hooks_run:
                    raise
                logger.exception("a transaction.on_commit hook raised: all is committed")

        await asyncio.to_thread(run)
        return at

    async def held_up(self, type_id: int, entity: str) -> str:
        """Return nothing: no server is asked."""
        return ""

    async def close(self) -> None:
        """Nothing is held."""
