"""Moving a shard on purpose, without losing or reordering a message.

      marking ──row says handoff──> begin ──all acks, or 1 s──> stopping ──ShardStopped──> moving
                                     BeginHandOff to hosts        HandOff to the home       epoch + 1

Contract: the step stands in the row before anybody is told, so that a new coordinator goes on with it (from `begin`:
everything in it may be repeated). Hosting regions are waited for, at most a second; proxies are told and not waited
for, since a region never sends to a new home before the former one has resolved all (promise 5).

Nothing hangs: the home itself stops by force what still runs after the hand-off timeout. A home that does not answer is
told again and waited for: its lease may be valid, and a raised epoch would fence what it writes, not what it reads
(promise 2). If it hears nothing it steps aside as deaf, and if it is dead its shards are fenced at once.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from sharding_app.core.effects import Decide, Note
from sharding_app.core.ids import Epoch, Incarnation, ShardId, ShardKey
from sharding_app.core.records import Decision, HomeChange, ShardRow

if TYPE_CHECKING:
    from sharding_app.core.coordinator import Coordinator

Phase = Literal["marking", "begin", "stopping", "moving"]


class _HandOff:
    __slots__ = ("acks", "deadline", "home", "phase", "began", "target", "told_at")

    def __init__(self, home: Incarnation, target: Incarnation | None, now: float) -> None:
        self.home = home
        self.target = target
        self.phase: Phase = "marking"
        self.acks: dict[Incarnation, None] = {}
        self.deadline = float("inf")
        self.told_at = float("-inf")
        self.began = now


class HandOffs:
    """All hand-offs in progress, by shard. A part of the coordinator with a table of its own."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self.coordinator = coordinator
        self.active: dict[ShardKey, _HandOff] = {}
        self.queued: dict[ShardKey, Incarnation | None] = {}

    def begin(self, keys: Iterable[ShardKey], now: float, target: Incarnation | None = None) -> None:
        """Move these shards (to `target`, else to where the strategy says when they have stopped)."""
        for key in keys:
            self.queued.setdefault(key, target)
        self._start_queued(now)

    def members_changed(self, now: float) -> None:
        """Wait for no acknowledgement of those that are gone; move everything away from those that are leaving."""
        members = self.coordinator.members
        for key, handoff in list(self.active.items()):
            if handoff.phase == "begin":
                handoff.acks = {each: None for each in handoff.acks if each in members}
                self._stop_when_acknowledged(key, handoff, now)
        self._drain(now)

    def _drain(self, now: float) -> None:
        leaving = {
            each.incarnation
            for each in self.coordinator.members.values()
            if each.state == "leaving" and each.asked not in ("prepare", "stop")
        }
        placement = self.coordinator.placement
        for type_name, regions in placement.allocated.items():
            if leaving and placement.hosts_of(type_name):
                for home in sorted(leaving & regions.keys()):
                    keys = [(type_name, shard) for shard in regions[home]]
                    self.begin((key for key in keys if key not in self.active), now)

    def resume(self, row: ShardRow, now: float) -> None:
        """A former coordinator had begun it: its row says so."""
        if row.home is not None:
            handoff = self.active[row.type, row.shard] = _HandOff(row.home, None, now)
            self.coordinator.moves.began((row.type, row.shard), row.home, now)
            self._announce((row.type, row.shard), handoff, now)

    def marked(self, row: ShardRow, now: float) -> None:
        handoff = self.active.get((row.type, row.shard))
        if handoff is not None and handoff.phase == "marking":
            self._announce((row.type, row.shard), handoff, now)

    def acknowledged(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], now: float
    ) -> None:
        for shard in shards:
            handoff = self.active.get((type_name, shard))
            if handoff is not None and handoff.phase == "begin":
                handoff.acks.pop(source, None)
                if not handoff.acks:
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
            row = self.coordinator.placement.rows.get(key)
            if handoff is None or row is None or row.epoch != epoch or handoff.home != source:
                continue
            if handoff.phase in ("begin", "stopping"):
                changes.append(self._move(key, handoff))
        if changes:
            self.coordinator.out.append(Decide(changes))
            self._start_queued(now)

    def forget(self, key: ShardKey) -> None:
        """It has a new home, or its home died: either way this hand-off is over."""
        self.active.pop(key, None)
        self.queued.pop(key, None)

    def tick(self, now: float) -> None:
        for key, handoff in list(self.active.items()):
            if handoff.phase == "begin" and now >= handoff.deadline:
                handoff.acks.clear()
                self._stop_when_acknowledged(key, handoff, now)
            elif handoff.phase == "stopping" and now >= handoff.deadline:
                # Not moved: while its lease is valid it may answer what it reads, whatever the epoch says.
                self._note("hand_off_late", key)
                handoff.deadline = now + self.coordinator.settings.hand_off_timeout_seconds
                self._tell(key, handoff, now)
            elif now - handoff.told_at >= self.coordinator.settings.retry_seconds:
                self._tell(key, handoff, now)
        self._start_queued(now)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _start_queued(self, now: float) -> None:
        changes = []
        room = self.coordinator.settings.max_concurrent_hand_offs - len(self.active)
        if self.coordinator.placement.all_stops:
            self.queued.clear()
        over: list[ShardKey] = []
        for key, target in self.queued.items():
            if room <= 0:
                break
            row = self.coordinator.placement.rows.get(key)
            busy = key in self.active or key in self.coordinator.writing
            if row is None or row.home is None or row.home == target:
                over.append(key)
            elif not busy and row.step == "home":
                over.append(key)
                room -= 1
                self.active[key] = _HandOff(row.home, target, now)
                self.coordinator.moves.began(key, row.home, now)
                # A shard that is still starting is moved too: what never starts there may start elsewhere.
                self.coordinator.starting.pop(key, None)
                changes.append(self.coordinator.change(key, row.home, "handoff", raise_epoch=False))
        for key in over:
            del self.queued[key]
        if changes:
            self.coordinator.out.append(Decide(changes))

    def _announce(self, key: ShardKey, handoff: _HandOff, now: float) -> None:
        handoff.phase = "begin"
        handoff.acks = dict.fromkeys(
            each.incarnation
            for each in self.coordinator.members.values()
            if key[0] in each.types and each.incarnation not in self.coordinator.placement.kept_out
        )
        handoff.deadline = now + self.coordinator.settings.begin_hand_off_wait_seconds
        self._tell(key, handoff, now)
        others = tuple(each for each in self.coordinator.audience.of(key[0]) if each not in handoff.acks)
        self.coordinator.tells.begin_hand_off(others, self.coordinator.term, *key)
        self._stop_when_acknowledged(key, handoff, now)

    def _stop_when_acknowledged(self, key: ShardKey, handoff: _HandOff, now: float) -> None:
        if not handoff.acks:
            handoff.phase = "stopping"
            handoff.deadline = now + self.coordinator.settings.hand_off_timeout_seconds
            self._tell(key, handoff, now)

    def _tell(self, key: ShardKey, handoff: _HandOff, now: float) -> None:
        handoff.told_at = now
        term, tells = self.coordinator.term, self.coordinator.tells
        if handoff.phase == "begin":
            tells.begin_hand_off(tuple(handoff.acks), term, *key)
        elif handoff.phase == "stopping":
            tells.hand_off(handoff.home, term, *key, self.coordinator.placement.rows[key].epoch)

    def _move(self, key: ShardKey, handoff: _HandOff) -> HomeChange:
        handoff.phase = "moving"
        placement = self.coordinator.placement
        at_hand = handoff.target in placement.hosts_of(key[0])
        target = handoff.target if at_hand else placement.allocate(key, None)
        return self.coordinator.change(key, target, "home")

    def _note(self, action: str, key: ShardKey) -> None:
        self.coordinator.out.append(Note(Decision(action, f"{key[0]}/{key[1]}")))
