"""Group commit: everything that was staged since the last commit goes out in one append, no artificial delay.

Contract: each `Commit` is resolved exactly once, after the outcome is known: None (it is in the journal), or why it
is not. One append is in flight at a time. A part that the server refuses is taken out, and the rest is appended again.
After a lost connection the journal is asked what became of the append before anything else is said or written.
A commit whose object was thrown away meanwhile (`generation`) is not written: its numbers would leave a gap.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum

from sharding_app.core.histogram import ROWS, Histogram
from sharding_app.core.ids import ShardId
from sharding_app.core.shard import Slot
from sharding_app.ports.journal import EventRow, Journal, JournalUnavailable, RowRefused, ShardsFenced

logger = logging.getLogger("sharding.journal")

MAX_ROWS = 250
"""Of one append. More of them at a time cost each row hardly less, and all would wait for the last: while one part is
being appended, the answers to the one before it are on their way, and so are the commands that they bring about."""
RETRY_SECONDS = 0.05
RETRY_MAX_SECONDS = 0.5


class NotCommitted(Enum):
    """Why a commit is not in the journal."""

    FENCED = "fenced"
    "Its shard has a newer epoch: it lives elsewhere."
    REFUSED = "refused"
    "The server would not take a row of it."
    SUPERSEDED = "superseded"
    "A commit before it failed, so its numbers no longer follow."
    UNAVAILABLE = "unavailable"
    "The connection was lost before the commit."


class Commit:
    """What one command staged. Subclasses say what happens afterwards."""

    __slots__ = ("generation", "rows", "slot")

    def __init__(self, slot: Slot, rows: Sequence[EventRow]) -> None:
        self.slot = slot
        self.generation = slot.generation
        self.rows = rows

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        raise NotImplementedError

    @property
    def key(self) -> tuple[int, ShardId]:
        row = self.rows[0]
        return row.type_id, row.shard


class JournalWriter:
    def __init__(self, journal: Journal, may_write: Callable[[], bool]) -> None:
        self._journal = journal
        self._may_write = may_write
        self._waiting: list[Commit] = []
        self._wake = asyncio.Event()
        self.commits = 0
        self.appends = 0
        self.rows = 0
        self.failures = 0
        self.batch_rows = Histogram(ROWS)
        self.append_seconds = Histogram()
        self.in_flight = False

    def put(self, commit: Commit) -> None:
        self._waiting.append(commit)
        self._wake.set()

    def resume(self) -> None:
        """The lease is valid again: go on with what waited."""
        self._wake.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting and self._may_write():
                batch = self._take()
                self.in_flight = True
                try:
                    await self._write(batch)
                finally:
                    self.in_flight = False

    def _take(self) -> list[Commit]:
        rows = 0
        for number, commit in enumerate(self._waiting):
            rows += len(commit.rows)
            if rows > MAX_ROWS and number:
                batch, self._waiting = self._waiting[:number], self._waiting[number:]
                return batch
        batch, self._waiting = self._waiting, []
        return batch

    async def _write(self, batch: list[Commit]) -> None:
        loop = asyncio.get_running_loop()
        while batch := self._current(batch):
            rows = [row for commit in batch for row in commit.rows]
            self.appends += 1
            began = loop.time()
            try:
                await self._journal.append(rows)
            except ShardsFenced as fenced:
                batch = self._fail(
                    [each for each in batch if each.key in fenced.shards], batch, NotCommitted.FENCED
                )
            except RowRefused as refused:
                await self._isolate(batch, refused)
                return
            except JournalUnavailable as lost:
                logger.warning("the journal's connection is lost: %s", lost, extra={"action": "journal_lost"})
                if await self._settle(rows):
                    self._commit(batch)
                    return
            else:
                self.append_seconds.add(loop.time() - began)
                self.batch_rows.add(len(rows))
                self._commit(batch)
                return

    def _current(self, batch: list[Commit]) -> list[Commit]:
        stale = [each for each in batch if each.generation != each.slot.generation]
        return self._fail(stale, batch, NotCommitted.SUPERSEDED) if stale else batch

    def _commit(self, batch: list[Commit]) -> None:
        for commit in batch:
            self.commits += 1
            self.rows += len(commit.rows)
            commit.resolved(None)

    def _fail(
        self, failed: list[Commit], batch: list[Commit], why: NotCommitted, detail: str = ""
    ) -> list[Commit]:
        marked = {id(each) for each in failed}
        for commit in failed:
            self.failures += 1
            commit.resolved(why, detail)
        return [each for each in batch if id(each) not in marked]

    async def _isolate(self, batch: list[Commit], refused: RowRefused) -> None:
        """Find the commit that holds the refused row, fail it, and append the others.

        Those before it go first: its failure is the failure of what lies behind it in a pipeline, and of nothing else.
        """
        if len(batch) == 1:
            self._fail(batch, batch, NotCommitted.REFUSED, refused.reason)
            return
        if refused.index is not None:
            first = 0
            for number, commit in enumerate(batch):
                first += len(commit.rows)
                if refused.index < first:
                    await self._write(batch[:number])
                    rest = self._fail([commit], batch[number:], NotCommitted.REFUSED, refused.reason)
                    await self._write(rest)
                    return
        middle = len(batch) // 2
        await self._write(batch[:middle])
        await self._write(batch[middle:])

    async def _settle(self, rows: Sequence[EventRow]) -> bool:
        delay = RETRY_SECONDS
        while True:
            try:
                return await self._journal.settle(rows)
            except JournalUnavailable:
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_MAX_SECONDS)
