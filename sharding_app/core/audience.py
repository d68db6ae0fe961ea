"""Who is told of moves: all members, and the processes that only ask and use the type. Told in few words.

Contract: what moves together is announced together, and each body is written once for all whom it concerns. A first
announcement goes out at once; what follows within a moment waits for the moment's end, since the shards of a dead node
start at a hundred homes one after the other. Whoever is not told asks when it needs to know.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharding_app.core.ids import Epoch, Incarnation, ShardId
from sharding_app.core.messages import ShardHome

if TYPE_CHECKING:
    from sharding_app.core.coordinator import Coordinator

GATHER_SECONDS = 0.02


class Audience:
    """A part of the coordinator."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self.proxies: dict[Incarnation, tuple[tuple[str, ...], float]] = {}
        "Processes that only ask: the types they use, and when they said so."
        self._coordinator = coordinator
        self._of: dict[str, tuple[Incarnation, ...]] = {}
        self._moved: dict[tuple[str, Incarnation], tuple[list[ShardId], list[Epoch]]] = {}
        self._told_at = float("-inf")

    @property
    def busy(self) -> bool:
        """Whether something waits to be announced."""
        return bool(self._moved)

    def changed(self) -> None:
        """Members have come or gone."""
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
        """Return all who are told of moves of that type."""
        found = self._of.get(type_name)
        if found is None:
            users = (each for each, (types, _) in self.proxies.items() if type_name in types)
            found = self._of[type_name] = (*self._coordinator.members, *users)
        return found

    def includes(self, incarnation: Incarnation, type_name: str) -> bool:
        proxy = self.proxies.get(incarnation)
        return incarnation in self._coordinator.members or (proxy is not None and type_name in proxy[0])

    def everybody(self) -> tuple[Incarnation, ...]:
        return (*self._coordinator.members, *self.proxies)

    def moved(self, type_name: str, home: Incarnation, shard: ShardId, epoch: Epoch) -> None:
        """It runs there now: announce it soon."""
        shards, epochs = self._moved.setdefault((type_name, home), ([], []))
        shards.append(shard)
        epochs.append(epoch)

    def tick(self, now: float) -> None:
        if self._moved and now - self._told_at >= GATHER_SECONDS:
            self._told_at = now
            moved, self._moved = self._moved, {}
            coordinator = self._coordinator
            for (type_name, home), (shards, epochs) in moved.items():
                coordinator.tells.all(
                    self.of(type_name), ShardHome(coordinator.term, type_name, home, shards, epochs)
                )
