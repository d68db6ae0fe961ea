"""The coordinator's tables: where each shard lives, and what is under way for it.

Contract: the coordinator's parts share this one value, and not the coordinator. A change of a row
is made here alone, so that its shard counts as being written until the store has answered.
"""

from sharding_app.protocol.coordinator.placement import Placement
from sharding_app.protocol.coordinator.terms import lowest_epoch
from sharding_app.protocol.ids import Epoch, Incarnation, ShardKey, Term
from sharding_app.protocol.records import HomeChange, Member, ShardRow, ShardStep


class Starting:
    """A shard that its home is to start."""

    __slots__ = ("announce", "epoch", "fresh", "home", "told_at")

    def __init__(self, home: Incarnation, epoch: Epoch, *, announce: bool, fresh: bool) -> None:
        self.home = home
        self.epoch = epoch
        self.announce = announce
        """The shard lived elsewhere before: its new home is announced to all users of the type, not
        only to those who asked."""
        self.fresh = fresh
        """This coordinator has decided the home, rather than read it from a row: the timeline shows
        it."""
        self.told_at = float("-inf")


class Tables:
    def __init__(self, term: Term, placement: Placement) -> None:
        self.placement = placement
        self.writing: dict[ShardKey, None] = {}
        "Shards of which a change is not written yet."
        self.starting: dict[ShardKey, Starting] = {}
        "Shards whose home has not said ShardStarted yet."
        self.lowest_epoch = lowest_epoch(term)

    @property
    def members(self) -> dict[Incarnation, Member]:
        return self.placement.members

    def place(self, key: ShardKey, home: Incarnation | None) -> HomeChange:
        """Give a shard a home, at a new epoch; None: it has stopped and no region can take it."""
        epoch = max(self.placement.next_epoch(key), self.lowest_epoch)
        return self._change(key, epoch, home, "stopped" if home is None else "home")

    def mark(self, row: ShardRow) -> HomeChange:
        """Note in a row that its shard is handed off; its epoch stays."""
        return self._change((row.type, row.shard), row.epoch, row.home, "handoff")

    def _change(self, key: ShardKey, epoch: Epoch, home: Incarnation | None, step: ShardStep) -> HomeChange:
        """Make a change of a row, and count the shard at its new home from now on, so that the next
        choice sees it.
        """
        row = self.placement.rows.get(key)
        self.writing[key] = None
        if home is not None:
            self.placement.count(key, home)
        before = row.epoch if row is not None else 0
        return HomeChange(*key, expected_epoch=before, epoch=epoch, home=home, step=step)
