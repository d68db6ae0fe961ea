"""Recovery: entities that are wanted together are read together, in one query, and rebuilt a slice at a time.

Contract: `loaded` is called once for each wanted slot, with an error if it cannot be rebuilt, which names the event by
its number; that concerns this entity only. While the journal is not reachable, slots wait. The event loop is given back
between slices. No more entities are under way at a time, over all types of the node, than there are permits.

A snapshot that cannot be read falls back to the one before it, then to the events alone if they reach back to number
1; else the recovery fails, and says why.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from sharding_app.core.shard import Slot
from sharding_app.errors import EventUnreadable, ShardingError
from sharding_app.model.types import EntityType
from sharding_app.ports.journal import History, Journal, JournalUnavailable, StoredEvent
from sharding_app.quoting import told
from sharding_app.runtime.durable_state import fingerprint
from sharding_app.runtime.owner import RAISED, ends_job

logger = logging.getLogger("sharding.journal")

MAX_BATCH = 250
READERS = 2
"""While one of them rebuilds what it has read, the server reads for the other."""
SLICE = 100
RETRY_SECONDS = 0.1


class Permits:
    """How many entities of all types may be under way at a time."""

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, wanted: int) -> int:
        """Take as many as there are, up to `wanted`; wait while there are none."""
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
        new: Callable[[Slot], object],
        loaded: Callable[[Slot, BaseException | None], None],
        permits: Permits,
    ) -> None:
        self._type = entity_type
        self._type_id = type_id
        self._journal = journal
        self._new = new
        self._loaded = loaded
        self._permits = permits
        self._wanted: list[Slot] = []
        self._wake = asyncio.Event()
        self.entities = 0
        self.reads = 0

    def want(self, slot: Slot) -> None:
        self._wanted.append(slot)
        self._wake.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            await self._wake.wait()
            while self._wanted:
                count = await self._permits.take(min(len(self._wanted), MAX_BATCH))
                try:
                    batch, self._wanted = self._wanted[:count], self._wanted[count:]
                    if batch:  # else the other reader has taken them meanwhile
                        await self._load(batch)
                finally:
                    self._permits.give_back(count)
            self._wake.clear()

    async def _load(self, batch: list[Slot]) -> None:
        kind = self._type.kind
        histories: dict[str, History] = {}
        states: dict[str, StoredEvent] = {}
        while kind != "memory":
            try:
                self.reads += 1
                ids = [slot.id for slot in batch]
                if kind == "durable_state":
                    states = await self._journal.read_last(self._type_id, ids)
                else:
                    histories = await self._journal.read(self._type_id, ids)
                break
            except JournalUnavailable as lost:
                logger.warning("entities cannot be read: %s", lost, extra={"action": "recovery_waits"})
                await asyncio.sleep(RETRY_SECONDS)
        for number, slot in enumerate(batch):
            if number and number % SLICE == 0:
                await asyncio.sleep(0)
            self.entities += 1
            try:
                if kind == "durable_state":
                    self._restore(slot, states.get(slot.id))
                else:
                    await self._rebuild(slot, histories.get(slot.id) or History([], []))
            except RAISED as error:  # a user's applier may raise anything: only its entity fails
                task = asyncio.current_task()
                if ends_job(error, task, cancelled=task is not None and task.cancelling() > 0):
                    raise
                self._loaded(slot, error)
            else:
                self._loaded(slot, None)

    def _restore(self, slot: Slot, last: StoredEvent | None) -> None:
        entity = self._new(slot)
        if last is not None:
            self._type.load_state(entity, last.payload)
        slot.seq = 0 if last is None else last.seq
        slot.stored = (
            fingerprint(self._type.dump_state(entity)) if last is None else fingerprint(last.payload)
        )
        slot.entity = entity

    async def _rebuild(self, slot: Slot, history: History) -> None:
        entity, seq, events = self._new(slot), 0, history.events
        for number, snapshot in enumerate(history.snapshots):
            try:
                self._type.load_state(entity, snapshot.state)
            except ShardingError as error:
                logger.warning(
                    "a snapshot of an entity of %s cannot be read: %s", self._type.name, told(error),
                    extra={"action": "snapshot_unreadable", "entity_type": self._type.name},
                )  # fmt: skip
                entity = self._new(slot)
                continue
            seq = snapshot.seq
            if number:
                events = await self._read_from(slot, seq)
            break
        else:
            if history.snapshots:
                events = await self._read_from(slot, 0)
        slot.snapshot_seq = seq
        if events:
            if events[0].seq != seq + 1 or events[-1].seq != seq + len(events):
                lacks = f"the journal has no number {seq + 1}" if events[0].seq != seq + 1 else "it has a gap"
                raise EventUnreadable(
                    f"{self._type.name} {slot.id!r} cannot be rebuilt from its journal: {lacks}"
                )
            self._type.replay(entity, [event[1:] for event in events], first=seq + 1)
            seq = events[-1].seq
        elif history.snapshots and not seq:
            raise EventUnreadable(
                f"{self._type.name} {slot.id!r}: no snapshot can be read, and no event is left"
            )
        slot.seq = seq
        slot.entity = entity

    async def _read_from(self, slot: Slot, after: int) -> list[StoredEvent]:
        while True:
            try:
                return await self._journal.read_from(self._type_id, slot.id, after)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
