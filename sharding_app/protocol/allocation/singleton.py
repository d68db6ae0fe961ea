"""Placement of singletons: on the node that has been there longest. One moves only when its node
leaves or dies.
"""

from collections.abc import Mapping, Sequence, Set

from sharding_app.protocol.allocation.strategy import Allocations, ClusterView
from sharding_app.protocol.ids import Incarnation, ShardId

SINGLETON = "singleton:"
"""Prefix of the type names of singletons: by it the coordinator knows how to place them, on any
node."""


class OldestAllocation:
    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        """Choose the first region, since they come oldest first; a leaving one comes last."""
        staying = [each for each in allocations if each not in view.hosts or not view.hosts[each].leaving]
        return next(iter(staying or allocations))

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        return []
