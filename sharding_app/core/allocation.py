"""Where shards go: what a strategy is asked, what it may know, and in which order regions suit.

A strategy is a pure function of what is allocated where. A user's own is one small class with `allocate` and
`rebalance`; it may keep nothing between calls that it could not work out again.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from functools import cached_property
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
    name: str = ""
    "What the node is called: kept over restarts, unlike the incarnation."


class ClusterView(msgspec.Struct, frozen=True, dict=True):
    """The nodes behind the regions, oldest first."""

    hosts: Mapping[Incarnation, Host]
    settled: bool = True
    "No node of the cluster is joining, leaving, deaf or suspect."
    locations: Mapping[ShardId, str] | None = None
    "Where the application wants shards of this type, by node name; None: it is not known now (`ExternalAllocation`)."

    @cached_property
    def rank(self) -> Mapping[Incarnation, int]:
        """What is known of a region's suitability before its shards are counted: low is good."""
        versions = sorted({version_key(host.app_version) for host in self.hosts.values()}, reverse=True)
        place = {version: number for number, version in enumerate(versions)}
        return {
            each.incarnation: place[version_key(each.app_version)] + (len(versions) if each.leaving else 0)
            for each in self.hosts.values()
        }

    @cached_property
    def good_time_to_rebalance(self) -> bool:
        """While versions are mixed or a node comes, goes or is in doubt, shards stay where they are."""
        return self.settled and len({host.app_version for host in self.hosts.values()}) <= 1


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Order versions as people do: 1.10.0 after 1.9.0, and 1.0 after 1.0-rc."""
    parts = version.replace("-", ".").replace("+", ".").split(".")
    end = (0, 1, "")
    return *((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts), end


def suitability(incarnation: Incarnation, allocations: Allocations, view: ClusterView) -> tuple[int, int]:
    """Order regions by this: leaving ones last, then the newest app version first, then the fewest shards."""
    rank = view.rank
    return rank.get(incarnation, len(rank) * 2), len(allocations[incarnation])


def by_suitability(allocations: Allocations, view: ClusterView) -> list[Incarnation]:
    """Return the regions, the most suitable first; the older of two equal ones goes before the younger."""
    return sorted(allocations, key=lambda each: suitability(each, allocations, view))


def most_suitable(allocations: Allocations, view: ClusterView) -> Incarnation:
    """Return the first of `by_suitability` without sorting: it is asked for every shard that needs a home."""
    rank = view.rank
    unknown = len(rank) * 2
    best, best_rank, best_size = "", unknown + 1, 0
    for each, shards in allocations.items():
        its_rank = rank.get(each, unknown)
        if its_rank < best_rank or (its_rank == best_rank and len(shards) < best_size):
            best, best_rank, best_size = each, its_rank, len(shards)
    return best


class ShardAllocationStrategy(Protocol):
    """Where a shard goes, and which ones move."""

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        """Choose one of the regions in `allocations` (never empty) for a shard that lives nowhere.

        `requester` is the process that asked for the shard, if one did: it need not be among the regions.
        """
        ...

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        """Choose shards to be moved now; each is allocated anew after it has stopped."""
        ...
