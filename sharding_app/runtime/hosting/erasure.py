"""Erasing entities at their home, and removing those that stand in an archive. The object goes
first; commands that wait start a fresh one.

An archived entity has to be idle, and is removed only if it is as it was when its archive was
written. Otherwise it stays, and is loaded again if it was in memory.

Contract: from the first piece to the last the entity is LOADING, so it neither runs nor writes. A
piece whose answer was lost is erased again, after the journal has made sure that the former
statement is over. The entity starts again only when nothing can be erased any more. If the shard is
lost, the erasure ends: the shard's epoch fences late statements.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, NamedTuple, Protocol

from sharding_app.ports.journal import Archival, Erasure, Journal, JournalUnavailable, ShardsFenced
from sharding_app.protocol.ids import EntityId, ShardId, is_entity_id
from sharding_app.protocol.shard import SlotState
from sharding_app.runtime.execution.context import close_context
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.remembered import Remembering
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from sharding_app.runtime.journal.loader import Loader
from sharding_app.runtime.telemetry.meter import Meter

PATIENCE_SECONDS = 5.0
"""Time after which the operator gets a report of progress."""
EVENTS_AT_ONCE = 5_000
"""Size of a piece. Other work on this connection waits for one piece at most."""
RETRY_SECONDS = 0.2


class UnderWay(NamedTuple):
    """An erasure that is not done yet."""

    begun: bool
    "False: the entity still works on a command."
    events: int


Answer = Literal["away"] | Erasure


class _Job:
    def __init__(self, shard: ResidentShard, entity: EntityId, by: str, mark: str | None = None) -> None:
        self.shard = shard
        self.entity = entity
        self.by = by
        self.mark = mark
        "Of an entity that is archived; None: it is erased."
        self.was_here = False
        "It was in memory."
        self.erased = Erasure()
        self.begun = False
        self.answer: asyncio.Future[Answer | Archival] = asyncio.get_running_loop().create_future()

    def end(self, answer: Answer | Archival) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class ErasureHost(Protocol):
    """The host of a type, as an erasure needs it."""

    shards: dict[ShardId, ResidentShard]
    journal: Journal
    clusters_journal: Journal | None
    "The journal in the cluster's own database, if the entities' is another one."
    meter: Meter
    now: Callable[[], float]
    execution: Execution
    loader: Loader
    entity_life: EntityLife
    remembering: Remembering | None

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    def has(self, number: ShardId, entity: EntityId) -> bool: ...

    def fenced_shard(self, shard: ResidentShard) -> None: ...

    def forget_messages(self, slot: Resident) -> None: ...

    def erased(self, slot: Resident) -> None: ...

    def is_followed(self, shard: ResidentShard, entity: str) -> bool: ...

    def finished(self, slot: Resident) -> None: ...

    def end_if_stopped(self, shard: ResidentShard) -> None: ...


class Erasing:
    def __init__(self, host: ErasureHost) -> None:
        self._host = host
        self._jobs: dict[tuple[ShardId, EntityId], _Job] = {}

    async def erase(self, number: ShardId, entity: EntityId, by: str) -> Answer | UnderWay:
        """Erase an entity, or report the progress of an erasure that an earlier call began."""
        shard = self._host.shards.get(number)
        job = self._jobs.get((number, entity))
        if job is None or job.shard is not shard:
            if shard is None or shard.stopping or not is_entity_id(entity):
                return "away"
            if not self._host.has(number, entity):
                return "away"
            job = self._jobs[number, entity] = _Job(shard, entity, by)
        if job.mark is not None:  # it is being archived: its erasure begins after that
            await asyncio.wait([job.answer], timeout=PATIENCE_SECONDS)
            return UnderWay(False, 0)
        if not job.begun:
            self._want(job)
        await asyncio.wait([job.answer], timeout=PATIENCE_SECONDS)
        if job.answer.done() and not isinstance(answer := job.answer.result(), Archival):
            return answer
        if self._host.shards.get(number) is not shard and not job.begun:
            self._end(job, "away")
            return "away"
        return UnderWay(job.begun, job.erased.events)

    async def archive(
        self, number: ShardId, entity: EntityId, mark: str
    ) -> Archival | Literal["away"] | UnderWay:
        """Remove an entity that stands in a closed file with this mark, unless it is in use."""
        shard = self._host.shards.get(number)
        job = self._jobs.get((number, entity))
        if shard is None or shard.stopping or not is_entity_id(entity):
            return "away"
        if not self._host.has(number, entity):
            return "away"
        if job is None or job.shard is not shard:
            slot = shard.slots.get(entity)
            in_use = slot is not None and (not slot.is_idle or slot.mailbox)
            if in_use or self._host.is_followed(shard, entity):
                return Archival(left="busy")
            job = self._jobs[number, entity] = _Job(shard, entity, "", mark)
            job.was_here = slot is not None
            self._begin(job)
        elif job.mark != mark:
            return Archival(left="busy")
        await asyncio.wait([job.answer], timeout=PATIENCE_SECONDS)
        if not job.answer.done():
            return UnderWay(True, 0)
        answer = job.answer.result()
        return answer if isinstance(answer, Archival) else "away"

    def wants(self, slot: Resident) -> bool:
        """Begin the erasure of an entity that has just stopped, or is to be loaded.

        False: none is wanted.
        """
        job = self._jobs.get((slot.shard.number, slot.id)) if self._jobs else None
        if job is None or job.begun or job.shard is not slot.shard:
            return False
        self._begin(job)
        return True

    def begun_in(self, shard: ResidentShard) -> set[EntityId]:
        """Return the entities of a shard that are being erased, and do not run."""
        return {job.entity for job in self._jobs.values() if job.shard is shard and job.begun}

    def _want(self, job: _Job) -> None:
        shard = job.shard
        slot = shard.slots.get(job.entity)
        if slot is None or (slot.state is SlotState.IDLE and not slot.passivating and not slot.pending):
            self._begin(job)
        elif shard.passivate(slot):
            # It stops after its present command and the commits behind it, without a stop message,
            # and `wants` is asked then.
            self._host.finished(slot)

    def _begin(self, job: _Job) -> None:
        shard, host = job.shard, self._host
        slot = shard.slots.get(job.entity)
        if slot is None:
            slot = shard.start(job.entity, host.now())
        elif slot.state is not SlotState.LOADING:
            close_context(slot.entity)
            shard.reload(slot)
        if slot is None:
            self._end(job, "away")
            return
        # It is LOADING, and nothing loads it: its messages wait in its mailbox.
        job.begun = True
        slot.seq = slot.snapshot_seq = 0
        slot.stored = None
        host.execution.snapshots.forget(job.entity)
        if job.mark is None:
            host.entity_life.failed_starts.forget(job.entity)
            host.meter.forget(job.entity)
            host.forget_messages(slot)
        host.spawn(self._run(job, slot))

    async def _run(self, job: _Job, slot: Resident) -> None:
        host, shard = self._host, job.shard
        answer: Answer | Archival = "away"
        try:
            if host.remembering is not None:
                await host.remembering.stored_again(shard, slot.id)
            while not slot.is_gone:
                try:
                    done = await self._piece(job, slot)
                except JournalUnavailable:
                    await asyncio.sleep(RETRY_SECONDS)
                except ShardsFenced:
                    host.fenced_shard(shard)
                else:
                    if done is not None:
                        answer = done
                        break
        finally:
            self._end(job, answer)
            left = isinstance(answer, Archival) and answer.left not in ("", "gone")
            self._go_on(slot, loads=left and job.was_here)

    async def _piece(self, job: _Job, slot: Resident) -> Answer | Archival | None:
        """Erase a piece, or remove an archived entity. None: more is to be erased."""
        host, shard, type_id = self._host, job.shard, self._host.execution.type_id
        if job.mark is not None:
            found = await host.journal.archive(type_id, shard.number, shard.epoch, slot.id, mark=job.mark)
            if found.left in ("", "gone"):
                self._erased(slot)
            return found
        job.erased += await host.journal.erase(
            type_id, shard.number, shard.epoch, slot.id,
            at_most=EVENTS_AT_ONCE, before=job.erased, by=job.by,
        )  # fmt: skip
        if not job.erased.whole:
            return None
        if host.clusters_journal is not None:  # messages from outside, and the timeline
            job.erased += await host.clusters_journal.erase(
                type_id, shard.number, shard.epoch, slot.id,
                at_most=EVENTS_AT_ONCE, before=job.erased, by=job.by,
            )  # fmt: skip
        host.forget_messages(slot)  # a page that was read meanwhile may have brought some back
        self._erased(slot)
        return job.erased

    def _erased(self, slot: Resident) -> None:
        """Tell all that would act on the entity that nothing of it is left."""
        host = self._host
        host.entity_life.forget_restart(slot)
        if host.remembering is not None:
            host.remembering.erased(slot)
        host.erased(slot)

    def _end(self, job: _Job, answer: Answer | Archival) -> None:
        key = job.shard.number, job.entity
        if self._jobs.get(key) is job:
            del self._jobs[key]
        job.end(answer)

    def _go_on(self, slot: Resident, *, loads: bool = False) -> None:
        """Load the entity for messages that wait; drop it if there are none. `loads`: load it
        all the same.
        """
        host, shard = self._host, slot.shard
        if slot.is_gone:
            return
        if loads:
            host.loader.want(slot)
        elif not slot.mailbox:
            shard.drop(slot)
            host.end_if_stopped(shard)
        elif host.remembering is None:
            host.loader.want(slot)
        else:
            host.remembering.started(slot)
