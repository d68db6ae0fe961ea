"""Recovery: wanted entities are read together, and long histories a page at a time, in turn.

Contract: `loaded` is called once for each wanted slot. If the entity cannot be rebuilt, it is
called with an error that names the event by its number and concerns this entity only. While the
journal is not reachable, slots wait. One that the journal cannot read waits behind all others. No
read brings more rows or bytes than the limits allow. A read that fails, or takes long, is followed
by a smaller one. The event loop is given back between slices, inside one entity too. No more
entities are under way at a time, over all types of the node, than there are permits.

If a snapshot cannot be read, the one before it is taken, then the events alone if they reach back
to number 1. Otherwise the recovery fails, and says why.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import UnreadableEvent
from sharding_app.ports.journal import Bounds, History, Journal, JournalUnavailable, RowRefused, StoredEvent
from sharding_app.protocol.recovery_limits import Pace, RecoveryLimits
from sharding_app.runtime.base.interfaces import RAISED, Watch, ends_job
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.journal.durable_state import fingerprint
from sharding_app.runtime.journal.rebuilding import Folding, Gap, Rebuilding

logger = logging.getLogger("sharding.journal")

READERS = 2
"""While one reader rebuilds its entities, the server reads for the other."""
LEAST_EVENTS = 50
"""Least size of one read, however slow the server is."""
LONG_EVENTS = 100_000
"""A recovery of this length is logged before it begins."""
RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 1.0


class Permits:
    """The number of entities of all types that may be under way at a time."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, wanted: int) -> int:
        """Take up to `wanted` permits, and wait while there are none."""
        while not self.free:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        taken = min(wanted, self.free)
        self.free -= taken
        return taken

    def give_back(self, count: int) -> None:
        self.free += count
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)


class Loader:
    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        journal: Journal,
        new: Callable[[Resident], object],
        loaded: Callable[[Resident, BaseException | None], None],
        permits: Permits,
        limits: RecoveryLimits,
        watch: Watch,
    ) -> None:
        self._type = entity_type
        self._type_id = type_id
        self._journal = journal
        self._new = new
        self._loaded = loaded
        self._permits = permits
        self._limits = limits
        self._watch = watch
        self._wanted: list[Resident] = []
        self._wake = asyncio.Event()
        self._long: deque[Rebuilding] = deque()
        "Long histories, each read a page at a time."
        self._goes_on = asyncio.Event()
        self._again: set[Resident] = set()
        """Slots that are read from the beginning once more, since their history changed during the
        first read.
        """
        self._pace = Pace(min(limits.batch_entities, permits.limit))
        self._page_pace = Pace(limits.page_events, LEAST_EVENTS)
        self._failures = 0
        self.entities = 0
        self.reads = 0
        self.longest_events = 0
        "The most events that the recovery of one entity has read."

    def want(self, slot: Resident) -> None:
        self._wanted.append(slot)
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(self._serve())
                group.create_task(self._serve_long())

    async def _serve(self) -> None:
        folding = Folding(self._type, self._watch)
        while True:
            await self._wake.wait()
            while self._wanted:
                taken = await self._permits.take(min(len(self._wanted), self._pace.size))
                kept = 0
                try:
                    batch, self._wanted = self._wanted[:taken], self._wanted[taken:]
                    if batch:  # else the other reader has taken them
                        kept = await self._load(batch, folding)
                finally:
                    self._permits.give_back(taken - kept)
            self._wake.clear()

    async def _load(self, batch: list[Resident], folding: Folding) -> int:
        """Read and rebuild a batch.

        Return how many of them go on in pages, and keep their permits.
        """
        kind = self._type.kind
        if kind == "memory":
            for slot in batch:
                await self._finish(Rebuilding(slot, None), folding)
            return 0
        began = asyncio.get_running_loop().time()
        try:
            if kind == "durable_state":
                found: Mapping[str, History | StoredEvent | None] = await self._read_last(batch)
            else:
                found = await self._read(batch)
        except JournalUnavailable as lost:
            # The next batch is smaller. A single entity that the server cannot read lets all others
            # go first.
            still = [slot for slot in batch if _is_wanted(slot)]
            self._wanted = still + self._wanted if len(batch) > 1 else self._wanted + still
            self._pace.failed()
            await self._wait("entities cannot be read", lost, batch[0] if len(batch) == 1 else None)
            return 0
        except RowRefused as refused:
            return await self._alone(batch, folding, refused)
        self._failures = 0
        self._pace.took(asyncio.get_running_loop().time() - began)
        self._wanted[:0] = [slot for slot in batch if slot.id not in found]
        kept = 0
        for slot in batch:
            if slot.id in found:
                kept += await self._begin(slot, found[slot.id], folding)
        return kept

    async def _alone(self, batch: list[Resident], folding: Folding, refused: RowRefused) -> int:
        """Read entities one by one: the server refuses an id, and only that one fails."""
        if len(batch) > 1:
            return sum([await self._load([slot], folding) for slot in batch])
        self._loaded(batch[0], UnreadableEvent(f"{self._type.name}: {refused.reason}"))
        return 0

    async def _read(self, batch: list[Resident]) -> Mapping[str, History]:
        limits, pace = self._limits, self._pace
        self.reads += 1
        bounds = Bounds(
            pace.share(limits.batch_events, LEAST_EVENTS),
            pace.share(limits.batch_rows, LEAST_EVENTS),
            limits.batch_bytes,
        )
        return await self._journal.read(self._type_id, [slot.id for slot in batch], bounds)

    async def _read_last(self, batch: list[Resident]) -> Mapping[str, StoredEvent | None]:
        self.reads += 1
        bounds = Bounds(bytes=self._limits.batch_bytes)
        return await self._journal.read_last(self._type_id, [slot.id for slot in batch], bounds)

    async def _begin(self, slot: Resident, found: History | StoredEvent | None, folding: Folding) -> bool:
        """Rebuild from the first read. True: more of the history is to be read."""
        rebuilding = Rebuilding(slot, None)
        if not isinstance(found, History):
            await self._finish(rebuilding, folding, found)
            return False
        try:
            rebuilding.entity = self._new(slot)
            if found.snapshot is not None:
                rebuilding.start_from(self._type, found.snapshot, self._new(slot))
            if rebuilding.unreadable is None:
                await rebuilding.go_on(self._type, self._limits, folding, found.events)
        except RAISED as error:
            self._failed(rebuilding, error)
            return False
        if found.more or rebuilding.unreadable is not None:
            self._long.append(rebuilding)
            self._goes_on.set()
            return True
        await self._finish(rebuilding, folding)
        return False

    # -- Long histories ----------------------------------------------------------------------------

    async def _serve_long(self) -> None:
        """Read a page of each in turn, so that a very long history holds up no shorter one."""
        folding = Folding(self._type, self._watch)
        while True:
            await self._goes_on.wait()
            while self._long:
                rebuilding = self._long.popleft()
                goes_on = False
                try:
                    goes_on = _is_wanted(rebuilding.slot) and await self._page(rebuilding, folding)
                finally:
                    if not goes_on:
                        self._permits.give_back(1)
                if goes_on:
                    self._long.append(rebuilding)
            self._goes_on.clear()

    async def _page(self, rebuilding: Rebuilding, folding: Folding) -> bool:
        """Read and fold the next page. False: this entity is done, or has failed."""
        slot, limits = rebuilding.slot, self._limits
        began = asyncio.get_running_loop().time()
        try:
            if rebuilding.unreadable is not None:
                return await self._snapshot_before(rebuilding)
            if not rebuilding.pages:
                last = await self._journal.last_seq(self._type_id, slot.id)
                self._announce(slot, last - rebuilding.snapshot_seq)
                rebuilding.check(self._type, limits, last - rebuilding.snapshot_seq)
            self.reads += 1
            bounds = Bounds(events=self._page_pace.size, bytes=limits.page_bytes)
            page = await self._journal.read_from(self._type_id, slot.id, rebuilding.seq, bounds)
        except JournalUnavailable as lost:
            self._page_pace.failed()
            await self._wait("a long history cannot be read", lost, slot)
            return True
        except RAISED as error:
            self._failed(rebuilding, error)
            return False
        self._failures = 0
        self._page_pace.took(asyncio.get_running_loop().time() - began)
        rebuilding.pages += 1
        try:
            await rebuilding.go_on(self._type, limits, folding, page.events)
        except RAISED as error:
            self._failed(rebuilding, error)
            return False
        if not page.more:
            await self._finish(rebuilding, folding)
        return page.more

    async def _snapshot_before(self, rebuilding: Rebuilding) -> bool:
        slot, before = rebuilding.slot, rebuilding.unreadable or 0
        snapshot = await self._journal.read_snapshot(self._type_id, slot.id, before)
        rebuilding.unreadable = None
        if snapshot is not None:
            rebuilding.start_from(self._type, snapshot, self._new(slot))
        return True

    def _announce(self, slot: Resident, events: int) -> None:
        if events >= LONG_EVENTS:
            logger.warning(
                "%s %r has %d events after its last snapshot: its recovery takes long. Give the type `snapshot_every`",
                self._type.name, slot.id, events,
                extra={"action": "long_history", "entity_type": self._type.name, "entity": slot.id, "events": events},
            )  # fmt: skip

    # -- Ends --------------------------------------------------------------------------------------

    async def _finish(
        self, rebuilding: Rebuilding, folding: Folding, value: StoredEvent | None = None
    ) -> None:
        slot = rebuilding.slot
        try:
            if self._type.kind == "event_sourced":
                rebuilding.finish(self._type)
            else:
                self._restore(slot, value)
        except RAISED as error:  # a user's code may raise anything: only its entity fails
            self._failed(rebuilding, error)
        else:
            self.entities += 1
            self._again.discard(slot)
            self.longest_events = max(self.longest_events, rebuilding.events)
            self._loaded(slot, None)
        if folding.one_more():
            await folding.turn()

    def _failed(self, rebuilding: Rebuilding, error: BaseException) -> None:
        task = asyncio.current_task()
        if ends_job(error, task, cancelled=task is not None and task.cancelling() > 0):
            raise error
        slot = rebuilding.slot
        if isinstance(error, Gap):
            # Between two pages events that a newer snapshot covers may be deleted. Start from that
            # snapshot.
            if rebuilding.pages and slot not in self._again and _is_wanted(slot):
                self._again.add(slot)
                self.want(slot)
                return
            error = UnreadableEvent(
                f"{self._type.name} {slot.id!r} cannot be rebuilt from its journal: {error}"
            )
        self.entities += 1
        self._again.discard(slot)
        self._loaded(slot, error)

    def _restore(self, slot: Resident, last: StoredEvent | None) -> None:
        entity = self._new(slot)
        if self._type.kind == "durable_state":
            if last is not None:
                self._type.load_state(entity, last.payload)
            slot.stored = fingerprint(self._type.dump_state(entity) if last is None else last.payload)
        slot.seq = 0 if last is None else last.seq
        slot.entity = entity

    async def _wait(self, what: str, lost: JournalUnavailable, slot: Resident | None) -> None:
        """Log that the journal does not answer, and for which entity if it is one; then wait."""
        whose = "" if slot is None else f" of {slot.id!r}"
        logger.warning(
            "%s: %s%s: %s", what, self._type.name, whose, lost,
            extra={"action": "recovery_waits", "entity_type": self._type.name},
        )  # fmt: skip
        self._failures += 1
        await asyncio.sleep(min(RETRY_SECONDS * self._failures, RETRY_MAX_SECONDS))


def _is_wanted(slot: Resident) -> bool:
    """Whether the slot is still to be loaded: its shard may have left."""
    return not slot.is_gone
