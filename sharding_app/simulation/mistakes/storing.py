"""The journal: who may append, what an answer waits for, what is believed of a lost one, what is read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.journal_rows import JournalRows
from sharding_app.adapters.memory.sessions import Session
from sharding_app.core.ids import Incarnation
from sharding_app.errors import BufferFull
from sharding_app.model.event_codec import FINISHED
from sharding_app.ports.journal import EventRow, History, JournalUnavailable
from sharding_app.runtime.execution import Execution
from sharding_app.runtime.waiting import WaitingCommands
from sharding_app.simulation.mistakes.mistake import Mistake, nothing
from sharding_app.simulation.own_rows import VirtualTogether


def _answers_first(real: Any) -> Any:
    def commit(self: Execution, slot: Any, source: Incarnation, message: Any, *rest: Any, **more: Any) -> Any:
        self.answers.answer(source, message, rest[-1])
        return real(self, slot, source, message, *rest, **more)

    return commit


def _believes_the_error(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow]) -> bool:
        await real(self, rows)
        return False

    return settle


def _ends_no_backend(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow]) -> bool:
        self._writer.doubtful.clear()
        return await real(self, rows)  # type: ignore[no-any-return]

    return settle


def _misses_the_last(real: Any) -> Any:
    def read(self: JournalRows, type_id: int, entities: Sequence[str], *rest: Any) -> dict[str, History]:
        histories: dict[str, History] = real(self, type_id, entities, *rest)
        for history in histories.values():
            if len(history.events) > 1 and not history.more:
                history.events.pop()
        return histories

    return read


def _full_after_all(real: Any) -> Any:
    def committed(self: Execution, commit: Any) -> None:
        self.answers.fail(commit.source, commit.message, BufferFull("slow down"))
        real(self, commit)

    return committed


def _rows_of_its_own_alone(real: Any) -> Any:
    async def append_together(self: WaitingCommands, slot: Any, rows: Any, functions: Any) -> None:
        left = [each for each in rows if each.name != FINISHED]
        slot.seq -= len(rows) - len(left)
        await real(self, slot, left, functions)

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


STORING: dict[str, Mistake] = {
    "epoch_check_off": Mistake((1, 2, 3, 4), JournalRows, "fence", lambda _: nothing),
    "answer_before_commit": Mistake((2, 3), Execution, "commit", _answers_first),
    "settle_believes_not_committed": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _believes_the_error),
    "settle_ends_no_backend": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _ends_no_backend),
    "settle_needs_no_right": Mistake(
        (1, 3, 4, 5, 8), MemoryJournal, "settle_of", _believes_without_the_right
    ),
    "recovery_misses_last_event": Mistake((1, 2, 3, 4, 8), JournalRows, "read", _misses_the_last),
    "full_told_after_a_commit": Mistake((3,), Execution, "committed", _full_after_all),
    "own_rows_alone": Mistake((1, 5), WaitingCommands, "append_together", _rows_of_its_own_alone),
    "own_rows_are_believed_on_sight": Mistake((3,), VirtualTogether, "_settle", _sees_its_rows),
    "hooks_fail_the_commit": Mistake((3,), VirtualTogether, "_call", _hooks_fail_the_commit),
    "retries_are_not_looked_up": Mistake((5,), JournalRows, "outcome", lambda _: nothing),
}
