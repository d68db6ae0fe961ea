"""Entities that leave the memory of a node: those that are idle for long, and those that are too
many.
"""

import asyncio
from typing import ClassVar

import pytest

from sharding_app import (
    ClusterSharding,
    Entity,
    EventSourced,
    HashCodeMessageExtractor,
    SetActiveEntityLimit,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.regions import Region
from sharding_app.errors import DeclarationError
from sharding_app.protocol.messages import Deliver, GetShardRegionState
from sharding_app.protocol.passivation.strategy import NAMED, FrequencyFilter, Passivation
from sharding_app.protocol.shard import Shard, Slot, SlotState
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.hosting.entities import MAX_AT_A_TIME
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until
from tests.unit.runtime.counters import Get, Increment, Stop, to

pytestmark = pytest.mark.asyncio


@event
class Counted:
    by: int


class Meter(EventSourced, name="limits.Meter"):
    settings = ShardingSettings(number_of_shards=1, active_entity_limit=10)
    goes_on: ClassVar[asyncio.Event]
    count: int = 0

    @command
    def add(self, by: int) -> int:
        self.persist(Counted(by))
        return self.count

    @command
    async def wait(self) -> int:
        await Meter.goes_on.wait()
        self.persist(Counted(1))
        return self.count

    @command
    def add_later(self, seconds: float) -> None:
        self.context.start_timer("later", seconds, Meter.add, 1)

    @query
    def sum(self) -> int:
        return self.count

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.count += happened.by


class Remembered(Entity, name="limits.Remembered"):
    settings = ShardingSettings(number_of_shards=1, active_entity_limit=3, remember_entities=True)


class Polite(Entity):
    stopped: ClassVar[list[str]] = []

    async def receive(self, message: object) -> object:
        if isinstance(message, Stop):
            Polite.stopped.append(self.entity_id)
            self.context.stop()
        return 1 if isinstance(message, Get) else None


class Slow(Entity):
    """Its own timer fires while it handles its stop message."""

    stopping: ClassVar[asyncio.Event]
    goes_on: ClassVar[asyncio.Event]

    async def receive(self, message: object) -> object:
        if isinstance(message, Stop):
            Slow.stopping.set()
            await Slow.goes_on.wait()
            self.context.stop()
        elif isinstance(message, Increment):
            self.context.start_timer("again", 1.0, Get(self.entity_id))
        return None


slow: Region = ClusterSharding.start(
    "limits.Slow",
    entity=Slow,
    extractor=HashCodeMessageExtractor(1),
    settings=ShardingSettings(active_entity_limit=1, passivate_after_seconds=0),
    stop_message=Stop(),
)
polite: Region = ClusterSharding.start(
    "limits.Polite",
    entity=Polite,
    extractor=HashCodeMessageExtractor(1),
    settings=ShardingSettings(active_entity_limit=4),
    stop_message=Stop(),
)


def host_of(cluster: MemoryCluster) -> TypeHost:
    (node,) = cluster.nodes.values()
    (host,) = node.hosts.values()
    return host


def in_memory(cluster: MemoryCluster) -> set[str]:
    return {each for shard in host_of(cluster).shards.values() for each in shard.slots}


@pytest.mark.parametrize("name", NAMED)
async def test_no_more_than_the_limit_and_nothing_is_lost(name: str) -> None:
    class Named(Meter, name=f"limits.{name.title().replace('-', '')}"):
        settings = ShardingSettings(number_of_shards=1, active_entity_limit=10, passivation=name)

    async with MemoryCluster([Named]) as cluster:
        with cluster.in_use():
            for _ in range(3):
                await asyncio.gather(*(Named.ref(number).add(1) for number in range(40)))
                await until(lambda: len(in_memory(cluster)) <= 10)
            assert host_of(cluster).counters["evicted"] >= 30
            (node,) = cluster.nodes.values()
            (region,) = node.hosting.state(GetShardRegionState(1), {}).regions
            assert (region.limit, region.is_full) == (10, sum(region.entities) >= 9)
            assert [await Named.ref(number).sum() for number in range(40)] == [3] * 40


async def test_the_limit_is_shared_out_among_the_shards_that_are_here() -> None:
    class Spread(Meter, name="limits.Spread"):
        settings = ShardingSettings(number_of_shards=20, active_entity_limit=60)

    async with MemoryCluster([Spread], nodes=2) as cluster:
        with cluster.in_use():
            for number in range(400):
                await Spread.ref(number).sum()
            hosts = [node.hosts["limits.Spread"] for node in cluster.nodes.values()]
            for host in [each for each in hosts if each.shards]:
                most = 60 // len(host.shards)
                assert all(len(shard.slots) <= most for shard in host.shards.values())


async def test_a_limit_below_the_number_of_shards_leaves_one_to_each() -> None:
    class Few(Meter, name="limits.Few"):
        settings = ShardingSettings(number_of_shards=5, active_entity_limit=2)

    async with MemoryCluster([Few]) as cluster:
        with cluster.in_use():
            for number in range(100):
                await Few.ref(number).sum()
            assert [len(shard.slots) for shard in host_of(cluster).shards.values()] == [1] * 5


async def test_busy_ones_that_are_used_again_and_again_wait_once_each() -> None:
    """Each message drives out another one that is at work: what is to leave must not grow with the
    messages.
    """
    Meter.goes_on = asyncio.Event()
    async with MemoryCluster([Meter]) as cluster:
        with cluster.in_use():
            Meter.ref("0").wait.tell()
            await until(lambda: bool(host_of(cluster).shards))
            (shard,) = host_of(cluster).shards.values()
            await until(lambda: shard.most == 10)
            host = host_of(cluster)
            for number in range(2000):
                work = Deliver(
                    shard.type, shard.number, shard.epoch, str(number % 20), number + 1, "wait", b"\x90"
                )
                host.receive("p-somebody", [work])
            assert len(host.entity_life._leaving) <= 20
            assert len(in_memory(cluster)) == 20
            Meter.goes_on.set()
            await until(lambda: len(in_memory(cluster)) <= 10)


async def test_a_busy_one_ends_what_it_does_and_leaves_then() -> None:
    Meter.goes_on = asyncio.Event()
    async with MemoryCluster([Meter]) as cluster:
        with cluster.in_use():
            waiting = asyncio.ensure_future(Meter.ref("busy", timeout=30).wait())
            await until(lambda: cluster.is_in_memory(Meter, "busy"))
            for number in range(20):
                await Meter.ref(number).add(1)
            assert cluster.is_in_memory(Meter, "busy")
            Meter.goes_on.set()
            assert await waiting == 1
            await until(lambda: not cluster.is_in_memory(Meter, "busy"))
            assert await Meter.ref("busy").sum() == 1


async def test_one_that_its_own_timer_brings_back_goes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was evicted, and nothing but itself has called it since: it has no place."""
    Slow.stopping, Slow.goes_on = asyncio.Event(), asyncio.Event()
    async with MemoryCluster([registry.get("limits.Slow")]) as cluster:
        with cluster.in_use():
            await slow.ask(to("first", Increment()))
            await slow.ask(to("second", Get("second")))
            await Slow.stopping.wait()
            (shard,) = host_of(cluster).shards.values()
            first = shard.slots["first"]
            loop = asyncio.get_running_loop()
            assert isinstance(loop, TravelLoop)
            await loop.travel(2.0)
            assert first.mailbox, "its timer has fired"
            Slow.goes_on.set()
            await until(lambda: in_memory(cluster) == {"second"})


@pytest.mark.parametrize("only", ["a filter", "a limit"])
async def test_a_flood_of_new_ids_does_not_outrun_those_that_leave(
    only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is at work when it has to leave. The node looks at them at each tick, and many
    more may come between two ticks.
    """

    class Flooded(Meter, name=f"limits.Flooded by {only}"):
        settings = ShardingSettings(
            number_of_shards=1,
            active_entity_limit=2,
            passivation=Passivation(filter=FrequencyFilter()) if only == "a filter" else Passivation(),
        )

    async with MemoryCluster([Flooded]) as cluster:
        with cluster.in_use():
            await Flooded.ref("0").sum()
            life = host_of(cluster).entity_life
            monkeypatch.setattr(life, "tick", lambda now: None)
            most = 0
            for batch in range(100):
                await asyncio.gather(*(Flooded.ref(f"{batch}/{number}").sum() for number in range(20)))
                most = max(most, len(in_memory(cluster)))
            assert most <= 2 * 20 + 2


async def test_one_that_is_used_again_before_it_could_leave_stays() -> None:
    Meter.goes_on = asyncio.Event()
    async with MemoryCluster([Meter]) as cluster:
        with cluster.in_use():
            waiting = asyncio.ensure_future(Meter.ref("busy", timeout=30).wait())
            await until(lambda: cluster.is_in_memory(Meter, "busy"))
            for number in range(12):
                await Meter.ref(number).add(1)
            second = asyncio.ensure_future(Meter.ref("busy", timeout=30).add(1))
            await asyncio.sleep(0)
            Meter.goes_on.set()
            assert [await waiting, await second] == [1, 2]
            host = host_of(cluster)
            host.entity_life.tick(host.now())
            assert cluster.is_in_memory(Meter, "busy")
            assert len(in_memory(cluster)) <= 10


async def test_timers_neither_keep_an_entity_nor_survive_it() -> None:
    async with MemoryCluster([Meter]) as cluster:
        with cluster.in_use():
            await Meter.ref("timer").add_later(30.0)
            for number in range(10):
                await Meter.ref(number).add(1)
            assert not cluster.is_in_memory(Meter, "timer")
            loop = asyncio.get_running_loop()
            assert isinstance(loop, TravelLoop)
            await loop.travel(31.0)
            assert await Meter.ref("timer").sum() == 0


async def test_remembered_ones_are_never_too_many() -> None:
    async with MemoryCluster([Remembered]) as cluster:
        with cluster.in_use():
            for number in range(10):
                await Remembered.ref(number).exists()
            assert len(in_memory(cluster)) == 10
            assert host_of(cluster).counters["evicted"] == 0
            (node,) = cluster.nodes.values()
            assert not any(each.is_full for each in node.hosting.state(GetShardRegionState(1), {}).regions)


async def test_who_has_to_go_gets_the_stop_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Polite, "stopped", [])
    async with MemoryCluster([registry.get("limits.Polite")]) as cluster:
        with cluster.in_use():
            for number in range(8):
                await polite.ask(to(str(number), Get(str(number))))
            await until(lambda: Polite.stopped == ["0", "1", "2", "3"])
            assert in_memory(cluster) == {"4", "5", "6", "7"}


async def test_the_limit_of_a_region_can_be_set_while_it_runs() -> None:
    """D9"""
    region = ClusterSharding.shard_region("limits.Polite")
    async with MemoryCluster([registry.get("limits.Polite")]) as cluster:
        with cluster.in_use():
            life = host_of(cluster).entity_life
            for number in range(4):
                await region.ask(to(str(number), Get(str(number))))
            life.set_limit(2)
            await until(lambda: in_memory(cluster) == {"2", "3"})
            life.set_limit(0)
            for number in range(10):
                await region.ask(to(str(number), Increment()))
            assert len(in_memory(cluster)) == 10
    assert SetActiveEntityLimit(3).limit == 3


@pytest.mark.parametrize("name", NAMED)
async def test_a_new_limit_lets_go_of_entities_that_nothing_calls_any_more(name: str) -> None:
    class Again(Meter, name=f"limits.Again{name.title().replace('-', '')}"):
        settings = ShardingSettings(
            number_of_shards=1, active_entity_limit=0, passivation=name, passivate_after_seconds=0
        )

    async with MemoryCluster([Again]) as cluster:
        with cluster.in_use():
            for number in range(20):
                await Again.ref(number).add(1)
            assert len(in_memory(cluster)) == 20
            host_of(cluster).entity_life.set_limit(4)
            await until(lambda: len(in_memory(cluster)) <= 4)
            assert [await Again.ref(number).sum() for number in range(20)] == [1] * 20
            await until(lambda: len(in_memory(cluster)) <= 4)


async def test_wrong_settings_are_told_when_the_class_is_made() -> None:
    for wrong in ({"active_entity_limit": -1}, {"passivation": "random"}, {"passivation": 3}):
        with pytest.raises(DeclarationError):
            ShardingSettings(**wrong)


async def test_a_sweep_ends_what_is_due_some_at_a_time() -> None:
    class Idle(Meter, name="limits.Idle"):
        settings = ShardingSettings(
            number_of_shards=3, active_entity_limit=100_000, passivate_after_seconds=50.0
        )

    many = MAX_AT_A_TIME + 500
    async with MemoryCluster([Idle], config=NodeConfig(max_concurrent_recoveries=5000)) as cluster:
        with cluster.in_use():
            await asyncio.gather(*(Idle.ref(number).sum() for number in range(many)))
            host = host_of(cluster)
            life, later = host.entity_life, host.now() + 60.0
            await until(
                lambda: all(s.state is SlotState.IDLE for h in host.shards.values() for s in h.slots.values())
            )
            life._sweep.clear()
            life._swept_at = later - 30.0
            life.tick(later)
            assert many - MAX_AT_A_TIME <= host.entities < many
            life.tick(later)
            assert host.entities == 0
            assert host.counters["passivated"] == many


@pytest.mark.parametrize("name", NAMED)
async def test_those_that_are_idle_go_whatever_the_strategy(name: str) -> None:
    """D8"""

    class Both(Meter, name=f"limits.Both{name.title().replace('-', '')}"):
        settings = ShardingSettings(
            number_of_shards=1, active_entity_limit=3, passivation=name, passivate_after_seconds=50.0
        )

    async with MemoryCluster([Both]) as cluster:
        with cluster.in_use():
            assert [await Both.ref(number).add(1) for number in range(2)] == [1, 1]
            host = host_of(cluster)
            host.entity_life.tick(host.now() + 40.0)
            assert in_memory(cluster) == {"0", "1"}
            host.entity_life.tick(host.now() + 100.0)
            assert not in_memory(cluster)
            assert [await Both.ref(number).add(1) for number in range(2)] == [2, 2], "and come back"


async def test_what_is_not_due_is_not_looked_at() -> None:
    shard = Shard("t", 1, 1, Slot)
    for number in range(100):
        _, slot = shard.deliver("a", Deliver("t", 1, 1, str(number), number, "x", b""), float(number))
        assert slot is not None
        slot.mailbox = None
        shard.loaded(slot)
        shard.finished(slot)
    shard.deliver("a", Deliver("t", 1, 1, "3", 100, "x", b""), 100.0)
    shard.deliver("", Deliver("t", 1, 1, "4", 101, "x", b""), 101.0)
    assert [each.id for each in shard.due(6.0, 50)] == ["0", "1", "2", "5"], "3 was used; 4 is busy by itself"
    assert [each.id for each in shard.due(50.0, 2)] == ["0", "1"]
