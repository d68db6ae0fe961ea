"""The older strategy: moves a few shards at a time from the fullest region to the emptiest."""

from collections.abc import Mapping, Sequence, Set

from sharding_app.protocol.allocation.strategy import Allocations, ClusterView, most_suitable
from sharding_app.protocol.ids import Incarnation, ShardId


class ThresholdAllocation:
    """Moves shards while the fullest region has more than `threshold` shards above the most
    suitable one.

    At most `max_simultaneous` shards are on the move; shards that are already leaving the fullest
    region do not count as its own. `LeastShardAllocation` gets there in fewer rounds.
    """

    def __init__(self, threshold: int = 1, max_simultaneous: int = 3) -> None:
        if threshold < 1 or max_simultaneous < 1:
            raise ValueError("threshold and max_simultaneous must be at least 1")
        self.threshold = threshold
        self.max_simultaneous = max_simultaneous

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        return most_suitable(allocations, view)

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        room = self.max_simultaneous - len(in_progress)
        if room <= 0 or not allocations or not view.good_time_to_rebalance:
            return []
        staying = ([shard for shard in shards if shard not in in_progress] for shards in allocations.values())
        fullest = max(staying, key=len)
        difference = len(fullest) - len(allocations[most_suitable(allocations, view)])
        if difference <= self.threshold:
            return []
        return sorted(fullest)[: min(difference - self.threshold, self.threshold, room)]
