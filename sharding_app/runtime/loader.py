"""Recovery: entities that are wanted together are read together, in one query, and rebuilt a slice at a time.

Contract: `loaded` is called once for each wanted slot, with an error if it cannot be rebuilt; that concerns this
entity only. While the journal is not reachable, slots wait. The event loop is given back between slices.
"""

import asyncio
import logging
from collections.abc import Callable

from sharding_app.core.shard import Slot
from sharding_app.errors import EventUnreadable
from sharding_app.model.types import EntityType
from sharding_app.ports.journal import History, Journal, JournalUnavailable

logger = logging.getLogger("sharding.journal")

MAX_BATCH = 1000
SLICE = 200
RETRY_SECONDS = 0.1


class Loader:
    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        journal: Journal,
        loaded: Callable[[Slot, Exception | None], None],
    ) -> None:
        self._type = entity_type
        self._type_id = type_id
        self._journal = journal
        self._loaded = loaded
        self._wanted: list[Slot] = []
        self._wake = asyncio.Event()
        self.entities = 0
        self.reads = 0

    def want(self, slot: Slot) -> None:
        self._wanted.append(slot)
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                batch, self._wanted = self._wanted[:MAX_BATCH], self._wanted[MAX_BATCH:]
                await self._load(batch)

    async def _load(self, batch: list[Slot]) -> None:
        histories: dict[str, History] = {}
        if self._type.kind != "memory":
            while True:
                try:
                    self.reads += 1
                    histories = await self._journal.read(self._type_id, [slot.id for slot in batch])
                    break
                except JournalUnavailable as lost:
                    logger.warning("entities cannot be read: %s", lost, extra={"action": "recovery_waits"})
                    await asyncio.sleep(RETRY_SECONDS)
        for number, slot in enumerate(batch):
            if number and number % SLICE == 0:
                await asyncio.sleep(0)
            self.entities += 1
            try:
                self._rebuild(slot, histories.get(slot.id))
            except Exception as error:
                self._loaded(slot, error)
            else:
                self._loaded(slot, None)

    def _rebuild(self, slot: Slot, history: History | None) -> None:
        entity = self._type.new(slot.id)
        seq = 0
        if history is not None:
            if history.snapshots:
                snapshot = history.snapshots[0]
                self._type.load_state(entity, snapshot.state)
                seq = snapshot.seq
            events = history.events
            if events:
                if events[0].seq != seq + 1 or events[-1].seq != seq + len(events):
                    raise EventUnreadable(f"the journal has a gap after number {seq}")
                self._type.replay(entity, [event[1:] for event in events])
                seq = events[-1].seq
        slot.seq = seq
        slot.entity = entity
