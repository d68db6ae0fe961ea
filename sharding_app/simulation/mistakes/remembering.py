"""Remembered entities: their marks, and what runs again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.core.shard import Shard, Slot
from sharding_app.ports.journal import Mark
from sharding_app.runtime.entity_life import EntityLife
from sharding_app.runtime.remembering import Remembering
from sharding_app.runtime.shard_life import ShardLife
from sharding_app.simulation.mistakes.mistake import Mistake


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
    def recall(self: Remembering, shard: Shard) -> None:
        if shard.epoch == 1:
            real(self, shard)

    return recall


def _old_marks_live_on(real: Any) -> Any:
    async def remember(self: MemoryJournal, marks: Sequence[Mark]) -> None:
        self._reader.doubtful.clear()
        await real(self, marks)

    return remember


def _runs_again_whatever_it_said(real: Any) -> Any:
    def stopped_by_itself(self: EntityLife, slot: Slot) -> None:
        slot.passivating = False
        real(self, slot)

    return stopped_by_itself


REMEMBERING: dict[str, Mistake] = {
    "remembered_not_stored": Mistake((0, 10), MemoryJournal, "remember", _stores_no_mark),
    "remembered_forgotten_on_move": Mistake((0, 10), ShardLife, "stop", _forgets_what_moves),
    "remembered_not_recalled": Mistake((0, 10), Remembering, "recall", _recalls_first_homes_only),
    "old_marks_live_on": Mistake((0, 10), MemoryJournal, "remember", _old_marks_live_on),
    "rest_is_forgotten": Mistake((0, 10), EntityLife, "stopped_by_itself", _runs_again_whatever_it_said),
}
