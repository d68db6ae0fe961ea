"""The default strategy: a shard goes to the region with the fewest; rounds of moves even it out."""

from collections.abc import Mapping, Sequence, Set
from math import ceil

from sharding_app.protocol.allocation.strategy import Allocations, ClusterView, most_suitable
from sharding_app.protocol.ids import Incarnation, ShardId


class LeastShardAllocation:
    """Rebalances towards ceil(shards / regions) for each region.

    One round moves at most `absolute_limit` shards and at most `relative_limit` of all, but one may
    always move. The next round begins when the former one is over.
    """

    def __init__(self, absolute_limit: int = 20, relative_limit: float = 0.1) -> None:
        if absolute_limit < 1 or not 0 < relative_limit <= 1:
            raise ValueError("absolute_limit must be at least 1, relative_limit more than 0 and at most 1")
        self.absolute_limit = absolute_limit
        self.relative_limit = relative_limit

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
        if in_progress or not allocations or not view.good_time_to_rebalance:
            return []
        # The fullest regions come first, in case a limit cuts the list.
        regions = sorted(allocations.values(), key=len, reverse=True)
        total = sum(map(len, regions))
        optimal = ceil(total / len(regions))
        limit = max(1, min(int(self.relative_limit * total), self.absolute_limit))
        surplus = [shard for shards in regions for shard in shards[: max(0, len(shards) - optimal)]]
        if surplus:
            return surplus[:limit]
        # `optimal` is rounded up: others may lack more than the one shard that rounding explains.
        lacking = sum(max(0, optimal - 1 - len(shards)) for shards in regions)
        full = [shards[0] for shards in regions if shards and len(shards) >= optimal]
        return full[: min(lacking, limit)]
