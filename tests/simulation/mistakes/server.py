"""The server: commits in doubt, and a server that has gone back in time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.lifeline import MemoryLifelineSession
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ConnectionLost
from sharding_app.adapters.memory.standby import Standby
from sharding_app.ports.journal import JournalUnavailable, ShardsFenced
from sharding_app.protocol.shard import SlotState
from sharding_app.runtime.hosting.erasure import Erasing
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.journal.snapshots import Snapshots
from tests.simulation.mistakes.mistake import Mistake, nothing


def _believes_what_it_sees(real: Any) -> Any:
    def holds(self: Standby, kind: str, result: object) -> bool:
        return kind != "settle" and bool(real(self, kind, result))

    return holds


def _ends_nothing_before(real: Any) -> Any:
    async def after_late_ones(self: MemoryJournal, kind: str, request: Any) -> Any:
        return await self._wrote(kind, request)

    return after_late_ones


def _looks_for_late_ones_before_its_turn(real: Any) -> Any:
    async def reach_after_late_ones(self: Connection, kind: str, request: Any) -> Any:
        """What it was: what became late while it waited for its turn is left alone."""
        late = list(self.doubtful)

        def end_and_execute() -> Any:
            self.server.end_own(late)
            return request()

        answer = await self.reach(kind, end_and_execute)
        self.doubtful = [each for each in self.doubtful if each not in late]
        return answer

    return reach_after_late_ones


async def _erase_a_part(erasing: Erasing, job: Any, slot: Resident) -> Any:
    """Erase up to 5,000 rows of an entity, and return the sums so far."""
    host, shard = erasing._host, job.shard
    return await host.journal.erase(
        host.execution.type_id,
        shard.number,
        shard.epoch,
        slot.id,
        at_most=5000,
        before=job.erased,
        by=job.by,
    )


def _erases_once(real: Any) -> Any:
    async def run(self: Erasing, job: Any, slot: Resident) -> None:
        """Erase as it once was: an error ends the erasure, and later messages load the entity."""
        try:
            job.erased = await _erase_a_part(self, job, slot)
        except (JournalUnavailable, ShardsFenced):
            pass
        finally:
            self._end(job, job.erased)
            self._go_on(slot)

    return run


def _keeps_the_object(real: Any) -> Any:
    def begin(self: Erasing, job: Any) -> None:
        slot = job.shard.slots.get(job.entity)
        if slot is None or slot.state is not SlotState.IDLE:
            real(self, job)
            return

        async def run() -> None:
            with suppress(JournalUnavailable, ShardsFenced):
                job.erased = await _erase_a_part(self, job, slot)
            self._end(job, job.erased)

        job.begun = True
        self._host.spawn(run())

    return begin


def _leaves_the_snapshots(real: Any) -> Any:
    def erase(self: JournalWrites, type_id: int, shard: Any, epoch: Any, entity: str, at_most: int) -> Any:
        kept = dict(self._rows.snapshots.get((type_id, entity), {}))
        erased = yield from real(self, type_id, shard, epoch, entity, at_most)
        self._rows.snapshots[type_id, entity] = kept
        return erased

    return erase


def _takes_what_is_there(real: Any) -> Any:
    def archive(self: JournalWrites, type_id: int, shard: Any, epoch: Any, entity: str, mark: str) -> Any:
        """Remove an entity as it is now, whatever its file has."""
        return real(self, type_id, shard, epoch, entity, self._rows.mark(type_id, shard, entity))

    return archive


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
    "archives_take_what_is_there": Mistake((4,), JournalWrites, "archive", _takes_what_is_there),
    "burial_needs_the_right": Mistake((10, 13), MemoryServer, "end_those_of", _raises_what_it_may_not),
    "erased_objects_go_on": Mistake((2, 4), Erasing, "_begin", _keeps_the_object),
    "erased_snapshots_are_read": Mistake((2, 4), JournalWrites, "erase", _leaves_the_snapshots),
    "erased_snapshots_are_stored": Mistake((4,), Snapshots, "forget", lambda _: nothing),
    "lost_snapshots_are_stored": Mistake((4,), Snapshots, "forget_all", lambda _: nothing),
    "erases_late": Mistake((3,), Erasing, "_run", _erases_once),
    "late_marks_and_erasures": Mistake(
        (0, 3, 4, 10), MemoryJournal, "_after_late_ones", _ends_nothing_before
    ),
    "late_ones_looked_for_too_early": Mistake(
        (3, 4), Connection, "reach_after_late_ones", _looks_for_late_ones_before_its_turn
    ),
    "lost_line_is_not_opened_again": Mistake((8, 10), Connection, "reach", _opens_no_second),
    "lifeline_hears_nothing": Mistake((2,), MemoryLifelineSession, "watch", _hears_nothing),
    "settles_without_the_standby": Mistake((3,), Standby, "holds", _believes_what_it_sees),
}
