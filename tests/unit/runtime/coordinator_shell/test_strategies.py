"""Strategies of single types on running nodes: a user's own one, and locations that the application
gives.
"""

import asyncio

import pytest

from sharding_app import ExternalAllocation, InvalidCall
from sharding_app.entities.settings import ShardingSettings
from sharding_app.errors import DeclarationError
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.call import Call
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.place_cluster import id_in, until
from tests.unit.runtime.places import Chosen, Placed, Plain, by_name

pytestmark = pytest.mark.asyncio
client = ExternalAllocation.client(Placed)


def homes(cluster: MemoryCluster, entity: type[object]) -> dict[int, str]:
    return {shard: cluster.home_of(entity, id_in(shard)) for shard in range(4)}


async def test_a6_a_users_own_strategy_places_and_moves(cluster: MemoryCluster) -> None:
    by_name.name = "node1"
    assert await Chosen.ref(id_in(1)).add() == 1
    by_name.name = "node2"
    assert [await Chosen.ref(id_in(shard)).add() for shard in (2, 3)] == [1, 1]
    assert homes(cluster, Chosen) == {0: "", 1: "node1", 2: "node2", 3: "node2"}
    by_name.name, by_name.moves = "node1", [2]
    await until(lambda: cluster.home_of(Chosen, id_in(2)) == "node1")
    assert homes(cluster, Chosen) == {0: "", 1: "node1", 2: "node1", 3: "node2"}
    assert [await Chosen.ref(id_in(shard)).add() for shard in (1, 2, 3)] == [2, 1, 2]


async def test_a5_4_without_a_location_a_shard_lives_where_it_was_asked_for(cluster: MemoryCluster) -> None:
    second = cluster.nodes["node2"]
    assert await second.ask(Call("allocation.Placed", id_in(3), "add", b"\x90"))
    first = cluster.nodes["node1"]
    assert await first.ask(Call("allocation.Placed", id_in(1), "add", b"\x90"))
    await until(lambda: homes(cluster, Placed) == {0: "", 1: "node1", 2: "", 3: "node2"})


async def test_a5_5_a_new_location_moves_a_running_shard(cluster: MemoryCluster) -> None:
    assert await client.locations() == {}
    await client.update_locations(dict.fromkeys(range(4), "node1"))
    for shard in range(4):
        await Placed.ref(id_in(shard)).add()
    await until(lambda: set(homes(cluster, Placed).values()) == {"node1"})
    await client.update_location(2, "node2")
    await until(lambda: cluster.home_of(Placed, id_in(2)) == "node2")
    assert homes(cluster, Placed) == {0: "node1", 1: "node1", 2: "node2", 3: "node1"}
    assert await Placed.ref(id_in(2)).add() == 1
    assert await client.locations() == {0: "node1", 1: "node1", 2: "node2", 3: "node1"}


async def test_a5_6_and_a5_7_a_location_may_name_a_node_that_comes_later(cluster: MemoryCluster) -> None:
    await client.update_location(1, "late")
    await Placed.ref(id_in(1)).add()
    assert cluster.home_of(Placed, id_in(1)) in ("node1", "node2")
    await cluster.add_node("late")
    await until(lambda: cluster.home_of(Placed, id_in(1)) == "late")
    await client.update_location(1, "node1")
    await until(lambda: cluster.home_of(Placed, id_in(1)) == "node1")
    assert await Placed.ref(id_in(1)).add() == 1


async def test_a_new_coordinator_knows_the_locations_before_it_places_anything(
    cluster: MemoryCluster,
) -> None:
    await client.update_locations(dict.fromkeys(range(4), "node2"))
    await cluster.kill_node("node1")
    await asyncio.gather(*(Placed.ref(id_in(shard)).add() for shard in range(4)))
    assert set(homes(cluster, Placed).values()) == {"node2"}
    assert all(row.epoch == 1 for row in cluster.server.cluster.shards.values())


async def test_a_location_that_cannot_be_is_refused(cluster: MemoryCluster) -> None:
    for shard, name in ((-1, "node1"), (1, ""), ("1", "node1"), (True, "node1")):
        with pytest.raises(InvalidCall, match="a shard number and a node name"):
            await client.update_location(shard, name)  # type: ignore[arg-type] # what a user may try
    with pytest.raises(InvalidCall, match="there is no shard 4"):
        await client.update_location(4, "node1")
    with pytest.raises(InvalidCall, match=r"knows a type 'shop\.Nothing'"):
        await ExternalAllocation.client("shop.Nothing").update_location(0, "node1")
    with pytest.raises(InvalidCall, match="is not an entity class"):
        ExternalAllocation.client(int)


async def test_locations_can_be_said_from_sync_code(cluster: MemoryCluster) -> None:
    sync = ExternalAllocation.client("allocation.Placed").sync
    await asyncio.to_thread(sync.update_location, 1, "node2")
    assert await asyncio.to_thread(sync.locations) == {1: "node2"}


async def test_types_without_a_strategy_of_their_own_use_the_clusters(cluster: MemoryCluster) -> None:
    for shard in range(4):
        assert await Plain.ref(id_in(shard)).hello() == "hello"
    assert sorted(homes(cluster, Plain).values()) == ["node1", "node1", "node2", "node2"]


async def test_what_is_no_strategy_is_refused_where_it_is_said() -> None:
    for wrong in (object(), ExternalAllocation):
        with pytest.raises(
            DeclarationError, match=r"allocation must be an object with allocate\(\) and rebalance\(\)"
        ):
            ShardingSettings(allocation=wrong)  # type: ignore[arg-type] # what a user may try
    fits: ShardAllocationStrategy = ExternalAllocation()
    assert ShardingSettings(allocation=fits).allocation is fits
