"""The server: what a commit in doubt is worth, and what is left of a server that has gone back."""

from __future__ import annotations

from typing import Any

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.lifeline import MemoryLifelineSession
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost
from sharding_app.adapters.memory.standby import Standby
from sharding_app.core.shard import Slot
from sharding_app.ports.journal import JournalUnavailable, ShardsFenced
from sharding_app.runtime.erasing import Erasing
from sharding_app.simulation.mistakes.mistake import Mistake, nothing


def _believes_what_it_sees(real: Any) -> Any:
    def holds(self: Standby, kind: str, result: object) -> bool:
        return kind != "settle" and bool(real(self, kind, result))

    return holds


def _ends_nothing_before(real: Any) -> Any:
    async def after_late_ones(self: MemoryJournal, kind: str, request: Any) -> Any:
        return await self._read(kind, request)

    return after_late_ones


def _erases_once(real: Any) -> Any:
    async def run(self: Erasing, job: Any, slot: Slot) -> None:
        """What it was: an error ends the erasure, and what has come meanwhile loads the entity."""
        host, shard = self._host, job.shard
        try:
            job.erased = await host.journal.erase(
                host.execution.type_id,
                shard.number,
                shard.epoch,
                slot.id,
                at_most=5000,
                before=job.erased,
                by=job.by,
            )
        except (JournalUnavailable, ShardsFenced):
            pass
        finally:
            self._end(job, job.erased)
            self._go_on(slot)

    return run


def _opens_no_second(real: Any) -> Any:
    async def reach(self: Connection, kind: str, request: Any) -> Any:
        if self.session is None:
            await self.open()
        return await self.call(kind, request)

    return reach


def _raises_what_it_may_not(real: Any) -> Any:
    def end_those_of(self: MemoryServer, dead: str) -> None:
        if not self.ends_others and self.sessions.of(dead):
            raise ConnectionLost("the role may not end sessions of another")
        real(self, dead)

    return end_those_of


def _hears_nothing(real: Any) -> Any:
    def watch(self: MemoryLifelineSession, heard: Any) -> Any:
        return nothing

    return watch


SERVER: dict[str, Mistake] = {
    "burial_needs_the_right": Mistake((10, 13), MemoryServer, "end_those_of", _raises_what_it_may_not),
    "erases_late": Mistake((3,), Erasing, "_run", _erases_once),
    "late_marks_and_erasures": Mistake(
        (0, 3, 4, 10), MemoryJournal, "_after_late_ones", _ends_nothing_before
    ),
    "lost_line_is_not_opened_again": Mistake((8, 10), Connection, "reach", _opens_no_second),
    "lifeline_hears_nothing": Mistake((2,), MemoryLifelineSession, "watch", _hears_nothing),
    "settles_without_the_standby": Mistake((3,), Standby, "holds", _believes_what_it_sees),
}
