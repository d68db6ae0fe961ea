"""A node is given shards once the coordinator has heard it over the wire, and is ready no
sooner.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import cast

import pytest
import pytest_asyncio

from sharding_app import Entity, InvalidCall, ShardingSettings, Unavailable, command
from sharding_app.client.region_queries import inspect
from sharding_app.entities.extractors import MessageExtractor
from sharding_app.entities.sharding.queries import (
    ClusterShardingStats,
    GetClusterShardingStats,
    GetCurrentRegions,
)
from sharding_app.protocol.call import Call
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import Register, RegisterAck
from sharding_app.runtime.asking.queries import RegionStates
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.node import type_compatibility
from sharding_app.runtime.node.health import NodeHealth
from sharding_app.runtime.node.membership import NodeMembership
from sharding_app.runtime.node.node import Node
from sharding_app.runtime.node.reach import Reaching
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

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
    await until(lambda: node.locator.coordinator == coordinator.incarnation)
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


class ByFloor(MessageExtractor):
    """A class whose rule changes with a release, under one name."""

    rule = 0

    def shard_id(self, entity_id: str) -> int:
        return (int(entity_id.partition("-")[0]) + self.rule) % self.number_of_shards


async def test_o9_a_rule_that_changed_under_one_name_is_refused(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entities would live twice, once by each rule."""
    (known,) = cluster.types.values()
    cluster.types[known.name] = known.renamed("registration.Room", known.settings)
    cluster.types[known.name].extractor = ByFloor(SHARDS)
    first = await cluster.add_node("first")
    second = await cluster.add_node("second")
    assert first.refused == second.refused == {}
    monkeypatch.setattr(ByFloor, "rule", 1)
    third = await cluster.add_node("third")
    assert list(third.refused) == ["registration.Room"]
    assert "registration.Room" not in third.hosts
    assert "maps ids to other shards here than in the cluster" in third.why_refused("registration.Room")
    with pytest.raises(InvalidCall, match="maps ids to other shards"):
        third.ask(Call("registration.Room", "1", "where", b""))


async def test_o9_the_default_way_is_compared_too(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type_compatibility, "shard_of", lambda entity, number: len(entity) % number)
    node = await cluster.add_node()
    assert list(node.refused) == ["registration.Item"]


async def test_o10_the_kit_finds_homes_by_the_types_extractor(cluster: MemoryCluster) -> None:
    (known,) = cluster.types.values()
    await cluster.add_node()
    await until(lambda: all(each.registered for each in cluster.nodes.values()))
    known.extractor = ByFloor(SHARDS)
    try:
        cluster.client.region_client._shard_ids[known.name] = known.extractor.checked_shard_id
        for number in range(24):
            assert await Item.ref(f"{number}-east").where() == "here"
            row = cluster.server.cluster.shards[known.name, number % SHARDS]
            assert cluster.nodes[cluster.home_of(Item, f"{number}-east")].incarnation == row.home
    finally:
        known.extractor = None


async def test_o12_a_region_is_named_once_the_coordinator_knows_it(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: cluster.nodes["node1"].coordinator is not None)
    shell = cluster.nodes["node1"].coordinator
    assert shell is not None
    monkeypatch.setattr(shell.machine, "registered", lambda *_: None)
    node = await cluster.add_node()
    asked = cluster.nodes["node1"]
    assert node.state == "up"
    assert await inspect(asked, "registration.Item", GetCurrentRegions(), None) == {"node1"}
    monkeypatch.undo()
    await until(lambda: node.registered)
    assert await inspect(asked, "registration.Item", GetCurrentRegions(), None) == {"node1", "node2"}


async def test_o13_a_timeout_of_nothing_is_no_default(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cluster.nodes["node1"]
    seen: list[float] = []
    ask = asked.queries.region_states

    async def remembered(nodes: Iterable[str], types: Iterable[str], timeout: float) -> RegionStates:
        seen.append(timeout)
        return await ask(nodes, types, timeout)

    monkeypatch.setattr(asked.queries, "region_states", remembered)
    for timeout in (0, None, 2.5):
        await inspect(asked, "registration.Item", GetClusterShardingStats(), timeout)
    assert seen == [0, 3.0, 2.5]


async def test_o13_two_nodes_of_one_name_count_twice(cluster: MemoryCluster) -> None:
    node = await cluster.add_node("twin")
    config = dataclasses.replace(node.config, name="node1")
    ports = cluster._node_ports("n-other")
    twin = Node("n-other", config, ports, cluster._list(), cluster.server.cluster_id)
    await twin.start()
    try:
        answer = await inspect(node, "registration.Item", GetClusterShardingStats(), None)
        assert isinstance(answer, ClusterShardingStats)
        assert sorted(answer.regions) == ["node1(n-node1-)", "node1(n-other)", "twin"]
    finally:
        await twin.close()


class Former(Entity, name="registration.Former"):
    """Deleted in the next release."""

    settings = ShardingSettings(number_of_shards=SHARDS)

    @command
    def where(self) -> str:
        return "here"


async def test_the_last_node_with_a_type_does_not_wait_for_others_to_take_it() -> None:
    """A rolling update that deletes a class: no node takes its shards, so its last node left only
    after 30 seconds.
    """
    async with MemoryCluster([Item, Former], nodes=1) as cluster:
        with cluster.in_use():
            for number in range(8):
                assert await Former.ref(str(number)).where() == "here"
                assert await Item.ref(str(number)).where() == "here"
            former = cluster.types.pop("registration.Former")
            node = await cluster.add_node("new")
            await until(lambda: node.registered)
            cluster.types[former.name] = former
            loop = asyncio.get_running_loop()
            began = loop.time()
            await cluster.nodes["node1"].stop(60.0)
            assert loop.time() - began < 30
            del cluster.nodes["node1"]
            assert await Item.ref("1").where() == "here"
            await until(lambda: node.coordinator is not None)
            with pytest.raises(Unavailable, match="no node hosts"):
                await Former.ref("1").where()
            shell = node.coordinator
            assert shell is not None
            await until(lambda: shell.machine.asked_in_vain(0.0) == [former.name])


async def test_a_coordinator_that_is_elected_again_is_told_again() -> None:
    """Its new term has heard no node yet, and its first word of that term may be lost."""
    said: list[Register] = []
    locator = SimpleNamespace(coordinator="c-1", term=4)
    node = SimpleNamespace(
        locator=locator, state="up", incarnation="n-1", hosting=SimpleNamespace(ask_to_leave=lambda: False),
        ports=SimpleNamespace(clock=SimpleNamespace(now=lambda: 0.0)),
        try_send=lambda to, message: said.append(message),
    )  # fmt: skip
    registering = NodeMembership(cast(Node, node), cast(Reaching, None))
    registering.tick(0.0)
    registering.acknowledged(RegisterAck(4, "c-1", heard=False))
    registering.acknowledged(RegisterAck(4, "c-1", heard=True))
    said.clear()
    registering.tick(1.0)
    assert said == []
    locator.term = 9
    registering.tick(2.0)
    assert said == [Register("n-1", 4)], "the acknowledgement of term 4 says nothing of term 9"
    registering.acknowledged(RegisterAck(9, "c-1", heard=False))
    assert said[1:] == [Register("n-1", 9)]
    registering.acknowledged(RegisterAck(9, "c-1", heard=True))
    registering.tick(4.0)
    assert said[2:] == []
