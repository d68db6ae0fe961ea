"""Nodes come, leave and crash, and what becomes of the entities in them: rows B1 and B2 of
docs/conformance.md.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import pytest_asyncio

from sharding_app import (
    ClusterSharding,
    ClusterShardingStats,
    GetClusterShardingStats,
    GetCurrentRegions,
    HashCodeMessageExtractor,
    Unavailable,
)
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.regions import Region
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.messages import OperatorRequest
from sharding_app.protocol.records import ShardRow
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.counter_cluster import CONFIG, NAMES, until
from tests.unit.runtime.counters import (
    SHARDS,
    Counter,
    Get,
    Increment,
    Remembered,
    Stop,
    counters,
    remembered,
    to,
)
from tests.unit.runtime.hosting.recorded import Log, RecordedCluster

pytestmark = pytest.mark.asyncio
IDS = [str(number) for number in range(100)]


class Slow(Counter):
    """Takes a while to stop."""

    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []
    log: ClassVar[list[tuple[str, str]]] = []

    def __init__(self) -> None:
        super().__init__()
        Slow.log.append(("born", self.entity_id))

    async def receive(self, message: object) -> object:
        if isinstance(message, Stop):
            Slow.log.append(("stops", self.entity_id))
            await asyncio.sleep(0.05)
            Slow.log.append(("stopped", self.entity_id))
        return await super().receive(message)


slow: Region = ClusterSharding.start(
    "protocol.Slow", entity=Slow, extractor=HashCodeMessageExtractor(SHARDS), stop_message=Stop()
)


@pytest_asyncio.fixture
async def alone(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    """A cluster of one node."""
    for cls in (Counter, Remembered, Slow):
        monkeypatch.setattr(cls, "born", [])
        monkeypatch.setattr(cls, "stopped", [])
    monkeypatch.setattr(Slow, "log", [])
    types = [registry.get(name) for name in (*NAMES[:2], "protocol.Slow")]
    config = dataclasses.replace(CONFIG, stop_timeout_seconds=10.0)
    async with MemoryCluster(types, nodes=1, config=config) as made:
        with made.in_use():
            yield made


async def joined(cluster: MemoryCluster, *names: str) -> None:
    """Start nodes, and wait until the coordinator gives them shards."""
    for name in names:
        await cluster.add_node(name)
    nodes = cluster.nodes.values()

    def all_may_host() -> bool:
        # A node knows that it is registered before the coordinator has read that it is up.
        coordinators = [node.coordinator for node in nodes if node.coordinator is not None]
        return any(
            len(each.machine.placement.hosts_of("protocol.Counter")) == len(nodes) for each in coordinators
        )

    await until(lambda: all(node.registered for node in nodes) and all_may_host())


def homes(cluster: MemoryCluster, entity: type[Counter]) -> dict[str, str]:
    """Where each of the ids lives."""
    return {each: cluster.home_of(entity, each) for each in IDS}


def rows(cluster: MemoryCluster, type_name: str) -> dict[int, ShardRow]:
    return {shard: row for (name, shard), row in cluster.server.cluster.shards.items() if name == type_name}


async def answer(message: object) -> object:
    """Ask until the answer does not come from a node that has died meanwhile."""
    async with asyncio.timeout(10 * SLACK):
        while True:
            with contextlib.suppress(Unavailable):
                return await counters.ask(message)


async def test_b1_1_one_node_is_the_only_region_and_counts(alone: MemoryCluster) -> None:
    assert await counters.ask(GetCurrentRegions()) == {"node1"}
    for _ in range(3):
        counters.tell(to("1", Increment()))
    assert await counters.ask(Get("1")) == 3
    assert await counters.ask(GetClusterShardingStats()) == ClusterShardingStats(
        {"node1": {shard_of("1", SHARDS): 1}}, frozenset()
    )


async def test_b1_2_a_second_node_takes_shards_and_both_answer(alone: MemoryCluster) -> None:
    early = IDS[:5]
    for each in early:
        await counters.ask(to(each, Increment()))
    await joined(alone, "node2")
    assert await counters.ask(GetCurrentRegions()) == {"node1", "node2"}
    for each in IDS:
        await counters.ask(to(each, Increment()))
    found = homes(alone, Counter)
    assert {found[each] for each in early} == {"node1"}, "nothing moves because another node has come"
    assert set(found.values()) == {"node1", "node2"}
    shards = [len(node.hosts["protocol.Counter"].shards) for node in alone.nodes.values()]
    assert shards == [SHARDS // 2, SHARDS // 2]
    assert [await counters.ask(Get(each)) for each in IDS] == [2 if each in early else 1 for each in IDS]
    stats = await counters.ask(GetClusterShardingStats())
    assert {name: sum(each.values()) for name, each in stats.regions.items()} == {
        name: list(found.values()).count(name) for name in ("node1", "node2")
    }


async def test_b1_7_the_coordinator_crashes_and_entities_elsewhere_stay_as_they_are(
    alone: MemoryCluster,
) -> None:
    await joined(alone, "node2", "node3")
    for each in IDS:
        await counters.ask(to(each, Increment()))
    before, were = homes(alone, Counter), rows(alone, "protocol.Counter")
    assert alone.nodes["node1"].coordinator is not None
    lost = alone.nodes["node1"].incarnation
    Counter.born.clear()
    await alone.kill_node("node1")
    assert [await answer(Get(each)) for each in IDS] == [0 if before[each] == "node1" else 1 for each in IDS]
    assert any(node.coordinator is not None for node in alone.nodes.values())
    after = rows(alone, "protocol.Counter")
    assert {shard: row for shard, row in after.items() if row == were[shard]} == {
        shard: row for shard, row in were.items() if row.home != lost
    }, "neither their homes nor their epochs have changed, and those of the dead have"
    assert sorted(Counter.born) == sorted(each for each in IDS if before[each] == "node1")


async def test_b1_12_a_shard_is_moved_by_hand_and_its_remembered_entities_run_again(
    alone: MemoryCluster,
) -> None:
    await joined(alone, "node2")
    for each in IDS:
        await remembered.ask(to(each, Increment()))
    shard = shard_of("1", SHARDS)
    inside = [each for each in IDS if shard_of(each, SHARDS) == shard]
    (away,) = {"node1", "node2"} - {alone.home_of(Remembered, "1")}
    Remembered.born.clear()
    request = OperatorRequest(0, "move", "protocol.Remembered", shard, target=alone.nodes[away].incarnation)
    answer = await alone.client.queries.operate(alone.nodes["node1"].incarnation, request)
    assert answer is not None
    assert answer.ok
    await until(lambda: len(Remembered.born) == len(inside))
    assert alone.home_of(Remembered, "1") == away
    assert all(alone.is_in_memory(Remembered, each) for each in IDS)
    assert sorted(Remembered.born) == sorted(inside), "without a message; and those of other shards stay"
    assert Counter.born == [], "the other type has no entity of that id"


async def test_b2_4_the_oldest_leaves_though_its_entities_are_slow_to_stop(alone: MemoryCluster) -> None:
    await joined(alone, "node2")
    for each in IDS:
        await slow.ask(to(each, Increment()))
    here = [each for each, home in homes(alone, Slow).items() if home == "node1"]
    assert alone.nodes["node1"].coordinator is not None
    host = alone.nodes["node1"].hosts["protocol.Slow"]
    leaving = asyncio.ensure_future(alone.stop_node("node1"))
    counts = await asyncio.gather(*(slow.ask(Get(each), timeout=10) for each in IDS))
    await leaving
    assert all(count == 1 for each, count in zip(IDS, counts, strict=True) if each not in here)
    assert [await slow.ask(Get(each)) for each in IDS] == [0 if each in here else 1 for each in IDS]
    assert set(homes(alone, Slow).values()) == {"node2"}
    assert host.counters["stopped_by_force"] == 0
    for each in here:
        told = [what for what, entity in Slow.log if entity == each]
        assert told == ["born", "stops", "stopped", "born"], "its successor begins when it has ended"


async def test_b2_14_a_leaving_node_gives_all_away_before_it_goes() -> None:
    """Its coordination, and each shard when it has stopped; its row is the last. Then its process
    may end.
    """
    log: Log = []
    async with RecordedCluster(log, [registry.get("protocol.Counter")], config=CONFIG) as cluster:
        with cluster.in_use():
            await joined(cluster, "node2", "node3")
            for each in IDS:
                await counters.ask(to(each, Increment()))
            node = cluster.nodes["node1"]
            assert node.coordinator is not None, "it is the oldest"
            mine = sorted(node.hosts["protocol.Counter"].shards)
            log.clear()
            await cluster.stop_node("node1")
            assert await node.ended == "stopped"
            assert {await answer(Get(each)) for each in IDS if shard_of(each, SHARDS) in mine} == {0}
    gone = log.index(("node1", "its row goes", -1))
    for shard in mine:
        stopped = log.index(("node1", "stopped", shard))
        started = next(
            place for place, (_, what, number) in enumerate(log) if (what, number) == ("started", shard)
        )
        assert stopped < started < gone
    assert log.index(("node2", "coordinates", -1)) < gone < log.index(("node1", "is down", -1))


async def test_b2_14_a_node_that_is_downed_ends_what_it_has(alone: MemoryCluster) -> None:
    """It was cut off for longer than its lease, and comes back when the others have taken its
    shards.
    """
    await joined(alone, "node2")
    for each in IDS:
        await counters.ask(to(each, Increment()))
    before = homes(alone, Counter)
    node = alone.nodes["node2"]
    alone.cut_off("node2")
    await until(
        lambda: not any(row.home == node.incarnation for row in rows(alone, "protocol.Counter").values())
    )
    assert not node.may_handle(), "before another node has one of its shards"
    assert node.hosts["protocol.Counter"].shards, "what it had is still there"
    alone._faults.killed.clear()
    async with asyncio.timeout(10 * SLACK):
        assert await node.ended == "buried"
    assert node.hosting.empty
    assert [await answer(Get(each)) for each in IDS] == [0 if before[each] == "node2" else 1 for each in IDS]
