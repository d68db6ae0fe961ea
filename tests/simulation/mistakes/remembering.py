"""Remembered entities: their marks, and their restarts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.errors import ShardingError
from sharding_app.ports.journal import Mark
from sharding_app.protocol.ids import EntityId
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.erasure import Erasing
from sharding_app.runtime.hosting.failed_starts import FailedStarts
from sharding_app.runtime.hosting.remembered import Remembering
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from tests.simulation.mistakes.mistake import Mistake, async_nothing, nothing


def _stores_no_mark(real: Any) -> Any:
    async def remember(self: MemoryJournal, marks: Sequence[Mark]) -> None:
        return None

    return remember


def _forgets_what_moves(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        shard, remembering = self._host.shards.get(number), self._host.remembering
        if shard is not None and remembering is not None:
            for entity in shard.slots:
                remembering.stopped(shard, entity)
        real(self, number, epoch)

    return stop


def _recalls_first_homes_only(real: Any) -> Any:
    def recall(self: Remembering, shard: ResidentShard) -> None:
        if shard.epoch == 1:
            real(self, shard)

    return recall


def _old_marks_live_on(real: Any) -> Any:
    async def remember(self: MemoryJournal, marks: Sequence[Mark]) -> None:
        self._reader.doubtful.clear()
        await real(self, marks)

    return remember


def _runs_again_whatever_it_said(real: Any) -> Any:
    def stopped_by_itself(self: EntityLife, slot: Resident) -> None:
        slot.passivating = False
        real(self, slot)

    return stopped_by_itself


def _one_stands_for_all(real: Any) -> Any:
    def refusal(self: FailedStarts, slot: Resident) -> ShardingError | None:
        known = next(iter(self._failed.values()), None)
        return known.failure if known is not None else None

    return refusal


def _forgets_what_fails(real: Any) -> Any:
    def loaded(self: EntityLife, slot: Resident, error: BaseException | None) -> None:
        remembering = self._host.remembering
        if error is not None and remembering is not None:
            remembering.stopped(slot.shard, slot.id)
        real(self, slot, error)

    return loaded


def _stores_those_that_run(real: Any) -> Any:
    def went_back(self: Remembering, shard: ResidentShard, running: Iterable[str]) -> None:
        waiting, self._recalled = self._recalled, OrderedDict()
        real(self, shard, running)
        self._recalled = waiting

    return went_back


def _reads_once(real: Any) -> Any:
    async def read(self: Remembering) -> None:
        batch = self._wanted[: self._read_together.now]
        await real(self)
        self._wanted = [each for each in self._wanted if each not in batch]

    return read


def _with_their_objects(real: Any) -> Any:
    def remember_again(self: ShardLife) -> None:
        real(self)
        self.outdate_all()

    return remember_again


def _erases_none(real: Any) -> Any:
    def begun_in(self: Erasing, shard: ResidentShard) -> set[EntityId]:
        return set()

    return begun_in


def _with_its_former_wish(real: Any) -> Any:
    async def write(self: Remembering) -> None:
        """Write of an entity at rest that it rests, and then once more that it runs."""
        rests = {key: wish for key, wish in self._wishes.items() if not wish.runs}
        await real(self)
        for key, wish in rests.items():
            if key not in self._wishes:
                self._wishes[key] = wish._replace(runs=True)

    return write


def _forgets_it_twice(real: Any) -> Any:
    def start_again(self: EntityLife, former: Resident) -> None:
        """Take the timer of a restart out, and once more."""
        real(self, former)
        del self._restarts[former.shard.number, former.id]

    return start_again


REMEMBERING: dict[str, Mistake] = {
    "remembered_not_stored": Mistake((0, 10), MemoryJournal, "remember", _stores_no_mark),
    "remembered_forgotten_on_move": Mistake((0, 10), ShardLife, "stop", _forgets_what_moves),
    "remembered_not_recalled": Mistake((0, 10), Remembering, "recall", _recalls_first_homes_only),
    "old_marks_live_on": Mistake((0, 10), MemoryJournal, "remember", _old_marks_live_on),
    "failed_starts_are_not_tried_again": Mistake((10,), FailedStarts, "_again", lambda _: nothing),
    "one_failed_start_refuses_all": Mistake((8,), FailedStarts, "refusal", _one_stands_for_all),
    "failed_starts_are_forgotten": Mistake((0, 10), EntityLife, "loaded", _forgets_what_fails),
    "lost_rows_are_not_stored_again": Mistake((0, 10), ShardLife, "remember_again", lambda _: nothing),
    "waiting_ones_are_not_stored_again": Mistake((0, 10), Remembering, "went_back", _stores_those_that_run),
    "shards_are_not_read_twice": Mistake((0, 10), Remembering, "_read", _reads_once),
    "erased_ones_are_stored_again": Mistake((0,), Erasing, "begun_in", _erases_none),
    "erasures_wait_for_no_row": Mistake((0,), Remembering, "stored_again", lambda _: async_nothing),
    "failovers_end_objects_in_memory": Mistake((18,), ShardLife, "remember_again", _with_their_objects),
    "rest_is_forgotten": Mistake((0, 10), EntityLife, "stopped_by_itself", _runs_again_whatever_it_said),
    "rest_is_overwritten": Mistake((0,), Remembering, "_write", _with_its_former_wish),
    "restarts_are_forgotten_twice": Mistake((0,), EntityLife, "_start_again", _forgets_it_twice),
}
