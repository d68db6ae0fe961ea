"""One entity on its way from the journal into memory: its newest snapshot that can be read, then its events, a page at a time.

It takes what was read and says what to read next; whoever reads and waits is `runtime.loader`. An entity whose history is
longer than a recovery may be fails with an error that says what to do, and concerns itself alone.
"""

import asyncio
import logging
from collections.abc import Sequence

from sharding_app.core.recovery_limits import RecoveryLimits
from sharding_app.core.shard import Slot
from sharding_app.errors import EventUnreadable, HistoryTooLong, ShardingError
from sharding_app.model.types import EntityType
from sharding_app.ports.journal import Snapshot, StoredEvent
from sharding_app.quoting import told
from sharding_app.runtime.owner import Watch

logger = logging.getLogger("sharding.journal")

SLICE_EVENTS = 1000
SLICE_BYTES = 256 * 1024
"""What is folded before the loop may turn."""


class Gap(Exception):
    """A page does not begin where the former one ended."""


class Folding:
    """Gives the event loop back after each slice, over the entities of one reader."""

    def __init__(self, entity_type: EntityType, watch: Watch) -> None:
        self._type = entity_type
        self._watch = watch
        self._events = 0
        self._bytes = 0

    async def fold(self, entity: object, slot: Slot, events: Sequence[StoredEvent], size: int) -> None:
        """Apply events of N bytes that follow each other without a gap. Raises what the user's code raises, as
        EventUnreadable."""
        if self._events + len(events) < SLICE_EVENTS and self._bytes + size < SLICE_BYTES:
            self._replay(entity, slot, events)
            self._events += len(events)
            self._bytes += size
            return
        began, size = 0, self._bytes
        room = SLICE_EVENTS - self._events
        for number, event in enumerate(events):
            size += len(event.payload)
            if number + 1 - began >= room or size >= SLICE_BYTES:
                self._replay(entity, slot, events[began : number + 1])
                began, size, room = number + 1, 0, SLICE_EVENTS
                await self.turn()
        self._replay(entity, slot, events[began:])
        self._events += len(events) - began
        self._bytes = size

    async def turn(self) -> None:
        self._events = self._bytes = 0
        await asyncio.sleep(0)

    def one_more(self) -> bool:
        """An entity is done, which costs something too, however short it is. True: it is time for a turn."""
        self._events += 2
        return self._events >= SLICE_EVENTS

    def _replay(self, entity: object, slot: Slot, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        self._watch.recovering = self._type.name, slot.id
        try:
            self._type.replay(entity, [event[1:] for event in events], first=events[0].seq)
        finally:
            self._watch.recovering = None


class Rebuilding:
    """One entity; `seq` is the number of the last event that is in its state."""

    __slots__ = (
        "bytes", "entity", "events", "lost_snapshots", "pages", "seq", "slot", "snapshot_seq", "unreadable",
    )  # fmt: skip

    def __init__(self, slot: Slot, entity: object) -> None:
        self.slot = slot
        self.entity = entity
        self.seq = 0
        self.snapshot_seq = 0
        self.events = 0
        self.bytes = 0
        self.pages = 0
        self.unreadable: int | None = None
        "The number of a snapshot that cannot be read: the one before it is to be tried."
        self.lost_snapshots = False

    def start_from(self, entity_type: EntityType, snapshot: Snapshot, fresh: object) -> None:
        """Begin with a snapshot, or note that it cannot be read."""
        try:
            entity_type.load_state(fresh, snapshot.state)
        except ShardingError as error:
            logger.warning(
                "a snapshot of an entity of %s cannot be read: %s", entity_type.name, told(error),
                extra={"action": "snapshot_unreadable", "entity_type": entity_type.name},
            )  # fmt: skip
            self.unreadable = snapshot.seq
            self.lost_snapshots = True
        else:
            self.entity = fresh
            self.unreadable = None
            self.seq = self.snapshot_seq = snapshot.seq

    async def go_on(
        self, entity_type: EntityType, limits: RecoveryLimits, folding: Folding, events: Sequence[StoredEvent]
    ) -> None:
        """Take the next events. Raises EventUnreadable, HistoryTooLong, Gap."""
        if not events:
            return
        if events[0].seq != self.seq + 1 or events[-1].seq != self.seq + len(events):
            raise Gap(
                f"the journal has no number {self.seq + 1}"
                if events[0].seq != self.seq + 1
                else "it has a gap"
            )
        size = sum([len(event.payload) for event in events])
        self.events += len(events)
        self.bytes += size
        if self.events > limits.max_events or self.bytes > limits.max_bytes:
            self.check(entity_type, limits, self.events, self.bytes)
        await folding.fold(self.entity, self.slot, events, size)
        self.seq = events[-1].seq

    def check(self, entity_type: EntityType, limits: RecoveryLimits, events: int, size: int = 0) -> None:
        """Raise HistoryTooLong for a history of so many events or bytes."""
        for count, limit, unit, setting in (
            (events, limits.max_events, "events", "MAX_RECOVERY_EVENTS"),
            (size, limits.max_bytes, "bytes", "MAX_HISTORY_BYTES"),
        ):
            if limit and count > limit:
                raise HistoryTooLong(
                    f"{entity_type.name} {self.slot.id!r}: {count} {unit} lie after its last snapshot, more than the "
                    f"{limit} of {setting}. Raise {setting} to get it back, and give the type `snapshot_every`: then"
                    " only what follows a snapshot is read",
                    params={"setting": setting, "limit": limit, unit: count},
                )

    def finish(self, entity_type: EntityType) -> None:
        """Hand the object to its slot. Raises EventUnreadable where nothing of it is left."""
        if self.lost_snapshots and not self.seq:
            raise EventUnreadable(
                f"{entity_type.name} {self.slot.id!r}: no snapshot can be read, and no event is left"
            )
        slot = self.slot
        slot.snapshot_seq, slot.seq, slot.entity = self.snapshot_seq, self.seq, self.entity
