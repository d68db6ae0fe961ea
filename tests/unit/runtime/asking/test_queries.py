"""What is in memory where, for how long, and what a caller learns whose time is over."""

import asyncio
import dataclasses
import re
from typing import Any

import pytest

from sharding_app import AskTimeout, Entity, ShardingSettings, command
from sharding_app.client.region_queries import inspect
from sharding_app.entities.sharding.queries import CurrentShardRegionState, GetShardRegionState
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.place_cluster import until
from tests.unit.runtime.places import Plain

pytestmark = pytest.mark.asyncio


class Slow(Entity, name="questions.Slow"):
    settings = ShardingSettings(number_of_shards=4)

    @command
    async def wait(self) -> None:
        await asyncio.sleep(3600)


async def travel(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    await loop.travel(seconds)


async def test_d2_an_idle_entity_goes_after_its_last_message() -> None:
    async with MemoryCluster([Plain], config=NodeConfig(passivate_after_seconds=20.0)) as cluster:
        with cluster.in_use():
            await Plain.ref("silent").hello()
            for _ in range(3):
                await Plain.ref("busy").hello()
                await travel(10)
            assert not cluster.is_in_memory(Plain, "silent")
            assert cluster.is_in_memory(Plain, "busy")
            await Plain.ref("silent").hello()
            await travel(26)
            assert not cluster.is_in_memory(Plain, "silent")
            assert not cluster.is_in_memory(Plain, "busy")


class Lasting(Plain, name="questions.Lasting"):
    settings = ShardingSettings(number_of_shards=4, passivate_after_seconds=0)


@pytest.mark.parametrize(("of_the_node", "entity"), [(0.0, Plain), (20.0, Lasting)])
async def test_d1_where_passivation_is_switched_off_an_entity_stays(
    of_the_node: float, entity: type[Plain]
) -> None:
    """For all types of a node, or for one."""
    config = NodeConfig(passivate_after_seconds=of_the_node)
    async with MemoryCluster([entity], config=config) as cluster:
        with cluster.in_use():
            await entity.ref("silent").hello()
            await travel(200)
            assert cluster.is_in_memory(entity, "silent")


async def test_f1_the_regions_together_know_every_entity(cluster: MemoryCluster) -> None:
    async def states() -> list[CurrentShardRegionState]:
        found: list[Any] = [
            await inspect(node, "allocation.Plain", GetShardRegionState(), None)
            for node in cluster.nodes.values()
        ]
        return found

    assert [each.shards for each in await states()] == [{}, {}]
    ids = [str(number) for number in range(12)]
    for each in ids:
        await Plain.ref(each).hello()
    both = await states()
    assert all(each.shards for each in both)
    held = [entity for each in both for shard in each.shards.values() for entity in shard]
    assert sorted(held) == sorted(ids)


async def test_g4_a_timeout_names_type_id_message_and_time() -> None:
    async with MemoryCluster([Slow]) as cluster:
        with cluster.in_use(), pytest.raises(AskTimeout) as over:
            await Slow.ref("tired", timeout=0.05).wait()
    text = str(over.value)
    assert "'questions.Slow' 'tired'" in text
    assert "'wait'" in text
    told = re.search(r"within ([\d.]+) s", text)
    assert told is not None
    assert float(told[1]) >= 0.05, "the time that has passed: more, where the loop was busy"


async def test_a_node_leaves_when_its_row_says_so_and_hands_its_shards_over(cluster: MemoryCluster) -> None:
    """What `sharding_shutdown NODE` does to a running process."""
    ids = [str(number) for number in range(12)]
    for each in ids:
        await Plain.ref(each).hello()
    config = dataclasses.replace(cluster.config, name="third")
    runner = NodeRunner(config, list(cluster.types.values()), cluster._node_ports, lambda: "n-third")
    running = asyncio.ensure_future(runner.run())
    await asyncio.wait_for(runner.up.wait(), 10 * SLACK)
    await until(lambda: runner.node is not None and bool(runner.node.hosts["allocation.Plain"].shards))
    await cluster.client.ports.store.ask_to("leave", ["n-third"])
    await asyncio.wait_for(running, 20 * SLACK)
    assert "n-third" not in cluster.server.cluster.members
    assert {cluster.home_of(Plain, each) for each in ids} == {"node1", "node2"}
    assert [await Plain.ref(each).hello() for each in ids] == ["hello"] * 12


async def test_when_all_is_to_stop_a_node_goes_without_handing_over(cluster: MemoryCluster) -> None:
    for number in range(12):
        await Plain.ref(str(number)).hello()
    rows = cluster.server.cluster
    lost = [key for key, row in rows.shards.items() if row.home == cluster.nodes["node2"].incarnation]
    assert lost
    everybody = [each.incarnation for each in cluster.nodes.values()]
    await cluster.client.ports.store.ask_to("prepare", everybody)
    await until(lambda: all(node.all_stops for node in cluster.nodes.values()))
    await cluster.stop_node("node2")
    await until(lambda: all(rows.shards[key].home is None for key in lost))
    assert await Plain.ref("1").hello() == "hello"
