"""A node is given shards once the coordinator has heard it over the wire, and is ready no sooner."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app import Entity, ShardingSettings, command
from sharding_app.core.coordinator import CoordinatorSettings
from sharding_app.runtime.config import NodeConfig
from sharding_app.runtime.health import NodeHealth
from sharding_app.runtime.node import Node
from sharding_app.testing.cluster import MemoryCluster
from tests.protocol.conftest import until

pytestmark = pytest.mark.asyncio

SHARDS = 16


class Item(Entity, name="registration.Item"):
    settings = ShardingSettings(number_of_shards=SHARDS)

    @command
    def where(self) -> str:
        return "here"


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    config = NodeConfig(coordinator=CoordinatorSettings(rebalance_interval_seconds=0.1))
    async with MemoryCluster([Item], nodes=1, config=config) as made:
        with made.in_use():
            yield made


def ready(node: Node) -> tuple[bool, str]:
    return NodeHealth(lambda: node, lambda: 0.0).ask("ready")


def homes(cluster: MemoryCluster) -> set[str | None]:
    return {row.home for row in cluster.server.cluster.shards.values()}


async def test_a_node_on_another_redis_is_given_nothing_and_says_so(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its row, its locks and its own echo; what it says arrives nowhere else."""
    route = cluster._faults.route
    apart = "n-node2-2"

    def other_redis(client: str, channel: str) -> object:
        inside = channel.rpartition(".")[2]
        return () if (client == apart) is not (inside == apart) else route(client, channel)

    monkeypatch.setattr(cluster._faults, "route", other_redis)
    node = await cluster.add_node()
    assert node.incarnation == apart
    coordinator = cluster.nodes["node1"]
    await until(lambda: node.homes.coordinator == coordinator.incarnation)
    for number in range(40):
        assert await Item.ref(str(number)).where() == "here"
    assert homes(cluster) == {coordinator.incarnation}
    ok, text = ready(node)
    assert not ok
    assert f"the coordinator {coordinator.incarnation} has not heard this node" in text
    monkeypatch.undo()
    await until(lambda: ready(node)[0])
    await until(lambda: apart in homes(cluster))


async def test_all_are_heard_by_a_new_coordinator(cluster: MemoryCluster) -> None:
    for _ in range(2):
        await cluster.add_node()
    await until(lambda: all(ready(each)[0] for each in cluster.nodes.values()))
    await cluster.kill_node("node1")
    await until(lambda: any(each.coordinator is not None for each in cluster.nodes.values()))
    shell = next(each.coordinator for each in cluster.nodes.values() if each.coordinator is not None)
    await until(lambda: len(shell.machine.placement.heard) == 2 and not shell.machine._trusted)


async def test_a_node_whose_type_is_refused_is_not_ready(cluster: MemoryCluster) -> None:
    await until(lambda: ready(cluster.nodes["node1"]) == (True, "the node is up"))
    (known,) = cluster.types.values()
    changed = known.renamed(known.name, dataclasses.replace(known.settings, number_of_shards=SHARDS * 2))
    cluster.types[known.name] = changed
    node = await cluster.add_node("next")
    await until(lambda: node.registered)
    ok, text = ready(node)
    assert not ok
    assert "number_of_shards is 32 here and 16 in the cluster" in text
