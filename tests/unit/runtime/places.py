"""Entities whose places the tests choose, each with a strategy of its own."""

from collections.abc import Mapping, Sequence, Set

from sharding_app import Entity, ExternalAllocation, ShardingSettings, command
from sharding_app.protocol.allocation.strategy import Allocations, ClusterView

SHARDS = 4


class ByName:
    """A user's own strategy: everything on the node of one name, and what it is told to move."""

    def __init__(self) -> None:
        self.name = ""
        self.moves: list[int] = []

    def allocate(self, requester: str | None, shard: int, allocations: Allocations, view: ClusterView) -> str:
        return next(
            (each for each in allocations if view.hosts[each].name == self.name), next(iter(allocations))
        )

    def rebalance(
        self, allocations: Mapping[str, Sequence[int]], in_progress: Set[int], view: ClusterView
    ) -> list[int]:
        return self.moves


by_name = ByName()


class Chosen(Entity, name="allocation.Chosen"):
    settings = ShardingSettings(number_of_shards=SHARDS, allocation=by_name)
    count: int = 0

    @command
    def add(self) -> int:
        self.count += 1
        return self.count


class Placed(Entity, name="allocation.Placed"):
    settings = ShardingSettings(number_of_shards=SHARDS, allocation=ExternalAllocation())
    count: int = 0

    @command
    def add(self) -> int:
        self.count += 1
        return self.count


class Plain(Entity, name="allocation.Plain"):
    settings = ShardingSettings(number_of_shards=SHARDS)

    @command
    def hello(self) -> str:
        return "hello"
