"""Fencing: how shards get away from homes that are dead, or gone for other reasons.

      dead ──Bury──> buried ──epochs + 1, new homes──> fenced ──NodeGone to all──> forgotten

Contract: a dead home's journal backends are ended and its row is removed before the epochs of its
shards are raised. The dead home is told as soon as its row is gone. The other processes are told
when the new epochs are written, because a process that reads NodeGone sends its calls for that home
elsewhere.
"""

from collections.abc import Iterable, Sequence

from sharding_app.protocol.coordinator.audience import Audience
from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.tables import Tables
from sharding_app.protocol.coordinator.timeline import Timeline
from sharding_app.protocol.ids import Incarnation, ShardKey
from sharding_app.protocol.messages import NodeGone
from sharding_app.protocol.records import HomeChange


class Fencing:
    def __init__(
        self, tables: Tables, outbox: Outbox, audience: Audience, timeline: Timeline, handoffs: HandOffs
    ) -> None:
        self._tables = tables
        self._placement = tables.placement
        self._outbox = outbox
        self._audience = audience
        self._timeline = timeline
        self._handoffs = handoffs
        self._burying: dict[Incarnation, None] = {}
        self._fencing: dict[Incarnation, dict[ShardKey, None]] = {}
        "Shards of a dead home whose epochs are being raised; NodeGone is sent when none is left."

    @property
    def busy(self) -> bool:
        return bool(self._burying)

    def found_dead(self, dead: Iterable[Incarnation]) -> None:
        """Begin to bury members that `protocol.liveness.membership` has judged dead."""
        members = self._tables.members
        for incarnation in dead:
            if incarnation in members and incarnation not in self._burying:
                self._burying[incarnation] = None
                self._placement.bar(incarnation)
                self._outbox.note("node_dead", incarnation, members[incarnation].name)
                self._outbox.bury(incarnation)

    def buried(self, incarnation: Incarnation, now: float) -> None:
        self._burying.pop(incarnation, None)
        self._placement.buried(incarnation)
        self._audience.changed()
        # It may still live, unaware that its sessions have ended: this reaches it before its
        # successors begin.
        self._outbox.tell(incarnation, NodeGone(self._outbox.term, incarnation))
        self.fence(incarnation, now)

    def unburied(self, incarnation: Incarnation) -> None:
        self._burying.pop(incarnation, None)
        self._placement.unbar(incarnation)

    def fence(self, home: Incarnation, now: float) -> None:
        """Raise the epochs of all shards of a home that is gone, and give them new homes.

        Does nothing while a write about one of them is under way: when that is decided,
        `fence_orphans` comes back to it.
        """
        tables, placement = self._tables, self._placement
        keys = list(placement.at_home.get(home, ()))
        if home in self._fencing or any(key in tables.writing for key in keys):
            return
        if not keys:
            placement.forget(home)
            self._tell_gone(home)
            return
        self._fencing[home] = dict.fromkeys(keys)
        for key in keys:
            tables.starting.pop(key, None)
            self._handoffs.forget(key)
            self._timeline.began(key, home, now)
        changes = [tables.place(key, self._next_home(key)) for key in keys]
        placement.forget(home)
        self._outbox.note("shards_fenced", home, f"{len(keys)} shards")
        self._outbox.decide(changes)

    def fence_orphans(self, now: float) -> None:
        """Fence homes without a member row: the node left, gave up, or was buried by a coordinator
        that died then.
        """
        members = self._tables.members
        for home, keys in list(self._placement.at_home.items()):
            if keys and home not in members and home not in self._burying:
                self.fence(home, now)

    def decided(self, changes: Sequence[HomeChange]) -> None:
        """Take in that these changes are written, or had been overtaken."""
        for home, left in list(self._fencing.items()):
            for change in changes:
                left.pop((change.type, change.shard), None)
            if not left:
                del self._fencing[home]
                self._tell_gone(home)

    def _next_home(self, key: ShardKey) -> Incarnation | None:
        return None if self._placement.all_stops else self._placement.allocate(key, None)

    def _tell_gone(self, incarnation: Incarnation) -> None:
        self._outbox.tell_all(self._audience.everybody(), NodeGone(self._outbox.term, incarnation))
