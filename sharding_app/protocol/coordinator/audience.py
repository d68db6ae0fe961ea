"""The processes that are told of moves: all members, and the proxies that use the type.

Contract: shards that move together are announced together, and each body is encoded once for all
recipients. A first announcement goes out at once. Those that follow are gathered for a time in
proportion to the number of recipients, since the shards of a dead node start at a hundred homes one
after the other. A process that is not told asks when it needs to know.
"""

from collections.abc import Sequence

from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.placement import Placement
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.messages import ShardHome

GATHER_SECONDS_EACH = 0.0002
"""For each recipient: announcements take a part of the coordinator's time, and never all of it."""
GATHER_AT_MOST_SECONDS = 0.02


class Audience:
    def __init__(self, placement: Placement, outbox: Outbox) -> None:
        self.proxies: dict[Incarnation, tuple[tuple[str, ...], float]] = {}
        "Proxies (processes that only ask): the types that each uses, and when it registered last."
        self._placement = placement
        self._outbox = outbox
        self._of: dict[str, tuple[Incarnation, ...]] = {}
        self._moved: dict[tuple[str, Incarnation], tuple[list[ShardId], list[Epoch]]] = {}
        self._told_at = float("-inf")

    @property
    def busy(self) -> bool:
        """Whether announcements wait to be sent."""
        return bool(self._moved)

    @property
    def due(self) -> float:
        """When the announcements that wait are to be sent."""
        if not self._moved:
            return float("inf")
        recipients = len(self._placement.members) + len(self.proxies)
        return self._told_at + min(recipients * GATHER_SECONDS_EACH, GATHER_AT_MOST_SECONDS)

    def changed(self) -> None:
        """Note that members have come or gone."""
        self._of.clear()

    def registered(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        known = self.proxies.get(incarnation)
        self.proxies[incarnation] = tuple(types), now
        if known is None or known[0] != tuple(types):
            self._of.clear()

    def expire(self, now: float, after_seconds: float) -> None:
        late = [each for each, (_, seen) in self.proxies.items() if now - seen > after_seconds]
        for incarnation in late:
            del self.proxies[incarnation]
        if late:
            self._of.clear()

    def of(self, type_name: str) -> tuple[Incarnation, ...]:
        """Return all processes that are told of moves of that type."""
        found = self._of.get(type_name)
        if found is None:
            users = (each for each, (types, _) in self.proxies.items() if type_name in types)
            found = self._of[type_name] = (*self._placement.members, *users)
        return found

    def includes(self, incarnation: Incarnation, type_name: str) -> bool:
        proxy = self.proxies.get(incarnation)
        return incarnation in self._placement.members or (proxy is not None and type_name in proxy[0])

    def everybody(self) -> tuple[Incarnation, ...]:
        return (*self._placement.members, *self.proxies)

    def moved(self, type_name: str, home: Incarnation, shard: ShardId, epoch: Epoch) -> None:
        """Announce soon that the shard runs at `home`."""
        shards, epochs = self._moved.setdefault((type_name, home), ([], []))
        shards.append(shard)
        epochs.append(epoch)

    def tick(self, now: float) -> None:
        if now >= self.due:
            self._told_at = now
            moved, self._moved = self._moved, {}
            for (type_name, home), (shards, epochs) in moved.items():
                word = ShardHome(self._outbox.term, type_name, home, shards, epochs)
                self._outbox.tell_all(self.of(type_name), word)
