"""Allocation strategies: their interface, the facts they may use, and the order of suitability.

A strategy is a pure function of the current allocation. A user's strategy is one small class with
`allocate` and `rebalance`; between calls it may keep only values that it could compute again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Protocol

import msgspec

from sharding_app.protocol.ids import Incarnation, ShardId

Allocations = Mapping[Incarnation, Collection[ShardId]]
"""The shards of each region that may host, oldest node first. `rebalance` gets sorted sequences."""


class Host(msgspec.Struct, frozen=True):
    """The facts about a region's node that a strategy may use."""

    incarnation: Incarnation
    app_version: str = ""
    leaving: bool = False
    name: str = ""
    "The node's name: kept over restarts, unlike the incarnation."


class ClusterView(msgspec.Struct, frozen=True, dict=True):
    """The nodes behind the regions, oldest first."""

    hosts: Mapping[Incarnation, Host]
    settled: bool = True
    "No node of the cluster is joining, leaving, deaf or suspect."
    locations: Mapping[ShardId, str] | None = None
    """The node name on which the application wants each shard of this type. None: not known now
    (`ExternalAllocation`)."""

    @cached_property
    def rank(self) -> Mapping[Incarnation, int]:
        """Rank regions by version, leaving nodes last, before counting shards: lower is better."""
        versions = sorted({version_key(host.app_version) for host in self.hosts.values()}, reverse=True)
        place = {version: number for number, version in enumerate(versions)}
        return {
            each.incarnation: place[version_key(each.app_version)] + (len(versions) if each.leaving else 0)
            for each in self.hosts.values()
        }

    @cached_property
    def good_time_to_rebalance(self) -> bool:
        """False while versions are mixed or a node comes, goes or is in doubt: shards stay where
        they are.
        """
        return self.settled and len({host.app_version for host in self.hosts.values()}) <= 1


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Order versions as people do: 1.10.0 after 1.9.0, and 1.0 after 1.0-rc."""
    parts = version.replace("-", ".").replace("+", ".").split(".")
    end = (0, 1, "")
    return *((1, len(number), number) if (number := _number(part)) else (0, 0, part) for part in parts), end


def _number(part: str) -> str:
    """Return the digits without leading zeros, empty if the part is no number.

    Python refuses to read very long ones as int.
    """
    return (part.lstrip("0") or "0") if part.isascii() and part.isdecimal() else ""


def suitability(incarnation: Incarnation, allocations: Allocations, view: ClusterView) -> tuple[int, int]:
    """Return a region's sort key: leaving ones last, newest app version first, fewest shards
    first.
    """
    rank = view.rank
    return rank.get(incarnation, len(rank) * 2), len(allocations[incarnation])


class Candidates(dict[Incarnation, dict[ShardId, None]]):
    """The regions that may host, oldest node first; finds the most suitable one without a walk.

    Callers report each change of a region's shards by `changed`. The heap has an entry for each
    number of shards that a region has had; only the entry with the current number counts.
    """

    def __init__(self, regions: Mapping[Incarnation, dict[ShardId, None]]) -> None:
        super().__init__(regions)
        self._place = {each: number for number, each in enumerate(self)}
        self._heap: list[tuple[int, int, int, Incarnation]] = []
        self._view: ClusterView | None = None

    def changed(self, incarnation: Incarnation) -> None:
        if self._view is not None and incarnation in self:
            heappush(self._heap, self._entry(incarnation, self._view))

    def most_suitable(self, view: ClusterView) -> Incarnation:
        if self._view is not view:
            self._view = view
            self._heap = [self._entry(each, view) for each in self]
            heapify(self._heap)
        while True:
            _, size, _, best = self._heap[0]
            if size == len(self[best]):
                return best
            heappop(self._heap)

    def _entry(self, incarnation: Incarnation, view: ClusterView) -> tuple[int, int, int, Incarnation]:
        return *suitability(incarnation, self, view), self._place[incarnation], incarnation


class Offered(Mapping[Incarnation, Collection[ShardId]]):
    """The candidates as a user's strategy sees them: read-only, and not copied."""

    __slots__ = ("_candidates",)

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates

    def __getitem__(self, incarnation: Incarnation) -> Collection[ShardId]:
        return self._candidates[incarnation].keys()

    def __iter__(self) -> Iterator[Incarnation]:
        return iter(self._candidates)

    def __len__(self) -> int:
        return len(self._candidates)

    def most_suitable(self, view: ClusterView) -> Incarnation:
        return self._candidates.most_suitable(view)


def most_suitable(allocations: Allocations, view: ClusterView) -> Incarnation:
    """Return the first by `suitability`, the oldest of equals, without sorting.

    Each shard that needs a home calls it.
    """
    if isinstance(allocations, Candidates | Offered):
        return allocations.most_suitable(view)
    rank = view.rank
    unknown = len(rank) * 2
    best, best_rank, best_size = "", unknown + 1, 0
    for each, shards in allocations.items():
        its_rank = rank.get(each, unknown)
        if its_rank < best_rank or (its_rank == best_rank and len(shards) < best_size):
            best, best_rank, best_size = each, its_rank, len(shards)
    return best


class ShardAllocationStrategy(Protocol):
    """Chooses homes for shards, and the shards to move."""

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        """Choose one of the regions in `allocations` (never empty) for a shard that has no home.

        `requester` is the process that asked for the shard, if one did: it need not be among the
        regions.
        """
        ...

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        """Choose shards to move now; each is allocated again after it has stopped."""
        ...
