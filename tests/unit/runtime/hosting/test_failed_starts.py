"""Entities whose constructor or recovery fails, and stop handlers that raise."""

import asyncio
import logging
from typing import Any, ClassVar

import pytest

from sharding_app import (
    ClusterSharding,
    ClusterSingleton,
    Entity,
    EventSourced,
    HashCodeMessageExtractor,
    ShardingSettings,
    Supervision,
    UnreadableEvent,
    applies,
    command,
    event,
    message,
    query,
)
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.regions import Region
from sharding_app.errors import Unavailable
from sharding_app.protocol.messages import GetShardRegionState
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.hosting.failed_starts import MAX_KEPT, FailedStarts
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.node.stats import read_stats
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.counters import Increment, Stop, to

pytestmark = pytest.mark.asyncio

QUICK = ShardingSettings(supervision=Supervision(backoff_seconds=0.01, max_backoff_seconds=0.05))


class Unwilling:
    """Its constructor raises as long as `fails` is set."""

    fails: ClassVar[bool] = False
    tries: ClassVar[int] = 0

    def __init__(self) -> None:
        Unwilling.tries += 1
        if Unwilling.fails:
            raise LookupError("not for a moment")


class Clockwork(Unwilling, Entity):
    async def receive(self, message: object) -> object:
        return "here"


class Lasting(Unwilling, Entity, name="starts.Lasting"):
    settings = QUICK.over(ShardingSettings(remember_entities=True, number_of_shards=1))

    @command
    def fail(self) -> None:
        raise LookupError("and its object has to be made anew")


@event
class Put:
    number: int


class Unreadable(Unwilling, EventSourced, name="starts.Unreadable"):
    settings = ShardingSettings(
        number_of_shards=1,
        passivate_after_seconds=0,
        supervision=Supervision(backoff_seconds=3600, max_backoff_seconds=3600),
    )
    total: int = 0

    @command
    def put(self, number: int) -> None:
        self.persist(Put(number))

    @query
    def sum(self) -> int:
        return self.total

    @applies(Put)
    def on_put(self, happened: Put) -> None:
        self.total += happened.number


clockwork = ClusterSingleton.start("starts.clockwork", entity=Clockwork, settings=QUICK)


@pytest.fixture(autouse=True)
def willing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unwilling, "fails", False)
    monkeypatch.setattr(Unwilling, "tries", 0)


def host_of(cluster: MemoryCluster, name: str) -> TypeHost:
    (node,) = cluster.nodes.values()
    return node.hosts[name]


async def test_a_singleton_whose_start_fails_is_tried_again_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Unwilling, "fails", True)
    name = "singleton:starts.clockwork"
    async with MemoryCluster([registry.get(name)], config=CONFIG) as cluster:
        with cluster.in_use():
            starts = host_of(cluster, name).entity_life.failed_starts
            await until(lambda: any(each.attempts >= 3 for each in starts.report()[1]))
            (node,) = cluster.nodes.values()
            (of_type,) = read_stats(node, 1).types
            (failed,) = of_type.failed_starts
            assert (of_type.cannot_start, failed.error, failed.entity) == (
                1,
                "LookupError",
                "starts.clockwork",
            )
            assert failed.retry_seconds >= 0
            (region,) = node.hosting.state(GetShardRegionState(1), {}).regions
            assert (region.cannot_start, region.failed_starts[0].error) == (1, "LookupError")
            monkeypatch.setattr(Unwilling, "fails", False)
            await until(lambda: not starts and host_of(cluster, name).entities == 1)
            assert read_stats(node, 1).types[0].cannot_start == 0


async def test_a_remembered_entity_whose_rebuild_fails_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryCluster([Lasting], config=CONFIG) as cluster:
        with cluster.in_use():
            await Lasting.ref("1").exists()
            await until(lambda: cluster.is_in_memory(Lasting, "1"))
            monkeypatch.setattr(Unwilling, "fails", True)
            Lasting.ref("1").fail.tell()
            await until(lambda: Unwilling.tries >= 4)
            monkeypatch.setattr(Unwilling, "fails", False)
            starts = host_of(cluster, "starts.Lasting").entity_life.failed_starts
            await until(lambda: not starts and cluster.is_in_memory(Lasting, "1"))


async def test_what_callers_ask_of_one_that_cannot_be_recovered_is_not_read_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryCluster([Unreadable]) as cluster:
        with cluster.in_use():
            ref = Unreadable.ref("1")
            await ref.put(3)
            cluster.forget(Unreadable)
            monkeypatch.setattr(Unwilling, "fails", True)
            monkeypatch.setattr(Unwilling, "tries", 0)
            for _ in range(10):
                with pytest.raises(UnreadableEvent, match="cannot be recovered: LookupError"):
                    await ref.sum()
            assert Unwilling.tries == 2, "the second failure in a row is followed by a pause"
            host = host_of(cluster, "starts.Unreadable")
            assert host.counters["recovery_refused"] == 8
            assert read_stats(next(iter(cluster.nodes.values())), 1).types[0].cannot_start == 1
            (region,) = next(iter(cluster.nodes.values())).hosting.state(GetShardRegionState(1), {}).regions
            assert region.cannot_start == 0, "nothing but messages starts it: it makes no cluster unhealthy"


async def test_what_is_known_of_failed_ones_is_bounded_and_one_success_forgets_it() -> None:
    starts = FailedStarts(Supervision(), lambda: 5.0, lambda shard, entity: None, runs_again=False)
    shard = Shard("t", 1, 1, Resident)
    for number in range(2 * MAX_KEPT):
        starts.failed(Resident(str(number), shard), LookupError(), Unavailable("x"))
    assert starts.report()[0] == MAX_KEPT
    slot = Resident(str(2 * MAX_KEPT - 1), shard)
    assert starts.refusal(slot) is None, "the first failure is tried again at the next message"
    starts.failed(slot, LookupError(), Unavailable("x"))
    assert starts.refusal(slot) is not None
    starts.forget(slot.id)
    assert starts.refusal(slot) is None


async def test_those_of_one_shard_are_named_until_they_start() -> None:
    starts = FailedStarts(Supervision(), lambda: 5.0, lambda shard, entity: None, runs_again=True)
    shard, other = Shard("t", 1, 1, Resident), Shard("t", 2, 1, Resident)
    for number, where in enumerate((shard, shard, other)):
        starts.failed(Resident(str(number), where), LookupError(), Unavailable("x"))
    assert starts.of(shard) == ["0", "1"]
    starts.forget("0")
    assert starts.of(shard) == ["1"]
    for each in (shard, other):
        starts.left(each)
        assert starts.of(each) == []
    assert not starts._of, "a shard that has left is not kept"


class NotWalked(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError("a node that gives up a thousand shards would stand still")


async def test_a_shard_that_leaves_costs_no_look_at_the_entities_of_others() -> None:
    starts = FailedStarts(Supervision(), lambda: 5.0, lambda shard, entity: None, runs_again=True)
    shard, other = Shard("t", 1, 1, Resident), Shard("t", 2, 1, Resident)
    starts._failed = NotWalked()
    for number, where in enumerate((shard, other, other)):
        starts.failed(Resident(str(number), where), LookupError(), Unavailable("x"))
    assert starts.of(shard) == ["0"]
    starts.left(shard)
    assert starts.of(other) == ["1", "2"]
    assert len(starts._failed) == 2
    starts.left(other)


class BadAtStopping(Entity):
    stopped: ClassVar[list[str]] = []

    async def receive(self, message: object) -> object:
        if isinstance(message, Stop):
            await asyncio.sleep(0)
            raise LookupError("cannot even stop")
        return "here"


bad_at_stopping: Region = ClusterSharding.start(
    "starts.BadAtStopping", entity=BadAtStopping, extractor=HashCodeMessageExtractor(2), stop_message=Stop()
)


@message
class Unused: ...


async def test_one_whose_stop_handler_raises_has_stopped(caplog: pytest.LogCaptureFixture) -> None:
    slow_stop = CONFIG.__class__(stop_timeout_seconds=3600.0, passivate_after_seconds=0)
    async with MemoryCluster([registry.get("starts.BadAtStopping")], nodes=2, config=slow_stop) as cluster:
        with cluster.in_use(), caplog.at_level(logging.ERROR):
            for number in range(6):
                assert await bad_at_stopping.ask(to(str(number), Increment())) == "here"
            async with asyncio.timeout(20 * SLACK):
                await cluster.stop_node("node1")
            assert await bad_at_stopping.ask(to("1", Increment())) == "here"
            (node,) = cluster.nodes.values()
            host = node.hosts["starts.BadAtStopping"]
            before = host.entities
            shard = next(each for each in host.shards.values() if each.slots)
            slot = next(iter(shard.slots.values()))
            host.entity_life.passivate(slot)
            await until(lambda: host.entities == before - 1)
            assert host.counters["stopped_by_force"] == 0
            assert host.execution.counters["stop_handler_failed"] == 1
    assert "the stop handler of an entity of starts.BadAtStopping raised LookupError" in caplog.text
    assert "ignored its stop message" not in caplog.text


def cannot_be_written() -> None:
    raise LookupError("no such row")


class BadRowAtStopping(EventSourced):
    async def receive(self, message: object) -> object:
        if isinstance(message, Stop):
            self.persist(in_transaction=cannot_be_written)
        return "here"


bad_row_at_stopping: Region = ClusterSharding.start(
    "starts.BadRowAtStopping",
    entity=BadRowAtStopping,
    extractor=HashCodeMessageExtractor(2),
    stop_message=Stop(),
)


async def test_one_whose_rows_at_stopping_cannot_be_written_has_stopped() -> None:
    config = CONFIG.__class__(stop_timeout_seconds=3600.0, passivate_after_seconds=0)
    async with MemoryCluster([registry.get("starts.BadRowAtStopping")], nodes=1, config=config) as cluster:
        with cluster.in_use():
            assert await bad_row_at_stopping.ask(to("a", Increment())) == "here"
            host = cluster.nodes["node1"].hosts["starts.BadRowAtStopping"]
            (slot,) = (slot for shard in host.shards.values() for slot in shard.slots.values())
            host.entity_life.passivate(slot)
            await until(lambda: slot.is_gone)
            assert host.execution.counters["stop_handler_failed"] == 1
