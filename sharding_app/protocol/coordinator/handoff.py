"""Moving a shard on purpose, without losing or reordering a message.

    marking ──row says handoff──> begin ──all acks, or 1 s──> stopping ──ShardStopped──> moving
                                   BeginHandOff to hosts        HandOff to the home       epoch + 1

Contract: the step is in the row before any process is told, so that a new coordinator continues
from it (from `begin`: all of it may be repeated). The coordinator waits for the hosting regions, at
most a second. It tells proxies and does not wait for them, since a region never sends to a new home
before the former one has resolved all calls (promise 5).

Nothing hangs: after the hand-off timeout the home itself stops by force the entities that still
run. A home that does not answer is told again and waited for: its lease may be valid, and a raised
epoch would fence its writes, not its reads (promise 2). A home that hears nothing steps aside as
deaf, and the shards of a dead one are fenced at once.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from sharding_app.protocol.coordinator.audience import Audience
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.coordinator.timeline import Timeline
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey
from sharding_app.protocol.records import HomeChange, ShardRow
from sharding_app.protocol.transitions import transitions


class Phase(StrEnum):
    MARKING = "marking"
    "The hand-off is to be written into the row."
    BEGIN = "begin"
    "The regions are to hold the shard's messages."
    STOPPING = "stopping"
    "The home is to stop the shard."
    MOVING = "moving"
    "The new home is to be written into the row."


MARKING, BEGIN, STOPPING, MOVING = Phase

HAND_OFF = transitions(
    "hand-off",
    {
        MARKING: [BEGIN],
        BEGIN: [STOPPING, MOVING],
        STOPPING: [MOVING],
        MOVING: [],
    },
)


class ShardHandOff:
    __slots__ = ("acks", "deadline", "home", "phase", "target", "told_at")

    def __init__(self, home: Incarnation, target: Incarnation | None) -> None:
        self.home = home
        self.target = target
        self.phase: Phase = MARKING
        self.acks: dict[Incarnation, None] = {}
        self.deadline = float("inf")
        self.told_at = float("-inf")


class HandOffs:
    """All hand-offs in progress, by shard."""

    def __init__(
        self,
        tables: Tables,
        outbox: Outbox,
        audience: Audience,
        timeline: Timeline,
        settings: CoordinatorSettings,
    ) -> None:
        self._tables = tables
        self._placement = tables.placement
        self._outbox = outbox
        self._audience = audience
        self._timeline = timeline
        self._settings = settings
        self.active: dict[ShardKey, ShardHandOff] = {}
        self.queued: dict[ShardKey, Incarnation | None] = {}

    def begin(self, keys: Iterable[ShardKey], now: float, target: Incarnation | None = None) -> None:
        """Move these shards to `target`; without one the strategy chooses once they have
        stopped.
        """
        for key in keys:
            self.queued.setdefault(key, target)
        self._start_queued(now)

    def members_changed(self, now: float) -> None:
        """Drop awaited acknowledgements of gone members, and move all shards off leaving
        members.
        """
        members = self._tables.members
        for key, handoff in list(self.active.items()):
            if handoff.phase is BEGIN:
                handoff.acks = {each: None for each in handoff.acks if each in members}
                self._stop_when_acknowledged(key, handoff, now)
        self._drain(now)

    def _drain(self, now: float) -> None:
        leaving = {
            each.incarnation
            for each in self._tables.members.values()
            if each.state == "leaving" and each.asked not in ("prepare", "stop")
        }
        for type_name, regions in self._placement.allocated.items():
            if leaving and self._placement.hosts_of(type_name):
                for home in sorted(leaving & regions.keys()):
                    keys = [(type_name, shard) for shard in regions[home]]
                    self.begin((key for key in keys if key not in self.active), now)

    def resume(self, row: ShardRow, now: float) -> None:
        """Continue a hand-off that a former coordinator had begun, as its row says."""
        if row.home is not None:
            handoff = self.active[row.type, row.shard] = ShardHandOff(row.home, None)
            self._timeline.began((row.type, row.shard), row.home, now)
            self._announce((row.type, row.shard), handoff, now)

    def marked(self, row: ShardRow, now: float) -> None:
        handoff = self.active.get((row.type, row.shard))
        if handoff is not None and handoff.phase is MARKING:
            self._announce((row.type, row.shard), handoff, now)

    def acknowledged(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], now: float
    ) -> None:
        for shard in shards:
            handoff = self.active.get((type_name, shard))
            if handoff is not None and handoff.phase is BEGIN:
                handoff.acks.pop(source, None)
                self._stop_when_acknowledged((type_name, shard), handoff, now)

    def stopped(
        self,
        source: Incarnation,
        type_name: str,
        shards: Sequence[ShardId],
        epochs: Sequence[Epoch],
        now: float,
    ) -> None:
        changes = []
        for shard, epoch in zip(shards, epochs, strict=True):
            key = type_name, shard
            handoff = self.active.get(key)
            if handoff is None or handoff.home != source or self._placement.rows[key].epoch != epoch:
                continue
            if handoff.phase is BEGIN or handoff.phase is STOPPING:
                changes.append(self._move(key, handoff))
        self._outbox.decide(changes)
        self._start_queued(now)

    def forget(self, key: ShardKey) -> None:
        """End this hand-off: the shard has a new home, or its home died."""
        self.active.pop(key, None)
        self.queued.pop(key, None)

    def tick(self, now: float) -> None:
        for key, handoff in list(self.active.items()):
            if handoff.phase is BEGIN and now >= handoff.deadline:
                handoff.acks.clear()
                self._stop_when_acknowledged(key, handoff, now)
            elif handoff.phase is STOPPING and now >= handoff.deadline:
                # The shard is not moved: while the home's lease is valid it may answer queries,
                # whatever the epoch says.
                self._outbox.note("hand_off_late", f"{key[0]}/{key[1]}")
                handoff.deadline = now + self._settings.hand_off_timeout_seconds
            elif now - handoff.told_at >= self._settings.retry_seconds:
                self._tell(key, handoff, now)
        self._start_queued(now)

    # -- Inside ------------------------------------------------------------------------------------

    def _start_queued(self, now: float) -> None:
        changes = []
        room = self._settings.max_concurrent_hand_offs - len(self.active)
        if self._placement.all_stops:
            self.queued.clear()
        over: list[ShardKey] = []
        for key, target in self.queued.items():
            if room <= 0:
                break
            row = self._placement.rows.get(key)
            if row is None or row.home is None or row.home == target:
                over.append(key)
            elif row.step == "home" and key not in self._tables.writing:
                over.append(key)
                room -= 1
                self.active[key] = ShardHandOff(row.home, target)
                self._timeline.began(key, row.home, now)
                # A shard that is still starting is moved too: one that never starts there may start
                # elsewhere.
                self._tables.starting.pop(key, None)
                changes.append(self._tables.mark(row))
        for key in over:
            del self.queued[key]
        self._outbox.decide(changes)

    def _announce(self, key: ShardKey, handoff: ShardHandOff, now: float) -> None:
        handoff.phase = HAND_OFF[handoff.phase][BEGIN]
        handoff.acks = dict.fromkeys(
            each.incarnation
            for each in self._tables.members.values()
            if key[0] in each.types and each.incarnation not in self._placement.kept_out
        )
        handoff.deadline = now + self._settings.begin_hand_off_wait_seconds
        self._tell(key, handoff, now)
        others = tuple(each for each in self._audience.of(key[0]) if each not in handoff.acks)
        self._outbox.begin_hand_off(others, *key)
        self._stop_when_acknowledged(key, handoff, now)

    def _stop_when_acknowledged(self, key: ShardKey, handoff: ShardHandOff, now: float) -> None:
        if not handoff.acks:
            handoff.phase = HAND_OFF[handoff.phase][STOPPING]
            handoff.deadline = now + self._settings.hand_off_timeout_seconds
            self._tell(key, handoff, now)

    def _tell(self, key: ShardKey, handoff: ShardHandOff, now: float) -> None:
        handoff.told_at = now
        if handoff.phase is BEGIN:
            self._outbox.begin_hand_off(tuple(handoff.acks), *key)
        elif handoff.phase is STOPPING:
            self._outbox.hand_off(handoff.home, *key, self._placement.rows[key].epoch)

    def _move(self, key: ShardKey, handoff: ShardHandOff) -> HomeChange:
        handoff.phase = HAND_OFF[handoff.phase][MOVING]
        at_hand = handoff.target in self._placement.hosts_of(key[0]) and self._placement.may_live(key)
        target = handoff.target if at_hand else self._placement.allocate(key, None)
        return self._tables.place(key, target)
