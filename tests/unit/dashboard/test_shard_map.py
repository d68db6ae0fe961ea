"""The legend of a shard map: it counts all shards of the type, also where the map shows some."""

from sharding_app.dashboard.presenters import shard_map
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import ShardGroup
from sharding_app.protocol.messages import RegionState, ShardRegionState
from tests.unit.operations.looks import cluster, member


def group(home: str | None, shards: int, type_name: str = "shop.Cart") -> ShardGroup:
    return ShardGroup(type=type_name, step="home" if home else "stopped", home=home, shards=shards)


def test_the_legend_counts_all_shards_of_the_type() -> None:
    groups = [
        group("n-a", 2500),
        group("n-b", 7500),
        group("n-gone", 9),
        group(None, 9),
        group("n-a", 50, "x.Y"),
    ]
    regions = [RegionState("shop.Cart", [0, 4000], [1, 1], [3, 4]), RegionState("x.Y", [0], [1], [50])]
    look = Look(
        cluster=cluster(members=[member("a"), member("b")], shards=groups),
        regions={"n-a": ShardRegionState(1, regions)},
    )
    found = shard_map.balance(look, look.cluster.types[0])
    assert [(each["name"], each["shards"], each["share"], each["entities"]) for each in found] == [
        ("a", "2,500", "25%", "7"), ("b", "7,500", "75%", "0"),
    ]  # fmt: skip
