"""Where a singleton lives: on the node that has been there longest. It moves only when that node leaves or dies."""

from collections.abc import Mapping, Sequence, Set

from sharding_app.core.allocation import Allocations, ClusterView
from sharding_app.core.ids import Incarnation, ShardId

SINGLETON = "singleton:"
"""What the type names of singletons begin with: the coordinator knows by it how to place them, on any node."""


class OldestAllocation:
    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        """The regions come oldest first; one that leaves is the last choice."""
        staying = [each for each in allocations if each not in view.hosts or not view.hosts[each].leaving]
        return next(iter(staying or allocations))

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        return []
