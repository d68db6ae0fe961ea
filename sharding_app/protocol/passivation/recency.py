"""Orders of entities in memory: which one goes first when there is no room.

The lists are intrusive: an entity is its own node, so that an idle one costs three fields and no
object. Every operation takes the same time for any number of entities (by frequency: but for the
logarithm of the number of frequencies).
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

SPARE_COUNTS = 64


class Tracked:
    """An element that can stand in one order at a time."""

    __slots__ = ("id", "newer", "older", "place")

    id: str

    def __init__(self, id: str) -> None:  # noqa: A002
        self.id = id
        self.place: Any = None
        "The `Order` in which it stands; None: in none."
        self.older: Any = None
        self.newer: Any = None


class Order:
    """Elements from the least to the most recently used."""

    __slots__ = ("newest", "oldest", "rank", "size")

    def __init__(self, rank: int = 0) -> None:
        self.oldest: Any = None
        self.newest: Any = None
        self.size = 0
        self.rank = rank
        "A level, or a frequency."

    def add(self, node: Tracked) -> None:
        """Put an element at the most recent end."""
        newest = self.newest
        node.place, node.older, node.newer = self, newest, None
        if newest is None:
            self.oldest = node
        else:
            newest.newer = node
        self.newest = node
        self.size += 1

    def remove(self, node: Tracked) -> None:
        older, newer = node.older, node.newer
        if older is None:
            self.oldest = newer
        else:
            older.newer = newer
        if newer is None:
            self.newest = older
        else:
            newer.older = older
        node.place = node.older = node.newer = None
        self.size -= 1

    def renew(self, node: Tracked) -> None:
        """Move an element of this order to the most recent end; written out, since each message
        does it.
        """
        newest = self.newest
        if newest is node:
            return
        older, newer = node.older, node.newer
        if older is None:
            self.oldest = newer
        else:
            older.newer = newer
        newer.older = older
        node.older, node.newer = newest, None
        newest.newer = node
        self.newest = node


class Replacement(Protocol):
    """Entities, and the next of them to go."""

    size: int

    def add(self, node: Tracked) -> None:
        """Add an entity, which is used now."""

    def renew(self, node: Tracked) -> None:
        """Take in that an entity is used again."""

    def remove(self, node: Tracked) -> None:
        """Remove an entity, which is evicted or has gone by itself."""

    def victim(self) -> Any:
        """Return the next to go; there is one."""

    def resize(self, limit: int) -> None:
        """Set how many shall fit. None goes by that."""


class LeastRecentlyUsed(Order):
    """The least recently used goes first."""

    __slots__ = ()

    def victim(self) -> Any:
        return self.oldest

    def resize(self, limit: int) -> None:
        """Change nothing: the order has no limit."""


class MostRecentlyUsed(Order):
    """The most recently used goes first: for access in a circle that is larger than the limit."""

    __slots__ = ()

    def victim(self) -> Any:
        return self.newest

    def resize(self, limit: int) -> None:
        """Change nothing: the order has no limit."""


class SegmentedLeastRecentlyUsed:
    """Levels of recency: each use lifts an entity to the next level, and the overflow there sinks
    by one.

    Entities that are used once only, by a scan for example, never drive out those that are used
    again and again.
    """

    def __init__(self, proportions: Sequence[float], limit: int) -> None:
        self.size = 0
        self._levels = [Order(rank) for rank in range(len(proportions))]
        self._proportions = proportions
        self._limits: list[int] = []
        self.resize(limit)

    def add(self, node: Tracked) -> None:
        self._levels[0].add(node)
        self.size += 1

    def renew(self, node: Tracked) -> None:
        place = node.place
        level = min(place.rank + 1, len(self._levels) - 1)
        place.remove(node)
        self._levels[level].add(node)
        self._settle(level)

    def remove(self, node: Tracked) -> None:
        place = node.place
        place.remove(node)
        self.size -= 1

    def victim(self) -> Any:
        return next(level.oldest for level in self._levels if level.size)

    def resize(self, limit: int) -> None:
        self._limits = [int(each * limit + 1e-9) for each in self._proportions]
        self._settle(len(self._levels) - 1)

    def _settle(self, level: int) -> None:
        for rank in range(level, 0, -1):
            above, below = self._levels[rank], self._levels[rank - 1]
            while above.size > self._limits[rank]:
                node = above.oldest
                above.remove(node)
                below.add(node)


class LeastFrequentlyUsed:
    """The least frequently used goes first; among equals the least recently used.

    With `aging` an entity that comes or is used counts on from the frequency of the last evicted
    one, so that an entity that was used often in the past does not stay forever.
    """

    def __init__(self, *, aging: bool = False) -> None:
        self.size = 0
        self._of: dict[int, Order] = {}
        "Orders by frequency."
        self._counts: list[int] = []
        """A heap of the frequencies. Those without entities are removed when they are the lowest,
        or when there are more of them than of the others: each use may leave one behind."""
        self._uses: dict[Tracked, int] | None = {} if aging else None
        self._age = 0

    def add(self, node: Tracked) -> None:
        if self._uses is not None:
            self._uses[node] = 1
        self._put(node, 1 + self._age)
        self.size += 1

    def renew(self, node: Tracked) -> None:
        place = node.place
        count = place.rank + 1
        if self._uses is not None:
            uses = self._uses[node] = self._uses[node] + 1
            count = uses + self._age
        self._take(node, place)
        self._put(node, count)

    def remove(self, node: Tracked) -> None:
        place = node.place
        if self._uses is not None:
            del self._uses[node]
            if place.rank == self._counts[0] and node is place.oldest:
                self._age = max(self._age, place.rank)
        self._take(node, place)
        self.size -= 1

    def victim(self) -> Any:
        counts = self._counts
        while counts[0] not in self._of:
            heappop(counts)
        return self._of[counts[0]].oldest

    def resize(self, limit: int) -> None:
        """Change nothing: the order has no limit."""

    def _put(self, node: Tracked, count: int) -> None:
        order = self._of.get(count)
        if order is None:
            order = self._of[count] = Order(count)
            heappush(self._counts, count)
        order.add(node)

    def _take(self, node: Tracked, place: Order) -> None:
        place.remove(node)
        if not place.size:
            del self._of[place.rank]
            if len(self._counts) > 2 * len(self._of) + SPARE_COUNTS:
                self._counts = list(self._of)
                heapify(self._counts)
