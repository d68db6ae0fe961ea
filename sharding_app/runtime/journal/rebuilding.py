"""One entity on its way from the journal into memory: its newest snapshot, then its events.

The newest snapshot that can be read is taken. The events come a page at a time, and
`runtime.journal.loader` reads them. A history longer than the limits of a recovery fails with an
error that names the remedy, and that concerns this entity alone.
"""

import asyncio
import logging
from collections.abc import Sequence

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import HistoryTooLong, ShardingError, UnreadableEvent
from sharding_app.ports.journal import Snapshot, StoredEvent
from sharding_app.protocol.recovery_limits import RecoveryLimits
from sharding_app.redaction import told
from sharding_app.runtime.base.interfaces import Watch
from sharding_app.runtime.journal.commits import Resident

logger = logging.getLogger("sharding.journal")

SLICE_EVENTS = 1000
SLICE_BYTES = 256 * 1024
"""Limit of one slice: then the loop may turn."""


class Gap(Exception):
    """A page does not begin where the former one ended."""


class Folding:
    """Folds events, and gives the event loop back after each slice, over several entities."""

    def __init__(self, entity_type: EntityType, watch: Watch) -> None:
        self._type = entity_type
        self._watch = watch
        self._events = 0
        self._bytes = 0

    async def fold(self, entity: object, slot: Resident, events: Sequence[StoredEvent], size: int) -> None:
        """Apply consecutive events of `size` bytes.

        Errors of the user's code are raised as UnreadableEvent.
        """
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
        """Count an entity that is done: that costs something, however short it is.

        True: time for a turn.
        """
        self._events += 2
        return self._events >= SLICE_EVENTS

    def _replay(self, entity: object, slot: Resident, events: Sequence[StoredEvent]) -> None:
        if not events:
            return
        self._watch.recovering = self._type.name, slot.id
        try:
            self._type.replay(entity, events)
        finally:
            self._watch.recovering = None


class Rebuilding:
    """The rebuilding of one entity. `seq` is the number of the last event in its state."""

    __slots__ = (
        "bytes", "entity", "events", "lost_snapshots", "pages", "seq", "slot", "snapshot_seq", "unreadable",
    )  # fmt: skip

    def __init__(self, slot: Resident, entity: object) -> None:
        self.slot = slot
        self.entity = entity
        self.seq = 0
        self.snapshot_seq = 0
        self.events = 0
        self.bytes = 0
        self.pages = 0
        self.unreadable: int | None = None
        "Number of a snapshot that cannot be read: the one before it is tried next."
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
        """Take the next events. Raises UnreadableEvent, HistoryTooLong, Gap."""
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
        """Raise HistoryTooLong if there are more events or bytes than allowed."""
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
        """Hand the object to its slot. Raises UnreadableEvent if nothing of the entity is left."""
        if self.lost_snapshots and not self.seq:
            raise UnreadableEvent(
                f"{entity_type.name} {self.slot.id!r}: no snapshot can be read, and no event is left"
            )
        slot = self.slot
        slot.snapshot_seq, slot.seq, slot.entity = self.snapshot_seq, self.seq, self.entity
