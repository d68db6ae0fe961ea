"""The journal: the right to append, the order of commit and answer, lost answers, and reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.journal_rows import JournalRows
from sharding_app.adapters.memory.sessions import Session
from sharding_app.entities.event_codec import FINISHED
from sharding_app.errors import BufferFull
from sharding_app.ports.journal import EventRow, History, JournalUnavailable
from sharding_app.protocol.recovery_limits import SLOW_SECONDS, Pace
from sharding_app.runtime.execution.command import Command, Services
from sharding_app.runtime.journal.appender import Appender
from sharding_app.runtime.journal.backlog import Backlog
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.journal.durable_state import DurableState
from sharding_app.runtime.journal.loader import Loader
from sharding_app.runtime.journal.locked import LockedShards
from sharding_app.runtime.journal.snapshots import Snapshots
from sharding_app.testing.simulation.own_rows import VirtualTogether
from tests.simulation.mistakes.mistake import Mistake, no, nothing, yes

QUICK_SECONDS = 0.25


def _answers_first(real: Any) -> Any:
    def commit(self: Command, records: Any) -> Any:
        self.services.replies.answer(self.source, self.message, self.value)
        return real(self, records)

    return commit


def _believes_the_error(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        await real(self, rows, on=on)
        return False

    return settle


def _ends_no_backend(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        self._writers[on].doubtful.clear()
        return await real(self, rows, on=on)  # type: ignore[no-any-return]

    return settle


def _ends_another_backend(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        return await real(self, rows, on=(on + 1) % self.connections)  # type: ignore[no-any-return]

    return settle


def _no_shard_is_busy(real: Any) -> Any:
    def hold(self: Backlog, connection: int, batch: list[Any]) -> None:
        real(self, connection, batch)
        self._busy.clear()

    return hold


def _takes_locked_ones_twice(real: Any) -> Any:
    def take(self: LockedShards[Any], busy: Any) -> list[Any]:
        freed = [key for key in self._free if key not in busy]
        taken = real(self, busy)
        self._commits |= {key: [each for each in taken if each.key == key] for key in freed}
        return taken  # type: ignore[no-any-return]

    return take


def _takes_busy_locked_ones(real: Any) -> Any:
    def take(self: LockedShards[Any], busy: Any) -> list[Any]:
        return real(self, ())  # type: ignore[no-any-return]

    return take


def _misses_the_last(real: Any) -> Any:
    def read(self: JournalRows, type_id: int, entities: Sequence[str], *rest: Any) -> dict[str, History]:
        histories: dict[str, History] = real(self, type_id, entities, *rest)
        for history in histories.values():
            if len(history.events) > 1 and not history.more:
                history.events.pop()
        return histories

    return read


def _full_after_all(real: Any) -> Any:
    def committed(self: Command) -> None:
        self.services.replies.fail(self.source, self.message, BufferFull("slow down"))
        real(self)

    return committed


def _rows_of_its_own_alone(real: Any) -> Any:
    async def append_together(self: Command, rows: Any, functions: Any, changes: Any) -> Any:
        left = [each for each in rows if each.name != FINISHED]
        self.slot.seq -= len(rows) - len(left)
        return await real(self, left, functions, changes)

    return append_together


def _hooks_fail_the_commit(real: Any) -> Any:
    def call(self: VirtualTogether, hook: Any) -> None:
        try:
            hook()
        except ZeroDivisionError as error:
            raise JournalUnavailable("a hook's own query failed") from error

    return call


def _sees_its_rows(real: Any) -> Any:
    async def settle(self: VirtualTogether, doubtful: Sequence[Session], rows: Sequence[EventRow]) -> bool:
        for session in doubtful:
            self._world.server.sessions.end(session)
        return self._world.server.journal.holds(rows)

    return settle


def _believes_without_the_right(real: Any) -> Any:
    async def settle_of(self: MemoryJournal, doubtful: Any, rows: Sequence[EventRow]) -> bool:
        if self._server.ends_own:
            return await real(self, doubtful, rows)  # type: ignore[no-any-return]
        return await self._read("settle", lambda: self._rows.holds(rows))

    return settle_of


def _pipelined_answers_first(real: Any) -> Any:
    def commit(self: Command, records: Any) -> Any:
        if self.services.is_pipelined:
            self.services.replies.answer(self.source, self.message, self.value)
        return real(self, records)

    return commit


def _tells_at_once(_: Any) -> Any:
    def after_tail(self: Command, send: Any) -> None:
        send()

    return after_tail


def _goes_on_behind_a_failure(_: Any) -> Any:
    def current(self: Appender, batch: list[Any]) -> list[Any]:
        batch = self._stuck.behind(batch) if self._stuck else batch
        return self._locked.behind(batch) if self._locked else batch

    return current


def _starts_anew(real: Any) -> Any:
    def restore(self: Loader, slot: Resident, last: Any) -> None:
        real(self, slot, last)
        slot.entity = self._new(slot)

    return restore


def _one_less(real: Any) -> Any:
    def committed(self: Snapshots, slot: Resident) -> None:
        real(self, slot)
        if (taken := self._waiting.get(slot.id)) is not None:
            self._waiting[slot.id] = msgspec.structs.replace(taken, seq=taken.seq - 1)

    return committed


def _grows_when_quick(real: Any) -> Any:
    def took(self: Pace, seconds: float) -> None:
        if seconds > SLOW_SECONDS:
            self.failed()
        elif seconds < QUICK_SECONDS:
            self.size = min(self._most, 2 * self.size)

    return took


STORING: dict[str, Mistake] = {
    "epoch_check_off": Mistake((1, 2, 3, 4), JournalRows, "fence", lambda _: nothing),
    "answer_before_commit": Mistake((2, 3), Command, "_commit", _answers_first),
    "settle_believes_not_committed": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _believes_the_error),
    "settle_ends_no_backend": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _ends_no_backend),
    "settle_ends_another_backend": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _ends_another_backend),
    "busy_shards_are_taken": Mistake((1, 3, 4, 5), Backlog, "_hold", _no_shard_is_busy),
    "busy_locked_shards_are_taken": Mistake((1, 3, 4, 5), LockedShards, "take", _takes_busy_locked_ones),
    "locked_shards_are_taken_twice": Mistake(
        (3, 4, 5, 8, 10), LockedShards, "take", _takes_locked_ones_twice
    ),
    "settle_needs_no_right": Mistake(
        (1, 3, 4, 5, 8), MemoryJournal, "settle_of", _believes_without_the_right
    ),
    "recovery_misses_last_event": Mistake((1, 2, 3, 4, 8), JournalRows, "read", _misses_the_last),
    "full_told_after_a_commit": Mistake((3,), Command, "committed", _full_after_all),
    "own_rows_alone": Mistake((1, 5), Command, "_append_together", _rows_of_its_own_alone),
    "own_rows_are_believed_on_sight": Mistake((3,), VirtualTogether, "_settle", _sees_its_rows),
    "hooks_fail_the_commit": Mistake((3,), VirtualTogether, "_call", _hooks_fail_the_commit),
    "pipelined_answers_first": Mistake((2, 3), Command, "_commit", _pipelined_answers_first),
    "pipelined_tells_what_it_saw": Mistake((2, 5), Command, "_after_tail", _tells_at_once),
    "rebuilt_beside_its_handler": Mistake((2,), Services, "outdate", lambda _: no),
    "goes_on_behind_a_failure": Mistake((1, 3, 4), Appender, "_current", _goes_on_behind_a_failure),
    "durable_state_not_loaded": Mistake((2, 3), Loader, "_restore", _starts_anew),
    "durable_state_of_a_failure": Mistake((2, 3), DurableState, "as_stored", lambda _: yes),
    "snapshot_off_by_one": Mistake((4,), Snapshots, "committed", _one_less),
    "only_quick_reads_grow": Mistake((10,), Pace, "took", _grows_when_quick),
    "retries_are_not_looked_up": Mistake((5,), JournalRows, "outcome", lambda _: nothing),
}
