"""Consistent hashing: a shard's place follows from its number and the nodes' names alone.

Shards of one number live on one node for all types that use this strategy with equal settings, so
that entities that work together can be neighbours. A node that comes or goes moves only the shards
that go to it, or were its own.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import blake2b

from sharding_app.protocol.allocation.strategy import Allocations, ClusterView
from sharding_app.protocol.ids import Incarnation, ShardId


def _point(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class _Ring:
    """The points of some nodes on the circle of hashes."""

    def __init__(self, names: Mapping[Incarnation, str], factor: int) -> None:
        points = sorted(
            (_point(f"{name}/{number}"), incarnation)
            for incarnation, name in names.items()
            for number in range(factor)
        )
        self._points = [point for point, _ in points]
        self._owners = [incarnation for _, incarnation in points]

    def owner(self, shard: ShardId) -> Incarnation:
        place = bisect_left(self._points, _point(str(shard)))
        return self._owners[place % len(self._owners)]


class ConsistentHashAllocation:
    """Places shards on a ring of the nodes' names.

    `rebalance_limit` is the most shards that move at a time (0: no limit), `virtual_nodes` the
    number of points per node.
    """

    def __init__(self, rebalance_limit: int = 0, virtual_nodes: int = 10) -> None:
        if rebalance_limit < 0 or virtual_nodes < 1:
            raise ValueError("rebalance_limit must not be negative, virtual_nodes must be at least 1")
        self.rebalance_limit = rebalance_limit
        self.virtual_nodes = virtual_nodes
        self._ring: tuple[Mapping[Incarnation, str], _Ring] | None = None
        "The ring of the last call, valid while the nodes are the same."

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        staying = [each for each in allocations if not _leaves(each, view)]
        return self._ring_of(staying or allocations, view).owner(shard)

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        room = self.rebalance_limit - len(in_progress) if self.rebalance_limit else None
        if not allocations or not view.good_time_to_rebalance or (room is not None and room <= 0):
            return []
        ring = self._ring_of(allocations, view)
        wrong = sorted(
            shard
            for incarnation, shards in allocations.items()
            for shard in shards
            if shard not in in_progress and ring.owner(shard) != incarnation
        )
        return wrong[:room]

    def _ring_of(self, regions: Iterable[Incarnation], view: ClusterView) -> _Ring:
        names = _names(regions, view)
        if self._ring is None or self._ring[0] != names:
            self._ring = names, _Ring(names, self.virtual_nodes)
        return self._ring[1]


def _names(regions: Iterable[Incarnation], view: ClusterView) -> dict[Incarnation, str]:
    """Return each region's name on the ring: its node's name, with the incarnation added if two
    nodes share it.
    """
    hosts = view.hosts
    names = {each: (hosts[each].name if each in hosts else "") or each for each in regions}
    count = Counter(names.values())
    return {each: name if count[name] == 1 else f"{name}/{each}" for each, name in names.items()}


def _leaves(incarnation: Incarnation, view: ClusterView) -> bool:
    host = view.hosts.get(incarnation)
    return host is not None and host.leaving
