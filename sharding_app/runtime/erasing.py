"""Erasing entities where they live: the object goes first, and the commands that wait start one without a past.

Contract: from the first piece to the last one the entity is LOADING, so nothing of it runs and nothing is written. A
piece whose answer was lost is erased again, and the journal sees the former statement gone first: the entity begins anew
only when nothing can be erased any more. A shard that is lost meanwhile ends the erasure: its epoch fences what is late.
"""

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from sharding_app.core.ids import EntityId, ShardId, is_entity_id
from sharding_app.core.shard import Shard, Slot, SlotState
from sharding_app.ports.journal import Erasure, JournalUnavailable, ShardsFenced
from sharding_app.runtime.entity_context import close_context

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host

PATIENCE_SECONDS = 5.0
"""After which the operator is told how far it is."""
EVENTS_AT_ONCE = 5_000
"""Of one piece: what else waits for this line waits for one piece."""
RETRY_SECONDS = 0.2


class UnderWay(NamedTuple):
    """An erasure that is not done yet."""

    begun: bool
    "False: the entity is still at work on a command."
    events: int


Answer = Literal["away"] | Erasure


class _Job:
    def __init__(self, shard: Shard, entity: EntityId, by: str) -> None:
        self.shard = shard
        self.entity = entity
        self.by = by
        self.erased = Erasure()
        self.begun = False
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def end(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


class Erasing:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._jobs: dict[tuple[ShardId, EntityId], _Job] = {}

    async def erase(self, number: ShardId, entity: EntityId, by: str) -> Answer | UnderWay:
        """Erase an entity, or say how far an erasure is that an earlier call began."""
        shard = self._host.shards.get(number)
        job = self._jobs.get((number, entity))
        if job is None or job.shard is not shard:
            if shard is None or shard.stopping or not is_entity_id(entity):
                return "away"
            job = self._jobs[number, entity] = _Job(shard, entity, by)
        if not job.begun:
            self._want(job)
        await asyncio.wait([job.answer], timeout=PATIENCE_SECONDS)
        if job.answer.done():
            return job.answer.result()
        if self._host.shards.get(number) is not shard and not job.begun:
            self._end(job, "away")
            return "away"
        return UnderWay(job.begun, job.erased.events)

    def wants(self, slot: Slot) -> bool:
        """Whether this entity, which has just stopped or is to be loaded, is erased first."""
        job = self._jobs.get((slot.shard.number, slot.id)) if self._jobs else None
        if job is None or job.begun or job.shard is not slot.shard:
            return False
        self._begin(job)
        return True

    def _want(self, job: _Job) -> None:
        shard = job.shard
        slot = shard.slots.get(job.entity)
        if slot is None or (slot.state is SlotState.IDLE and not slot.passivating and not slot.pending):
            self._begin(job)
        else:  # it stops after its present command, without a stop message, and `wants` is asked then
            shard.passivate(slot)

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
        # It is loading now, and nothing loads it: what comes for it waits in its mailbox.
        job.begun = True
        slot.seq = slot.snapshot_seq = 0
        slot.stored = None
        host.execution.snapshots.forget(job.entity)
        host.recovery.failed_starts.forget(job.entity)
        host.meter.forget(job.entity)
        host.spawn(self._run(job, slot))

    async def _run(self, job: _Job, slot: Slot) -> None:
        host, shard = self._host, job.shard
        answer: Answer = "away"
        try:
            while shard.slots.get(slot.id) is slot:
                try:
                    piece = await host.journal.erase(
                        host.execution.type_id, shard.number, shard.epoch, slot.id,
                        at_most=EVENTS_AT_ONCE, before=job.erased, by=job.by,
                    )  # fmt: skip
                except JournalUnavailable:
                    await asyncio.sleep(RETRY_SECONDS)
                except ShardsFenced:
                    host.fenced_shard(shard)
                else:
                    job.erased += piece
                    if piece.whole:
                        answer = job.erased
                        break
        finally:
            self._end(job, answer)
            self._go_on(slot)

    def _end(self, job: _Job, answer: Answer) -> None:
        key = job.shard.number, job.entity
        if self._jobs.get(key) is job:
            del self._jobs[key]
        job.end(answer)

    def _go_on(self, slot: Slot) -> None:
        """Begin anew for what has come meanwhile; else there is nothing left of it."""
        host, shard = self._host, slot.shard
        if shard.slots.get(slot.id) is not slot:
            return
        if not slot.mailbox:
            shard.drop(slot)
            if shard.stopped:
                host.shard_life.ended(shard)
        elif host.remembering is None:
            host.loader.want(slot)
        else:
            host.remembering.started(slot)
