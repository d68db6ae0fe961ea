"""What a region itself can be asked or told, about the cluster rather than about one entity."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class Question:
    """A message for the region, not for an entity."""


@dataclass(frozen=True, slots=True)
class GetShardRegionState(Question):
    """Which entities live in the region of this process? Answer: `CurrentShardRegionState`."""


@dataclass(frozen=True, slots=True)
class CurrentShardRegionState:
    """Entities by shard, in this process."""

    shards: Mapping[int, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetClusterShardingStats(Question):
    """How many entities live where? Answer: `ClusterShardingStats`."""


@dataclass(frozen=True, slots=True)
class ClusterShardingStats:
    """Entities by node name and shard; nodes that did not answer in time are in `failed`."""

    regions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GetCurrentRegions(Question):
    """Which nodes host the type? Answer: a set of node names."""


@dataclass(frozen=True, slots=True)
class GracefulShutdown(Question):
    """Told to the region of a node: hand its shards over, and host nothing of the type any more."""


@dataclass(frozen=True, slots=True)
class SetActiveEntityLimit(Question):
    """Told to the region of a node: so many entities may be in its memory from now on; 0: any number."""

    limit: int


@dataclass(frozen=True, slots=True)
class GetShardLocations(Question):
    """Where does the application want the type's shards? Answer: node names by shard (`ExternalAllocation`)."""


@dataclass(frozen=True, slots=True)
class UpdateShardLocations(Question):
    """Let these shards live on the nodes of these names."""

    locations: Mapping[int, str]
