"""Erasing an entity where it lives: its object goes first, nothing of it comes back, and what waits
meets an empty past.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sharding_app import EventSourced, ShardingSettings, applies, command, event, query
from sharding_app.entities.registry import registry
from sharding_app.ports.journal import Erasure, JournalUnavailable
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.hosting import erasure
from sharding_app.runtime.hosting.erasure import UnderWay
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio


@event
class Wrote:
    text: str


class Diary(EventSourced, name="erase.Diary"):
    settings = ShardingSettings(snapshot_every=2, number_of_shards=8, remember_entities=True)
    pages: list[str]

    def __init__(self) -> None:
        self.pages = []

    @command
    def write(self, text: str) -> int:
        self.persist(Wrote(text))
        return len(self.pages)

    @command
    async def ponder(self, gate: str) -> None:
        await GATES[gate].wait()

    @command
    def close(self) -> None:
        self.context.stop()

    @query
    def read(self) -> list[str]:
        return self.pages

    @applies(Wrote)
    def on_wrote(self, happened: Wrote) -> None:
        self.pages.append(happened.text)


GATES: dict[str, asyncio.Event] = {}
SHARD = shard_of("anne", 8)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([registry.get("erase.Diary")], nodes=1) as made:
        with made.in_use():
            for text in ("one", "two", "three"):
                await Diary.ref("anne").write(text)
            await Diary.ref("other").write("mine")
            yield made


def host(cluster: MemoryCluster) -> TypeHost:
    (node,) = cluster.nodes.values()
    return node.hosts["erase.Diary"]


async def erase(found: TypeHost, number: int, entity: str) -> object:
    return await found.erasing.erase(number, entity, "an operator")


async def until(condition: Any) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


async def test_all_of_it_goes_and_it_begins_anew(cluster: MemoryCluster) -> None:
    await until(lambda: cluster.snapshots(Diary, "anne"))
    assert await erase(host(cluster), SHARD, "anne") == Erasure(events=3, snapshots=1, remembered=1)
    assert not cluster.is_in_memory(Diary, "anne")
    assert cluster.events(Diary, "anne") == []
    assert cluster.snapshots(Diary, "anne") == []
    assert await Diary.ref("anne").read() == []
    assert await Diary.ref("anne").write("new") == 1
    assert cluster.events(Diary, "anne") == [Wrote("new")]
    assert await Diary.ref("other").read() == ["mine"]


async def test_one_that_is_not_in_memory_is_erased_without_being_loaded(cluster: MemoryCluster) -> None:
    found = host(cluster)
    found.shards[SHARD].drop(found.shards[SHARD].slots["anne"])
    erased = await erase(found, SHARD, "anne")
    assert isinstance(erased, Erasure)
    assert erased.events == 3
    assert not cluster.is_in_memory(Diary, "anne")


async def travel(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    await loop.travel(seconds)


async def test_one_that_waits_for_its_restart_is_not_started_any_more(cluster: MemoryCluster) -> None:
    found = host(cluster)
    await Diary.ref("anne").close()
    await until(lambda: not cluster.is_in_memory(Diary, "anne"))
    assert isinstance(await erase(found, SHARD, "anne"), Erasure)
    before = found.counters["restarted"]
    await travel(2 * NodeConfig().restart_backoff_seconds)
    assert not cluster.is_in_memory(Diary, "anne")
    assert found.counters["restarted"] == before


async def test_one_whose_turn_to_start_has_not_come_is_not_started_any_more() -> None:
    config = NodeConfig(recovery_rate=(1, 60.0))
    async with MemoryCluster([registry.get("erase.Diary")], nodes=1, config=config) as cluster:
        with cluster.in_use():
            names = [f"writer {number}" for number in range(5)]
            for name in names:
                await Diary.ref(name).write("one")
            (node,) = cluster.nodes
            await cluster.stop_node(node)
            await cluster.add_node("later")
            await until(lambda: any(cluster.is_in_memory(Diary, name) for name in names))
            await until(lambda: len(host(cluster).shards) == len({shard_of(name, 8) for name in names}))
            (name, *_) = [name for name in names if not cluster.is_in_memory(Diary, name)]
            assert isinstance(await erase(host(cluster), shard_of(name, 8), name), Erasure)
            for _ in names:
                await travel(61.0)
            assert [each for each in names if not cluster.is_in_memory(Diary, each)] == [name]


async def test_what_comes_meanwhile_meets_no_past(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = host(cluster)
    real, go = found.journal.erase, asyncio.Event()

    async def late(*given: Any, **more: Any) -> Erasure:
        await go.wait()
        return await real(*given, **more)

    monkeypatch.setattr(found.journal, "erase", late)
    erased = asyncio.ensure_future(erase(found, SHARD, "anne"))
    await until(lambda: found.shards[SHARD].slots["anne"].state.name == "LOADING")
    asked = [asyncio.ensure_future(Diary.ref("anne").write(text)) for text in ("a", "b")]
    slot = found.shards[SHARD].slots["anne"]
    await until(lambda: len(slot.mailbox or ()) == 2)
    monkeypatch.setattr(erasure, "PATIENCE_SECONDS", 0.0)
    assert await erase(found, SHARD, "anne") == UnderWay(begun=True, events=0), "two operators"
    go.set()
    assert isinstance(await erased, Erasure)
    assert await asyncio.gather(*asked) == [1, 2]
    assert cluster.events(Diary, "anne") == [Wrote("a"), Wrote("b")]


async def test_a_busy_one_is_erased_after_its_present_command(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that keep coming do not put it off."""
    GATES["g"] = asyncio.Event()
    pondering = asyncio.ensure_future(Diary.ref("anne").ponder("g"))
    slot = host(cluster).shards[SHARD].slots["anne"]
    await until(lambda: slot.state.name == "BUSY")
    behind = asyncio.ensure_future(Diary.ref("anne").write("new"))
    await until(lambda: slot.mailbox)
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "PATIENCE_SECONDS", 0.0)
        assert await erase(host(cluster), SHARD, "anne") == UnderWay(begun=False, events=0)
    erased = asyncio.ensure_future(erase(host(cluster), SHARD, "anne"))
    GATES["g"].set()
    await pondering
    assert await erased == Erasure(events=3, snapshots=1, remembered=1)
    assert await behind == 1
    assert cluster.events(Diary, "anne") == [Wrote("new")]


async def test_a_busy_one_that_nothing_waits_for_is_erased_too(cluster: MemoryCluster) -> None:
    GATES["g"] = asyncio.Event()
    pondering = asyncio.ensure_future(Diary.ref("anne").ponder("g"))
    slot = host(cluster).shards[SHARD].slots["anne"]
    await until(lambda: slot.state.name == "BUSY")
    erased = asyncio.ensure_future(erase(host(cluster), SHARD, "anne"))
    await until(lambda: slot.passivating)
    GATES["g"].set()
    await pondering
    assert isinstance(await erased, Erasure)
    assert not cluster.is_in_memory(Diary, "anne")
    assert cluster.events(Diary, "anne") == []


async def test_the_hottest_and_the_troubles_name_it_no_more(cluster: MemoryCluster) -> None:
    meter = host(cluster).meter
    writers = cluster.nodes[cluster.home_of(Diary, "anne")].writer.figures.writers
    meter.hottest.add(("anne", SHARD), 10)
    meter.hottest.add(("other", SHARD), 10)
    meter.slowest.add(3.0, "anne", "write", 0.0)
    writers.add(("anne", 1, SHARD), 10)
    writers.add(("other", 1, SHARD), 10)
    meter.trouble("anne", "write", "failed")
    await erase(host(cluster), SHARD, "anne")
    assert "anne" not in {entity for (entity, _), _ in meter.hottest.top(9)}
    assert "anne" not in {each.entity for each in meter.slowest.top(9, 0.0)}
    assert {entity for (entity, *_), _ in writers.top(9)} == {"other"}
    assert [each.entity for each in meter.troubles] == []
    assert "other" in {entity for (entity, _), _ in meter.hottest.top(9)}


async def test_a_home_that_has_lost_its_shard_erases_nothing(cluster: MemoryCluster) -> None:
    found = host(cluster)
    found.shards[SHARD].epoch -= 1
    assert await erase(found, SHARD, "anne") == "away"
    assert SHARD not in found.shards
    assert len(cluster.events(Diary, "anne")) == 3
    assert await erase(found, SHARD, "anne") == "away"


async def test_while_the_journal_does_not_answer_it_neither_runs_nor_is_told_erased(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure whose answer was lost may have happened or not: it is asked for again, and only
    then goes on.
    """
    found = host(cluster)
    real, asked = found.journal.erase, []

    async def lost_twice(*given: Any, **more: Any) -> Erasure:
        asked.append(given)
        if len(asked) < 3:
            if len(asked) == 2:
                await real(*given, **more)
            raise JournalUnavailable("gone")
        return await real(*given, **more)

    monkeypatch.setattr(found.journal, "erase", lost_twice)
    monkeypatch.setattr(erasure, "RETRY_SECONDS", 0.0)
    erased = asyncio.ensure_future(erase(found, SHARD, "anne"))
    await until(lambda: asked)
    behind = asyncio.ensure_future(Diary.ref("anne").write("new"))
    assert isinstance(await erased, Erasure)
    assert len(asked) == 3
    assert await behind == 1
    assert cluster.events(Diary, "anne") == [Wrote("new")]
