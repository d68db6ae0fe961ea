"""Rows of entity types: each node is listed in a small cluster, and in a large one the range."""

import pytest

from sharding_app.dashboard.presenters import types
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import ShardGroup
from tests.unit.operations.looks import cluster, member


def look(nodes: int) -> Look:
    """A cluster in which the nodes have 1, 2, 1, 2 ... shards of one type, and one has none."""
    names = [f"a{number}" for number in range(nodes + 1)]
    shards = [
        ShardGroup(type="shop.Cart", step="home", home=f"n-{name}", shards=1 + place % 2)
        for place, name in enumerate(names[:-1])
    ]
    return Look(cluster=cluster(members=[member(name) for name in names], shards=shards))


@pytest.mark.parametrize("nodes", [1, types.HOMES_SHOWN])
def test_each_node_is_listed(nodes: int) -> None:
    (row,) = types.type_rows(look(nodes))
    assert [(each["name"], each["text"]) for each in row["shares"]] == [
        (f"a{number}", str(1 + number % 2)) for number in range(nodes)
    ]
    assert row["spread"] == ""


def test_of_many_nodes_the_range_is_told() -> None:
    (row,) = types.type_rows(look(types.HOMES_SHOWN + 1))
    assert row["shares"] == []
    assert row["spread"] == "25 nodes, 1 to 2 each"
    assert row["placed"] == "37"
