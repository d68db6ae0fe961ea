"""Dead homes, and those that are gone for other reasons: how their shards get away from them.

      dead ──Bury──> buried ──epochs + 1, new homes──> fenced ──NodeGone to all──> forgotten

Contract: a dead home's journal backends are ended and its row is removed before the epochs of its shards are raised.
It is told itself as soon as its row is gone. The others are told when all of that is written: whoever hears it sends what it
had for them to others.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sharding_app.core.effects import Bury, Decide, Note
from sharding_app.core.ids import Incarnation, ShardKey
from sharding_app.core.messages import NodeGone
from sharding_app.core.records import Decision, HomeChange

if TYPE_CHECKING:
    from sharding_app.core.coordinator import Coordinator


class Burials:
    """A part of the coordinator with tables of its own."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self._burying: dict[Incarnation, None] = {}
        self._fencing: dict[Incarnation, dict[ShardKey, None]] = {}
        "Shards of a dead home whose epochs are being raised; NodeGone is told when none is left."

    @property
    def busy(self) -> bool:
        return bool(self._burying)

    def found_dead(self, dead: Iterable[Incarnation]) -> None:
        """`core.membership` has judged so, by a reading of the rows."""
        coordinator = self._coordinator
        for incarnation in dead:
            if incarnation in coordinator.members and incarnation not in self._burying:
                self._burying[incarnation] = None
                coordinator.placement.bar(incarnation)
                self._note("node_dead", incarnation, coordinator.members[incarnation].name)
                coordinator.out.append(Bury(incarnation))

    def buried(self, incarnation: Incarnation, now: float) -> None:
        coordinator = self._coordinator
        self._burying.pop(incarnation, None)
        coordinator.placement.buried(incarnation)
        coordinator.audience.changed()
        # It may live, and have heard of neither of its sessions' ends: then this reaches it before its successors begin.
        coordinator.tells.to(incarnation, NodeGone(coordinator.term, incarnation))
        self.fence(incarnation, now)

    def unburied(self, incarnation: Incarnation) -> None:
        self._burying.pop(incarnation, None)
        self._coordinator.placement.unbar(incarnation)

    def fence(self, home: Incarnation, now: float) -> None:
        """Raise the epochs of all shards of a home that is no more, and give them new homes.

        While a write about one of them is under way nothing is done: `decided` comes back to it.
        """
        coordinator = self._coordinator
        placement = coordinator.placement
        keys = list(placement.at_home.get(home, ()))
        if home in self._fencing or any(key in coordinator.writing for key in keys):
            return
        if not keys:
            placement.forget(home)
            self._tell_gone(home)
            return
        self._fencing[home] = dict.fromkeys(keys)
        for key in keys:
            coordinator.starting.pop(key, None)
            coordinator.handoffs.forget(key)
            coordinator.moves.began(key, home, now)
        changes = [coordinator.change(key, self._next_home(key), "home") for key in keys]
        placement.forget(home)
        self._note("shards_fenced", home, f"{len(keys)} shards")
        coordinator.out.append(Decide(changes))

    def fence_orphans(self, now: float) -> None:
        """Homes without a member row: they left, or gave up, or a former coordinator buried them and died."""
        coordinator = self._coordinator
        for home, keys in list(coordinator.placement.at_home.items()):
            if keys and home not in coordinator.members and home not in self._burying:
                self.fence(home, now)

    def decided(self, changes: Sequence[HomeChange]) -> None:
        """These changes are written, or had been overtaken."""
        for home, left in list(self._fencing.items()):
            for change in changes:
                left.pop((change.type, change.shard), None)
            if not left:
                del self._fencing[home]
                self._tell_gone(home)

    def _next_home(self, key: ShardKey) -> Incarnation | None:
        placement = self._coordinator.placement
        return None if placement.all_stops else placement.allocate(key, None)

    def _tell_gone(self, incarnation: Incarnation) -> None:
        coordinator = self._coordinator
        coordinator.tells.all(coordinator.audience.everybody(), NodeGone(coordinator.term, incarnation))

    def _note(self, action: str, subject: str, detail: str) -> None:
        self._coordinator.out.append(Note(Decision(action, subject, detail)))
