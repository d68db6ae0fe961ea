"""Resizes: groups of shards lose their homes, change their numbers, and get homes again.

      waits ──the groups before it are done──> closed ──no shard has a home──> being renumbered
                                                hand-offs, no new homes              │
            it lives by the new number <───────── the rows have the new numbers ─────┘

Contract: while a group is closed, no shard of it gets a home (`Placement.may_live`). The groups
behind those that are done are closed, a bounded number of them at once, and change in their order:
as many as have stopped in one write. The rows alone say how far a resize is, so that a new
coordinator goes on with it. All processes that use the type are told of the new numbers before they
are told of new homes.
"""

from collections.abc import Mapping

from sharding_app.protocol.coordinator.audience import Audience
from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.ids import Incarnation, ShardKey
from sharding_app.protocol.messages import Renumbered
from sharding_app.protocol.numbering import Numbering

AGAIN_SECONDS = 1.0
"""Pause before a step is tried again that the store has refused, or could not make."""


class Resizing:
    def __init__(self, tables: Tables, outbox: Outbox, handoffs: HandOffs, audience: Audience) -> None:
        self._tables = tables
        self._placement = tables.placement
        self._outbox = outbox
        self._handoffs = handoffs
        self._audience = audience
        self._writing: dict[str, None] = {}
        "Types of which a step is being written."
        self._not_before: dict[str, float] = {}

    @property
    def busy(self) -> bool:
        """Whether any type is being resized."""
        return any(each.resizing for each in self._placement.numbers.values())

    def read(self, numbers: Mapping[str, Numbering]) -> None:
        """Take in the numbers of all types, as read just now. A step whose answer was lost shows
        here: then the rows of its type are read again.
        """
        before, self._placement.numbers = self._placement.numbers, dict(numbers)
        for name, numbering in numbers.items():
            known = before.get(name, numbering)
            moved = (known.shards, known.done) != (numbering.shards, numbering.done)
            if moved and known.revision != numbering.revision:
                self._tell_all(name, numbering)
                self._outbox.read_shards([name])

    def tell_if_others(self, source: Incarnation, type_name: str, asked_by: Numbering | None) -> bool:
        """Tell a process the numbers of a type, if it asks by others; return whether it does.

        They are former ones, or of steps that the server has lost, or of one that this coordinator
        is about to take in. None: the type was never resized, as far as the process knows.
        """
        numbering = self._placement.numbers.get(type_name)
        if numbering is None or asked_by == (numbering if numbering.revision else None):
            return False
        self.tell(source, type_name)
        return True

    def tell(self, source: Incarnation, type_name: str) -> None:
        """Tell a process the numbers of a type."""
        numbering = self._placement.numbers.get(type_name)
        if numbering is not None:
            self._outbox.tell(source, Renumbered(self._outbox.term, type_name, numbering))

    def renumbered(self, type_name: str, before: Numbering, after: Numbering) -> None:
        """Take in that a step is written."""
        self._writing.pop(type_name, None)
        self._placement.numbers[type_name] = after
        if after == before:
            return  # a part of it: the rest follows
        self._tell_all(type_name, after)
        if not after.resizing:
            self._outbox.note("type_resized", type_name, f"{before.shards} -> {after.shards} shards")

    def not_renumbered(self, type_name: str, now: float) -> None:
        """Take in that a step may not be written. The rows say whether it is."""
        self._writing.pop(type_name, None)
        self._not_before[type_name] = now + AGAIN_SECONDS

    def tick(self, now: float) -> None:
        """Take the next step of each resize."""
        if self._placement.all_stops:
            return
        for name, numbering in self._placement.numbers.items():
            if numbering.resizing and name not in self._writing and now >= self._not_before.get(name, now):
                self._go_on(name, numbering, now)

    def _tell_all(self, name: str, numbering: Numbering) -> None:
        word = Renumbered(self._outbox.term, name, numbering)
        self._outbox.tell_all(self._audience.of(name), word)

    def _go_on(self, name: str, numbering: Numbering, now: float) -> None:
        step = numbering.step(self._placement.resized_at_once)
        keys = [(name, shard) for shard in numbering.former(step)]
        homed = [key for key in keys if self._placement.home_of(key) is not None]
        self._handoffs.begin([key for key in homed if key not in self._handoffs.active], now)
        live = [shard for _, shard in keys if self._lives((name, shard))]
        upto = min((shard % numbering.groups for shard in live), default=step)
        if upto > numbering.done:
            self._writing[name] = None
            shards = {*numbering.former(upto), *numbering.later(upto)}
            least = self._placement.least_epoch((name, shard) for shard in shards)
            self._outbox.renumber(name, numbering, upto, max(least, self._tables.lowest_epoch))

    def _lives(self, key: ShardKey) -> bool:
        """Tell whether a shard has a home, or may be about to get one."""
        return self._placement.home_of(key) is not None or key in self._tables.writing
