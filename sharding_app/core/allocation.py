"""Where shards go: strategies as pure functions of what is allocated where.

A user's own strategy is one small class with `allocate` and `rebalance`.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from math import ceil
from typing import Protocol

import msgspec

from sharding_app.core.ids import Incarnation, ShardId

Allocations = Mapping[Incarnation, Collection[ShardId]]
"""The shards of each region that may host, oldest node first. For `rebalance` each region's are sorted sequences."""


class Host(msgspec.Struct, frozen=True):
    """What a strategy may know of a region's node."""

    incarnation: Incarnation
    app_version: str = "0.0.0"
    leaving: bool = False


class ClusterView(msgspec.Struct, frozen=True):
    hosts: Mapping[Incarnation, Host]
    settled: bool = True
    "No node of the cluster is joining, leaving, deaf or suspect."


def version_key(version: str) -> tuple[tuple[int, int | str], ...]:
    """Order versions as people do: 1.10.0 after 1.9.0; words sort before numbers."""
    parts = version.replace("-", ".").replace("+", ".").split(".")
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in parts)


class _Newest:
    """Sorts the newest app version first."""

    __slots__ = ("key",)

    def __init__(self, version: str) -> None:
        self.key = version_key(version)

    def __lt__(self, other: "_Newest") -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Newest) and other.key == self.key

    __hash__ = None  # type: ignore[assignment]


def by_suitability(allocations: Allocations, view: ClusterView) -> list[Incarnation]:
    """Order regions: leaving ones last, then the newest app version first, then the fewest shards."""

    def rank(incarnation: Incarnation) -> tuple[bool, _Newest, int]:
        host = view.hosts.get(incarnation) or Host(incarnation)
        return host.leaving, _Newest(host.app_version), len(allocations[incarnation])

    return sorted(allocations, key=rank)


def good_time_to_rebalance(view: ClusterView) -> bool:
    """While versions are mixed or a node comes, goes or is in doubt, shards stay where they are."""
    return view.settled and len({host.app_version for host in view.hosts.values()}) <= 1


class ShardAllocationStrategy(Protocol):
    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        """Choose one of the regions in `allocations` (never empty) for a shard that lives nowhere."""
        ...

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        """Choose shards to be moved now; each is allocated anew after it has stopped."""
        ...


class LeastShardAllocation:
    """The default: to the region with the fewest; rebalances towards ceil(shards / regions) each."""

    def __init__(self, absolute_limit: int = 20, relative_limit: float = 0.1) -> None:
        if absolute_limit < 1 or not 0 < relative_limit <= 1:
            raise ValueError("absolute_limit must be at least 1, relative_limit more than 0 and at most 1")
        self.absolute_limit = absolute_limit
        self.relative_limit = relative_limit

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        return by_suitability(allocations, view)[0]

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        if in_progress or not allocations or not good_time_to_rebalance(view):
            return []
        regions = [allocations[each] for each in by_suitability(allocations, view)]
        regions.sort(key=len, reverse=True)
        total = sum(map(len, regions))
        optimal = ceil(total / len(regions))
        limit = max(1, min(int(self.relative_limit * total), self.absolute_limit))
        surplus = [shard for shards in regions for shard in shards[: max(0, len(shards) - optimal)]]
        if surplus:
            return surplus[:limit]
        hungry = sum(1 for shards in regions if len(shards) < optimal - 1)
        return [shards[0] for shards in regions if len(shards) >= optimal][: min(hungry, limit)]
