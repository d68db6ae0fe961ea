"""Allocation by the application: a client names a shard's node, before or after that node joins."""

from collections.abc import Mapping, Sequence, Set

from sharding_app.protocol.allocation.strategy import Allocations, ClusterView, most_suitable
from sharding_app.protocol.ids import Incarnation, ShardId


class ExternalAllocation:
    """Places shards on the nodes that the application names.

    A shard without a location, or whose node is not there, goes to the region that asked for it and
    stays. The locations come with the view: the coordinator reads them for types whose strategy
    `wants_locations`.
    """

    wants_locations = True

    def allocate(
        self, requester: Incarnation | None, shard: ShardId, allocations: Allocations, view: ClusterView
    ) -> Incarnation:
        wanted = (view.locations or {}).get(shard)
        for each in allocations if wanted is not None else ():
            host = view.hosts.get(each)
            if host is not None and host.name == wanted:
                return each
        if requester is not None and requester in allocations:
            return requester
        return most_suitable(allocations, view)

    def rebalance(
        self,
        allocations: Mapping[Incarnation, Sequence[ShardId]],
        in_progress: Set[ShardId],
        view: ClusterView,
    ) -> list[ShardId]:
        """Move shards that are wanted on another node, if that node is there.

        Without locations move none.
        """
        if not view.locations:
            return []
        present = {view.hosts[each].name for each in allocations if each in view.hosts}
        moves = []
        for incarnation, shards in allocations.items():
            host = view.hosts.get(incarnation)
            here = host.name if host is not None else None
            for shard in shards:
                wanted = view.locations.get(shard, here)
                if wanted != here and wanted in present and shard not in in_progress:
                    moves.append(shard)
        return moves
