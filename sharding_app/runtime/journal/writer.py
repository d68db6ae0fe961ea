"""Group commit: one append takes all commits since the last one, without an artificial delay.

Contract: each `Commit` is resolved exactly once, when its outcome is known: with None (it is in the
journal), or with the reason why it is not. One append is in flight at a time. Commits that the
server refuses are taken out, and the rest is appended again. After a lost connection the journal is
asked for the outcome of the append before anything else is answered or written.

A server that answers with an error of its own is asked less and less often. If it goes on, the
batch is tried in parts. An entity whose rows are not taken even alone waits beside the others
(`runtime.journal.stuck`), and so do commits of shards whose rows are locked
(`runtime.journal.locked`).

A commit whose object was dropped since (`generation`) is not written: its numbers would leave a
gap.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from sharding_app.ports.journal import (
    EventRow,
    Journal,
    JournalUnavailable,
    RowRefused,
    ShardsFenced,
    ShardsLocked,
)
from sharding_app.protocol.histogram import ROWS, Histogram
from sharding_app.redaction import traceable
from sharding_app.runtime.journal.commits import Commit, NotCommitted
from sharding_app.runtime.journal.locked import LockedShards
from sharding_app.runtime.journal.stuck import Stuck

logger = logging.getLogger("sharding.journal")

MAX_ROWS = 250
"""Rows of one append. In larger ones a row is hardly cheaper, and all commits would wait for the
last.

While one part is appended, the answers to the one before it are on their way, and so are the
commands that they lead to.
"""
RETRY_SECONDS = 0.05
RETRY_MAX_SECONDS = 0.5
PATIENCE = 3
"""After this many errors of its own the server gets a batch in parts: one entity must not hold up
all.
"""
SLOW_SECONDS = 1.0
"""An attempt that fails after this time is not repeated: each entity is tried alone, once."""
STUCK_SHARE = 10
"""A stuck entity rests for this many times the duration of its last attempt. The others need the
time.
"""
STUCK_REST_SECONDS = 60.0


class JournalWriter:
    def __init__(self, journal: Journal, may_write: Callable[[], bool]) -> None:
        self._journal = journal
        self._may_write = may_write
        self._waiting: list[Commit] = []
        self._wake = asyncio.Event()
        self._stuck: Stuck[Commit] = Stuck(RETRY_MAX_SECONDS, MAX_ROWS, self._wake.set)
        self.locked: LockedShards[Commit] = LockedShards(journal, self._wake.set)
        self._errors = 0
        "Errors of the server's own since it last took something."
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
        """Go on with the commits that wait: the lease is valid again."""
        self._wake.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._stuck) + len(self.locked)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._serve())
            group.create_task(self.locked.run())

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (self._waiting or self._stuck.due or self.locked.due) and self._may_write():
                self.in_flight = True
                self._waiting[:0] = self.locked.take()
                try:
                    if self._waiting:
                        await self._write(self._take())
                    if self._stuck.due and self._may_write():
                        await self._try_stuck()
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

    async def _write(self, batch: list[Commit], *, stuck: bool = False, parted: bool = False) -> None:
        loop = asyncio.get_running_loop()
        losses = 0
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
            except ShardsLocked as locked:
                self.locked.keep([each for each in batch if each.key in locked.holders], locked.holders)
                batch = [each for each in batch if each.key not in locked.holders]
            except JournalUnavailable as error:
                lasted = loop.time() - began
                _log(error, len(rows))
                if await self._settle(rows):
                    self._commit(batch)
                    return
                if not error.answered:
                    if losses:  # after the first one a new connection may be there at once
                        await asyncio.sleep(_pause(losses))
                    losses += 1
                    continue
                if stuck:
                    self._stuck.keep(batch, _rest(lasted))
                    return
                # A part is another question: before it is asked, the others need not wait.
                if parted or await self._gave_in(lasted):
                    await self._part(batch, lasted)
                    return
            else:
                self._errors = 0
                self.append_seconds.add(loop.time() - began)
                self.batch_rows.add(len(rows))
                self._commit(batch)
                return

    async def _gave_in(self, lasted: float) -> bool:
        """Pause after an error of the server's own. True: try the batch in parts."""
        self._errors += 1
        if (
            lasted >= SLOW_SECONDS or self._stuck
        ):  # some are known to be to blame, and the others need not wait
            return True
        await asyncio.sleep(_pause(self._errors))
        return self._errors >= PATIENCE

    def _current(self, batch: list[Commit]) -> list[Commit]:
        stale = [each for each in batch if each.generation != each.slot.generation]
        if stale:
            batch = self._fail(stale, batch, NotCommitted.SUPERSEDED)
        if self._stuck:
            batch = self._stuck.behind(batch)
        return self.locked.behind(batch) if self.locked else batch

    def _commit(self, batch: list[Commit]) -> None:
        for commit in batch:
            self.commits += 1
            self.rows += len(commit.rows)
            _resolve(commit, None)

    def _fail(
        self, failed: list[Commit], batch: list[Commit], why: NotCommitted, detail: str = ""
    ) -> list[Commit]:
        marked = {id(each) for each in failed}
        for commit in failed:
            self.failures += 1
            _resolve(commit, why, detail)
        return [each for each in batch if id(each) not in marked]

    async def _isolate(self, batch: list[Commit], refused: RowRefused) -> None:
        """Find the commit that holds the refused row, fail it, and append the others.

        Those before it go first: its failure fails the commits behind it in a pipeline, and no
        others.
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
                    rest = batch[number:]
                    # Otherwise it waits behind an earlier commit.
                    if not (self._stuck.holds(commit.slot) or self.locked.holds(commit)):
                        rest = self._fail([commit], rest, NotCommitted.REFUSED, refused.reason)
                    await self._write(rest)
                    return
        middle = len(batch) // 2
        await self._write(batch[:middle])
        await self._write(batch[middle:])

    async def _part(self, batch: list[Commit], lasted: float = 0.0) -> None:
        """Try a batch in parts: some rows may be to blame for the server's errors.

        The commits of one entity stay together. After a long attempt each entity is tried by
        itself: another long one costs more than the short ones of all others together.
        """
        slots = list(dict.fromkeys(each.slot for each in batch))
        if len(slots) == 1:
            logger.error(
                "commits of an entity of %s wait beside the others: the server does not take them", slots[0].shard.type,
                extra={"action": "entity_stuck", "entity_type": slots[0].shard.type},
            )  # fmt: skip
            self._stuck.keep(batch, _rest(lasted))
            return
        if lasted >= SLOW_SECONDS:
            for slot in slots:
                await self._write([each for each in batch if each.slot is slot], parted=True)
            return
        first = set(slots[: len(slots) // 2])
        await self._write([each for each in batch if each.slot in first], parted=True)
        await self._write([each for each in batch if each.slot not in first], parted=True)

    async def _try_stuck(self) -> None:
        stale = self._stuck.stale()
        self._fail(stale, stale, NotCommitted.SUPERSEDED)
        await self._write(self._stuck.take(), stuck=True)
        self._stuck.go_on()

    async def _settle(self, rows: Sequence[EventRow]) -> bool:
        failures = 0
        while True:
            try:
                return await self._journal.settle(rows)
            except JournalUnavailable as error:
                failures += 1
                if failures & (failures - 1) == 0:  # each time that it has lasted about twice as long
                    logger.warning(
                        "what became of %d event(s) is not known yet: %s", len(rows), error,
                        extra={"action": "journal_unsettled"},
                    )  # fmt: skip
                await asyncio.sleep(_pause(failures))


def _resolve(commit: Commit, why: NotCommitted | None, detail: str = "") -> None:
    """Resolve one commit. An error in its consequences costs none of the others."""
    try:
        commit.resolved(why, detail)
    except MemoryError:
        raise  # nothing here can be relied on any more: the node ends
    except BaseException as error:
        logger.error(
            "a bug: what follows a commit of %s failed", commit.slot.shard.type, exc_info=traceable(error),
            extra={"action": "internal_error"},
        )  # fmt: skip


def _rest(lasted: float) -> float:
    """Return how long an entity rests after an attempt of this duration."""
    return min(lasted * STUCK_SHARE, STUCK_REST_SECONDS)


def _pause(failures: int) -> float:
    """Return the pause after this many failures."""
    return min(RETRY_SECONDS * 2.0 ** min(failures - 1, 10), RETRY_MAX_SECONDS)


def _log(error: JournalUnavailable, rows: int) -> None:
    if error.answered:
        text, action = "the journal's server does not take %d event(s) now: %s", "journal_error"
    else:
        text, action = "the journal does not answer, %d event(s) are in doubt: %s", "journal_lost"
    logger.warning(text, rows, error, extra={"action": action})
