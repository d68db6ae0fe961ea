"""Messages to a region about the cluster, not to one entity."""

from collections.abc import Mapping
from dataclasses import dataclass, field


class Question:
    """A message for the region, not for an entity."""


@dataclass(frozen=True, slots=True)
class GetShardRegionState(Question):
    """Ask for the entities in this process's region; the reply is `CurrentShardRegionState`."""


@dataclass(frozen=True, slots=True)
class CurrentShardRegionState:
    """Entities by shard, in this process."""

    shards: Mapping[int, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GetClusterShardingStats(Question):
    """Ask for the number of entities per node and shard; the reply is `ClusterShardingStats`."""


@dataclass(frozen=True, slots=True)
class ClusterShardingStats:
    """Entities by node name and shard; nodes that did not answer in time are in `failed`."""

    regions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GetCurrentRegions(Question):
    """Ask for the nodes that host the type; the reply is a set of node names."""


@dataclass(frozen=True, slots=True)
class GracefulShutdown(Question):
    """Tell the region of a node to hand its shards over and to host the type no longer."""


@dataclass(frozen=True, slots=True)
class SetActiveEntityLimit(Question):
    """Tell the region of a node its new limit of entities in memory; 0: no limit."""

    limit: int


@dataclass(frozen=True, slots=True)
class GetNumberOfWorkers(Question):
    """Ask how many workers a set has (`ShardedDaemonProcess`); the reply is `NumberOfWorkers`."""


@dataclass(frozen=True, slots=True)
class Rescale(Question):
    """Let a set have another number of workers; the reply comes when the old ones have stopped."""

    workers: int


@dataclass(frozen=True, slots=True)
class GetShardLocations(Question):
    """Ask for the locations of shards (`ExternalAllocation`); the reply is node names by shard."""


@dataclass(frozen=True, slots=True)
class UpdateShardLocations(Question):
    """Assign these shards to the nodes with these names."""

    locations: Mapping[int, str]
