"""The message API: regions, extractors, envelopes, replies, stop messages, and what a region says
of itself.
"""

from typing import Any, cast
from uuid import UUID

import pytest

from sharding_app import (
    ClusterSharding,
    ClusterShardingStats,
    DeclarationError,
    Entity,
    GetClusterShardingStats,
    GetCurrentRegions,
    GracefulShutdown,
    HashCodeMessageExtractor,
    InvalidCall,
    InvalidEntityId,
    MessageExtractor,
    ShardingSettings,
    StartEntity,
    StartEntityAck,
    Unavailable,
)
from sharding_app.client.region_queries import leave
from sharding_app.entities.extractors import FunctionExtractor
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.regions import Region
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.counters import SHARDS, Counter, Get, Increment, Quit, Rest, WhoAreYou, counters, to

pytestmark = pytest.mark.asyncio


async def test_a_tell_comes_before_the_next_ask(cluster: MemoryCluster) -> None:
    """B1.1"""
    for _ in range(3):
        counters.tell(to("1", Increment()))
    assert await counters.ask(Get("1")) == 3


async def test_a_tell_that_was_handled_is_no_longer_under_way(cluster: MemoryCluster) -> None:
    """It counts against the limits of the process that told until its home says that it is done."""
    for _ in range(3):
        counters.tell(to("1", Increment()))
    await until(lambda: not cluster.client.region_client.pending)
    assert cluster.client.region_client.regions["protocol.Counter"].calls == 0
    assert await counters.ask(Get("1")) == 3


async def test_ids_come_from_the_message_or_from_its_envelope(cluster: MemoryCluster) -> None:
    """G1, G8"""
    assert await counters.ask(to("a", WhoAreYou())) == "a"
    assert await counters.ask(Get("a")) == 0
    with pytest.raises(InvalidCall, match="has no entity id: wrap it in EntityEnvelope"):
        await counters.ask(Increment())


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": float("inf")},
        {"timeout": float("nan")},
        {"timeout": 0},
        {"timeout": "5"},
        {"command_id": 5},
        {"command_id": UUID(int=5)},
        {"command_id": "x" * 256},
        {"command_id": "?ours"},
    ],
    ids=str,
)
async def test_wrong_options_never_leave_the_caller(cluster: MemoryCluster, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall, match=r"timeout must be|command id must"):
        await counters.ask(Get("a"), **options)
    if "command_id" in options:
        with pytest.raises(InvalidCall, match="command id must"):
            counters.tell(Get("a"), **options)
    assert await counters.ask(Get("a"), timeout=5, command_id="mine") == 0
    assert not cluster.client.region_client.pending


async def test_an_extractor_that_gives_no_id_fails_its_caller(cluster: MemoryCluster) -> None:
    class ByNumber(HashCodeMessageExtractor):
        def entity_id(self, message: object) -> str:
            return cast(str, 2.5)

    with pytest.raises(InvalidEntityId, match="not float"):
        await Region("protocol.Counter", ByNumber(SHARDS)).ask(Get("a"))


async def test_a_handled_message_without_a_reply_answers_none(cluster: MemoryCluster) -> None:
    assert await counters.ask(to("1", Increment())) is None


async def test_start_entity_starts_and_is_acknowledged(cluster: MemoryCluster) -> None:
    """G5"""
    assert await counters.ask(StartEntity("fresh")) == StartEntityAck("fresh")
    assert Counter.born == ["fresh"]


async def test_types_do_not_meet(cluster: MemoryCluster) -> None:
    """B1.9"""
    from tests.unit.runtime.counters import remembered

    await counters.ask(to("123", Increment()))
    assert await remembered.ask(Get("123")) == 0


async def test_passivate_gets_its_stop_message_and_the_next_incarnation_what_came_meanwhile(
    cluster: MemoryCluster,
) -> None:
    """G2"""
    await counters.ask(to("1", Increment()))
    counters.tell(to("1", Rest()))
    counters.tell(to("1", Increment()))
    counters.tell(to("1", Increment()))
    assert await counters.ask(Get("1")) == 2, "the former incarnation took its count with it"
    assert Counter.stopped == ["1"]
    assert Counter.born == ["1", "1"]


async def test_an_entity_that_ignores_its_stop_message_is_stopped_by_force(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2.19, M10"""
    monkeypatch.setattr(Counter, "deaf_to_stop", True)
    await counters.ask(to("1", Increment()))
    counters.tell(to("1", Rest()))
    assert await counters.ask(Get("1")) == 0
    assert Counter.stopped == []
    hosts = [node.hosts["protocol.Counter"] for node in cluster.nodes.values()]
    assert sum(host.counters["stopped_by_force"] for host in hosts) == 1


async def test_stop_without_passivate_starts_anew_at_the_next_message(cluster: MemoryCluster) -> None:
    """B2.20"""
    await counters.ask(to("1", Increment()))
    await counters.ask(to("1", Quit()))
    assert await counters.ask(Get("1")) == 0
    assert Counter.born == ["1", "1"]


async def test_entities_get_their_stop_message_when_their_node_leaves(cluster: MemoryCluster) -> None:
    """G6"""
    ids = [str(number) for number in range(100)]
    for each in ids:
        await counters.ask(to(each, Increment()))
    (first, _) = cluster.nodes
    here = [each for each in ids if cluster.home_of(Counter, each) == first]
    await cluster.stop_node(first)
    assert sorted(Counter.stopped) == sorted(here)
    assert [await counters.ask(Get(each)) for each in here] == [0] * len(here)


async def test_stats_name_every_node_and_count_its_entities(cluster: MemoryCluster) -> None:
    """F2, F9"""
    stats = await counters.ask(GetClusterShardingStats())
    assert stats == ClusterShardingStats({"node1": {}, "node2": {}}, frozenset())
    for number in (1, 2, 4, 6):
        await counters.ask(to(str(number), Increment()))
    stats = await counters.ask(GetClusterShardingStats())
    assert sum(sum(shards.values()) for shards in stats.regions.values()) == 4
    assert not stats.failed
    assert await counters.ask(GetCurrentRegions()) == {"node1", "node2"}
    third = await cluster.add_node("node3")
    await until(lambda: third.registered)
    for number in range(1, 20):
        await counters.ask(to(str(number), Increment()))
    stats = await counters.ask(GetClusterShardingStats())
    assert {name: sum(shards.values()) for name, shards in stats.regions.items()} == {
        name: sum(cluster.home_of(Counter, number) == name for number in range(1, 20))
        for name in ("node1", "node2", "node3")
    }
    assert sum(stats.regions["node3"].values()) > 0
    await cluster.stop_node("node3")
    assert set((await counters.ask(GetClusterShardingStats())).regions) == {"node1", "node2"}


async def test_one_region_leaves_and_its_node_stays(cluster: MemoryCluster) -> None:
    """B2.3"""
    for number in range(20):
        await counters.ask(to(str(number), Increment()))
    node = cluster.nodes["node1"]
    leave(node, "protocol.Counter")
    await until(lambda: not node.hosts["protocol.Counter"].shards)
    for number in range(20):
        await counters.ask(Get(str(number)))
    assert not node.hosts["protocol.Counter"].shards
    assert not node.ended.done()


async def test_only_a_node_can_be_told_to_leave(cluster: MemoryCluster) -> None:
    with pytest.raises(Exception, match="is hosted in this process"):
        await counters.ask(GracefulShutdown())


async def test_a_type_that_no_node_hosts_is_known_within_a_second() -> None:
    """B2.13"""
    proxy = ClusterSharding.start_proxy("protocol.Elsewhere", extractor=HashCodeMessageExtractor(10))
    types = [registry.get("protocol.Elsewhere"), registry.get("protocol.Counter")]
    async with MemoryCluster(types, nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            with pytest.raises(
                Unavailable, match=r"no node hosts 'protocol\.Elsewhere': start .*INSTALLED_APPS"
            ):
                await proxy.ask(to("1", Increment()), timeout=20)
            assert await counters.ask(to("1", Increment())) is None


async def test_type_names() -> None:
    """B2.22"""
    assert {"protocol.Counter", "protocol.Remembered"} <= ClusterSharding.shard_type_names()
    assert ClusterSharding.shard_region("protocol.Counter") is counters


async def test_starting_twice_gives_the_same_region_or_an_error() -> None:
    """G3, J17"""
    again = ClusterSharding.start(
        "protocol.Counter", entity=Counter, extractor=HashCodeMessageExtractor(SHARDS)
    )
    assert again is counters
    with pytest.raises(DeclarationError, match="already started with another extractor"):
        ClusterSharding.start(
            "protocol.Counter",
            entity=Counter,
            extract_entity_id=lambda message: "1",
            settings=ShardingSettings(number_of_shards=SHARDS),
        )


async def test_extractors_of_functions_are_checked() -> None:
    def entity_of(message: object) -> str:
        return "7"

    def shard_of(entity_id: str) -> int:
        return int(entity_id)

    extractor = FunctionExtractor(8, entity_of, shard_of)
    assert extractor.entity_id(Increment()) == "7"
    assert extractor.checked_shard_id("7") == 7
    with pytest.raises(InvalidCall, match="must be an int from 0 to 7"):
        extractor.checked_shard_id("8")
    assert "entity_of" in extractor.name


async def test_wrong_declarations_say_what_to_do() -> None:
    with pytest.raises(DeclarationError, match="set the number of shards"):
        ClusterSharding.start("protocol.NoShards", entity=Counter)
    with pytest.raises(DeclarationError, match="a subclass of Entity"):
        ClusterSharding.start("protocol.NoEntity", entity=int, extractor=MessageExtractor(1))  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="at least 1"):
        HashCodeMessageExtractor(0)

    class Plain(Entity):
        async def receive(self, message: object) -> object:
            return None

    with pytest.raises(DeclarationError, match="not both"):
        ClusterSharding.start(
            "protocol.Both", entity=Plain, extractor=HashCodeMessageExtractor(1), extract_entity_id=str
        )
