"""Appends on one connection: until the outcome of each commit of a batch is known.

Contract: each `Commit` is resolved exactly once, when its outcome is known: with None (it is in the
journal), or with the reason why it is not. One append is in flight at a time. Commits that the
server refuses are taken out, and the rest is appended again. After a lost connection the journal is
asked for the outcome of the append before anything else of its shards is answered or written.

A server that answers with an error of its own is asked less and less often. If it goes on, the
batch is tried in parts. An entity whose rows are not taken even alone waits beside the others
(`runtime.journal.stuck`), and so do commits of shards whose rows are locked
(`runtime.journal.locked`).

A commit whose object was dropped since (`generation`) is not written: its numbers would leave a
gap. A commit whose message is gone, or is not due, fails alone (`NotCommitted.TAKEN`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from sharding_app.ports.deliveries import MessagesGone, joined
from sharding_app.ports.journal import (
    EventRow,
    Journal,
    JournalUnavailable,
    RowRefused,
    ShardsFenced,
    ShardsLocked,
)
from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.histogram import ROWS, Histogram
from sharding_app.redaction import traceable
from sharding_app.runtime.journal.backlog import RETRY_MAX_SECONDS, Backlog
from sharding_app.runtime.journal.commits import (
    Commit,
    NotCommitted,
    OnCommit,
    tell_committed,
    why_refused,
    why_taken,
)
from sharding_app.runtime.telemetry.meter import Hottest

logger = logging.getLogger("sharding.journal")

RETRY_SECONDS = 0.05
PATIENCE = 3
"""After this many errors of its own the server gets a batch in parts: one entity must not hold up
all.
"""
SLOW_SECONDS = 1.0
"""An attempt that fails after this time is not repeated: each entity is tried alone, once."""
STUCK_SHARE = 10
"""A stuck entity that fails again while the server takes others is to blame. It rests for this many
times the duration of its last attempt, since the others need the time.
"""
STUCK_REST_SECONDS = 60.0


class Figures:
    """What the appenders of a node have done."""

    def __init__(self) -> None:
        self.commits = 0
        self.appends = 0
        self.rows = 0
        self.rows_of_types: Counter[int] = Counter()
        "By the numbers of the types."
        self.failures = 0
        self.batch_rows = Histogram(ROWS)
        self.append_seconds = Histogram()
        self.writers: Hottest[tuple[str, int, int]] = Hottest()
        """Entities with the most events of late: id, number of the type, shard. One row of each
        append is sampled."""


class Appender:
    def __init__(
        self, journal: Journal, number: int, backlog: Backlog, figures: Figures, on_commit: OnCommit
    ) -> None:
        """`number`: its connection."""
        self._journal = journal
        self._number = number
        self._backlog = backlog
        self._stuck = backlog.stuck
        self._locked = backlog.locked
        self._figures = figures
        self._on_commit = on_commit
        self._errors = 0
        "Errors of the server's own since it last took something on this connection."

    async def run(self) -> None:
        wake = self._backlog.wakes[self._number]
        while True:
            await wake.wait()
            wake.clear()
            while await self._append_some():
                pass

    async def _append_some(self) -> bool:
        """Append what may be appended now. False: nothing."""
        backlog, number = self._backlog, self._number
        if batch := backlog.take(number):
            try:
                await self._write(batch)
            finally:
                backlog.release(number)
        due = backlog.may_try_stuck
        if due or self._stuck.outdated:
            stale = self._stuck.stale()
            self._fail(stale, stale, NotCommitted.SUPERSEDED)
        if not due:
            return bool(batch)
        if stuck := backlog.take_stuck(number):
            try:
                await self._write(stuck, stuck=True)
            finally:
                backlog.release(number)
                backlog.tried()
        return True

    async def _write(self, batch: list[Commit], *, stuck: bool = False, parted: bool = False) -> None:
        loop = asyncio.get_running_loop()
        losses = 0
        while batch := self._current(batch):
            changes, together = joined([commit.message_changes for commit in batch])
            if together < len(batch):
                # A later one depends on a timer that an earlier one changes.
                await self._write(batch[:together], stuck=stuck, parted=parted)
                batch = batch[together:]
                continue
            rows = [row for commit in batch for row in commit.rows]
            self._figures.appends += 1
            began = loop.time()
            try:
                at = await self._journal.append(rows, changes, on=self._number)
            except (ShardsFenced, ShardsLocked, MessagesGone) as error:
                batch = await self._without(batch, error, stuck=stuck, parted=parted)
            except RowRefused as refused:
                await self._isolate(batch, refused)
                return
            except JournalUnavailable as error:
                lasted = loop.time() - began
                _log(error, len(rows))
                if await self._settle(rows):
                    self._commit(batch, rows, None)
                    return
                if not error.answered:
                    if losses:  # after the first one a new connection may be there at once
                        await asyncio.sleep(_pause(losses))
                    losses += 1
                    continue
                if stuck:
                    self._rest(batch, lasted if self._stuck.others_go_through else 0.0)
                    return
                # A part is another question: before it is asked, the others need not wait.
                if parted or await self._gave_in(lasted):
                    await self._part(batch, lasted)
                    return
            else:
                self._errors = 0
                self._stuck.others_go_through |= not stuck
                self._figures.append_seconds.add(loop.time() - began)
                self._figures.batch_rows.add(len(rows))
                self._commit(batch, rows, at)
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
        return self._locked.behind(batch) if self._locked else batch

    def _commit(self, batch: list[Commit], rows: list[EventRow], at: datetime | None) -> None:
        self._backlog.ended()
        self._figures.commits += len(batch)
        self._figures.rows += len(rows)
        for each in batch:
            self._figures.rows_of_types[each.rows[0].type_id] += len(each.rows)
        sample = rows[len(rows) >> 1]
        self._figures.writers.add((sample.entity, sample.type_id, sample.shard), len(rows))
        if self._on_commit:
            tell_committed(self._on_commit, rows)
        if at is not None:
            for commit in batch:
                if commit.message_changes is not None:
                    commit.at = at
        _resolve(batch, None)

    async def _without(
        self,
        batch: list[Commit],
        error: ShardsFenced | ShardsLocked | MessagesGone,
        *,
        stuck: bool,
        parted: bool,
    ) -> list[Commit]:
        """Take out the commits to which an error belongs; return the others.

        Those before one whose message is gone go first: its failure drops their object.
        """
        if isinstance(error, ShardsFenced):
            fenced = [each for each in batch if each.key in error.shards]
            return self._fail(fenced, batch, NotCommitted.FENCED)
        if isinstance(error, ShardsLocked):
            self._locked.keep([each for each in batch if each.key in error.holders], error.holders)
            return [each for each in batch if each.key not in error.holders]
        if first := _behind_others(batch, error):
            await self._write(batch[:first], stuck=stuck, parted=parted)
            return batch[first:]
        return self._taken(batch, error)

    def _taken(self, batch: list[Commit], gone: MessagesGone) -> list[Commit]:
        """Fail the commits whose messages are gone, or are not due; return the others."""
        ids = gone.ids
        failed: dict[NotCommitted, list[Commit]] = {}
        for commit in batch:
            taken = (
                [each.id for each in commit.message_changes.takes if each.id in ids]
                if commit.message_changes
                else []
            )
            if taken:
                why, commit.early = why_taken(gone, taken)
                failed.setdefault(why, []).append(commit)
        if not failed:
            raise RuntimeError("the journal misses messages that no commit takes") from gone
        for why, commits in failed.items():
            batch = self._fail(commits, batch, why)
        return batch

    def _fail(
        self, failed: list[Commit], batch: list[Commit], why: NotCommitted, detail: str = ""
    ) -> list[Commit]:
        self._backlog.ended()
        marked = {id(each) for each in failed}
        self._figures.failures += len(failed)
        _resolve(failed, why, detail)
        return [each for each in batch if id(each) not in marked]

    async def _isolate(self, batch: list[Commit], refused: RowRefused) -> None:
        """Find the commit that holds the refused row, fail it, and append the others.

        Those before it go first: its failure fails the commits behind it in a pipeline, and no
        others.
        """
        if len(batch) == 1:
            self._fail(batch, batch, why_refused(refused), refused.reason)
            return
        if refused.index is not None:
            first = 0
            for number, commit in enumerate(batch):
                first += len(commit.rows)
                if refused.index < first:
                    await self._write(batch[:number])
                    rest = batch[number:]
                    # Otherwise it waits behind an earlier commit.
                    if not (self._stuck.holds(commit.slot) or self._locked.holds(commit)):
                        rest = self._fail([commit], rest, why_refused(refused), refused.reason)
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
            if self._rest(batch):
                logger.error(
                    "commits of an entity of %s wait beside the others: the server does not take them", slots[0].shard.type,
                    extra={"action": "entity_stuck", "entity_type": slots[0].shard.type},
                )  # fmt: skip
            return
        if lasted >= SLOW_SECONDS:
            for slot in slots:
                await self._write([each for each in batch if each.slot is slot], parted=True)
            return
        first = set(slots[: len(slots) // 2])
        await self._write([each for each in batch if each.slot in first], parted=True)
        await self._write([each for each in batch if each.slot not in first], parted=True)

    def _rest(self, batch: list[Commit], lasted: float = 0.0) -> bool:
        """Let commits wait beside the others, longer after an attempt that lasted. False: their
        objects were dropped during the attempt.
        """
        if batch := self._current(batch):
            self._stuck.keep(batch, min(lasted * STUCK_SHARE, STUCK_REST_SECONDS))
        return bool(batch)

    async def _settle(self, rows: Sequence[EventRow]) -> bool:
        failures = 0
        while True:
            try:
                return await self._journal.settle(rows, on=self._number)
            except JournalUnavailable as error:
                failures += 1
                if failures & (failures - 1) == 0:  # each time that it has lasted about twice as long
                    logger.warning(
                        "what became of %d event(s) is not known yet: %s", len(rows), error,
                        extra={"action": "journal_unsettled"},
                    )  # fmt: skip
                await asyncio.sleep(_pause(failures))


def _behind_others(batch: list[Commit], gone: MessagesGone) -> int:
    """Return the place of the first commit whose message is gone, behind another of its entity.

    0: there is none.
    """
    slots = set()
    for place, commit in enumerate(batch):
        changes = commit.message_changes
        if changes and commit.slot in slots and any(each.id in gone.ids for each in changes.takes):
            return place
        slots.add(commit.slot)
    return 0


def _resolve(commits: list[Commit], why: NotCommitted | None, detail: str = "") -> None:
    """Resolve commits. An error in the consequences of one costs none of the others."""
    for commit in commits:
        try:
            commit.resolved(why, detail)
        except MemoryError:
            raise  # nothing here can be relied on any more: the node ends
        except BaseException as error:
            logger.error(
                "a bug: what follows a commit of %s failed", commit.slot.shard.type, exc_info=traceable(error),
                extra={"action": "internal_error"},
            )  # fmt: skip


def _pause(failures: int) -> float:
    """Return the pause after this many failures."""
    return doubled(RETRY_SECONDS, failures - 1, RETRY_MAX_SECONDS)


def _log(error: JournalUnavailable, rows: int) -> None:
    if error.answered:
        text, action = "the journal's server does not take %d event(s) now: %s", "journal_error"
    else:
        text, action = "the journal does not answer, %d event(s) are in doubt: %s", "journal_lost"
    logger.warning(text, rows, error, extra={"action": action})
