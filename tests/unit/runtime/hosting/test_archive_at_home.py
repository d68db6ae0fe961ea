"""Removing an archived entity where it lives: it goes only while it is idle and as its archive has
it; otherwise it stays, and goes on as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sharding_app import EventSourced, ShardingSettings, applies, command, event, query
from sharding_app.entities.registry import registry
from sharding_app.ports.journal import Archival, JournalUnavailable
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.hosting import erasure
from sharding_app.runtime.hosting.erasure import UnderWay
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio


@event
class Noted:
    text: str


class Notebook(EventSourced, name="archive.Notebook"):
    settings = ShardingSettings(snapshot_every=2, number_of_shards=8, remember_entities=True)
    notes: list[str]

    def __init__(self) -> None:
        self.notes = []

    @command
    def note(self, text: str) -> int:
        self.persist(Noted(text))
        return len(self.notes)

    @command
    async def ponder(self, gate: str) -> None:
        await GATES[gate].wait()

    @query
    def read(self) -> list[str]:
        return self.notes

    @applies(Noted)
    def on_noted(self, happened: Noted) -> None:
        self.notes.append(happened.text)


GATES: dict[str, asyncio.Event] = {}
SHARD = shard_of("anne", 8)
BUSY = Archival(left="busy")
ALL = Archival(events=3, snapshots=1, remembered=1)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([registry.get("archive.Notebook")], nodes=1) as made:
        with made.in_use():
            for text in ("one", "two", "three"):
                await Notebook.ref("anne").note(text)
            await until(lambda: made.snapshots(Notebook, "anne"))
            yield made


def host(cluster: MemoryCluster) -> TypeHost:
    (node,) = cluster.nodes.values()
    return node.hosts["archive.Notebook"]


def mark(cluster: MemoryCluster) -> str:
    number = cluster.server.cluster.type_ids["archive.Notebook"]
    return cluster.server.journal.mark(number, SHARD, "anne")


async def until(condition: Any) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_here", [True, False], ids=["in memory", "not in memory"])
async def test_all_of_it_goes_and_a_call_begins_anew(cluster: MemoryCluster, is_here: bool) -> None:
    found = host(cluster)
    if not is_here:
        found.shards[SHARD].drop(found.shards[SHARD].slots["anne"])
    assert await found.erasing.archive(SHARD, "anne", mark(cluster)) == ALL
    assert not cluster.is_in_memory(Notebook, "anne")
    assert cluster.events(Notebook, "anne") == []
    assert await found.erasing.archive(SHARD, "anne", "as it was") == Archival(left="gone")
    assert await Notebook.ref("anne").note("new") == 1


async def test_one_that_has_changed_is_loaded_again(cluster: MemoryCluster) -> None:
    former = mark(cluster)
    await Notebook.ref("anne").note("four")
    slot = host(cluster).shards[SHARD].slots["anne"]
    assert await host(cluster).erasing.archive(SHARD, "anne", former) == Archival(left="changed")
    await until(lambda: slot.state.name == "IDLE")
    assert await Notebook.ref("anne").read() == ["one", "two", "three", "four"]
    assert await Notebook.ref("anne").note("five") == 5


async def test_one_that_has_changed_and_is_not_in_memory_is_not_loaded(cluster: MemoryCluster) -> None:
    found = host(cluster)
    found.shards[SHARD].drop(found.shards[SHARD].slots["anne"])
    assert await found.erasing.archive(SHARD, "anne", "as it was") == Archival(left="changed")
    assert not cluster.is_in_memory(Notebook, "anne")
    assert len(cluster.events(Notebook, "anne")) == 3


async def test_one_at_work_stays_and_is_not_stopped(cluster: MemoryCluster) -> None:
    GATES["g"] = asyncio.Event()
    pondering = asyncio.ensure_future(Notebook.ref("anne").ponder("g"))
    slot = host(cluster).shards[SHARD].slots["anne"]
    await until(lambda: slot.state.name == "BUSY")
    entity = slot.entity
    assert await host(cluster).erasing.archive(SHARD, "anne", mark(cluster)) == BUSY
    GATES["g"].set()
    await pondering
    assert slot.entity is entity
    assert len(cluster.events(Notebook, "anne")) == 3


async def test_one_with_followers_stays(cluster: MemoryCluster) -> None:
    events = Notebook.ref("anne").events()
    assert (await anext(events)).number == 1
    assert await host(cluster).erasing.archive(SHARD, "anne", mark(cluster)) == BUSY
    assert len(cluster.events(Notebook, "anne")) == 3


async def test_while_it_is_removed_calls_wait_and_an_erasure_is_told_to_try_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, former = host(cluster), mark(cluster)
    real, go = found.journal.archive, asyncio.Event()

    async def late(*given: Any, **more: Any) -> Archival:
        await go.wait()
        return await real(*given, **more)

    monkeypatch.setattr(found.journal, "archive", late)
    removed = asyncio.ensure_future(found.erasing.archive(SHARD, "anne", former))
    await until(lambda: found.shards[SHARD].slots["anne"].state.name == "LOADING")
    behind = asyncio.ensure_future(Notebook.ref("anne").note("new"))
    await until(lambda: found.shards[SHARD].slots["anne"].mailbox)
    monkeypatch.setattr(erasure, "PATIENCE_SECONDS", 0.0)
    assert await found.erasing.erase(SHARD, "anne", "an operator") == UnderWay(begun=False, events=0)
    assert await found.erasing.archive(SHARD, "anne", "another") == BUSY
    assert await found.erasing.archive(SHARD, "anne", former) == UnderWay(begun=True, events=0)
    monkeypatch.undo()
    erased = asyncio.ensure_future(found.erasing.erase(SHARD, "anne", "an operator"))
    await asyncio.sleep(0.01)
    assert not erased.done(), "else the operator would ask again and again, as fast as it can"
    go.set()
    assert await erased == UnderWay(begun=False, events=0)
    assert await removed == ALL
    assert await behind == 1


async def test_an_answer_that_was_lost_is_asked_for_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, former = host(cluster), mark(cluster)
    real, asked = found.journal.archive, []

    async def lost(*given: Any, **more: Any) -> Archival:
        asked.append(given)
        answer = await real(*given, **more)
        if len(asked) == 1:
            raise JournalUnavailable("gone")
        return answer

    monkeypatch.setattr(found.journal, "archive", lost)
    monkeypatch.setattr(erasure, "RETRY_SECONDS", 0.0)
    assert await found.erasing.archive(SHARD, "anne", former) == Archival(left="gone")
    assert not cluster.is_in_memory(Notebook, "anne")


async def test_a_home_that_has_lost_its_shard_removes_nothing(cluster: MemoryCluster) -> None:
    found, former = host(cluster), mark(cluster)
    found.shards[SHARD].epoch -= 1
    assert await found.erasing.archive(SHARD, "anne", former) == "away"
    assert await found.erasing.archive(SHARD, "anne", former) == "away", "the shard is not here"
    assert len(cluster.events(Notebook, "anne")) == 3
