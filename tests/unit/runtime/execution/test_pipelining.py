"""A pipelined type runs on while commits are under way; callers hear of committed effects alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from sharding_app import (
    EntityFailed,
    EventSourced,
    NotSerializable,
    Rejected,
    ShardingSettings,
    Supervision,
    Unavailable,
    applies,
    command,
    event,
    query,
)
from sharding_app.adapters.memory import MemoryJournal
from sharding_app.ports.journal import Erasure, Outcome
from sharding_app.protocol.shard import SlotState
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.execution.known_ids import KnownIds
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Added, HotCart
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


@event
class Moved:
    by: int


def seen_by(cluster: MemoryCluster, entity_id: str) -> object:
    """The object itself."""
    for node in cluster.nodes.values():
        for shard in node.hosts["entities.HotCart"].shards.values():
            if entity_id in shard.slots:
                return shard.slots[entity_id].entity
    return None


async def test_the_next_command_runs_on_the_applied_state(cluster: MemoryCluster) -> None:
    cart = HotCart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        adds = [asyncio.ensure_future(cart.add("book")) for _ in range(5)]
        await until(lambda: seen_by(cluster, "a").items == {"book": 5})  # type: ignore[attr-defined]
        assert not any(add.done() for add in adds), "an answer went out before its commit"
    assert await asyncio.gather(*adds) == [1, 2, 3, 4, 5]
    assert len(cluster.events(HotCart, "a")) == 5


async def test_a_query_waits_for_what_it_has_seen(cluster: MemoryCluster) -> None:
    cart = HotCart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        add = asyncio.ensure_future(cart.add("book", 3))
        total = asyncio.ensure_future(cart.total())
        exists = asyncio.ensure_future(cart.exists())
        await travel(0.2)
        assert not total.done()
        assert not exists.done()
    assert (await add, await total, await exists) == (3, 3, True)


async def test_a_rejection_waits_for_what_it_has_seen(cluster: MemoryCluster) -> None:
    cart = HotCart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        add = asyncio.ensure_future(cart.add("book"))
        refused = asyncio.ensure_future(cart.add("book", 0))
        await travel(0.2)
        assert not refused.done()
    assert await add == 1
    with pytest.raises(Rejected):
        await refused


async def test_a_failed_commit_fails_all_behind_it_and_the_object_is_recovered(
    cluster: MemoryCluster,
) -> None:
    cart = HotCart.ref("a")
    assert await cart.add("book") == 1
    with cluster.writes_wait():
        cluster.fail_next_write(HotCart, "a", reason="no room")
        behind = [asyncio.ensure_future(cart.add("pen")) for _ in range(3)]
        total = asyncio.ensure_future(cart.total())
        rejected = asyncio.ensure_future(cart.add("pen", 0))
        await until(lambda: seen_by(cluster, "a").items == {"book": 1, "pen": 3})  # type: ignore[attr-defined]
    outcomes = await asyncio.gather(*behind, total, rejected, return_exceptions=True)
    assert "no room" in str(outcomes[0])
    assert all(isinstance(each, Unavailable) for each in outcomes[1:]), outcomes
    assert all("an earlier commit of this entity failed" in str(each) for each in outcomes[1:])
    assert await cart.content() == {"book": 1}
    assert await cart.add("pen") == 1
    assert cluster.events(HotCart, "a") == [Added("book", 1), Added("pen", 1)]


class Booth(HotCart, name="entities.Booth"):
    """Keeps its handlers until the test opens the booth, and notes each step."""

    notes: ClassVar[list[str]] = []
    opened: ClassVar[asyncio.Event]

    @command
    async def wait(self) -> None:
        Booth.notes.append("begins")
        await Booth.opened.wait()
        Booth.notes.append("ends")

    @query
    async def watch(self) -> None:
        Booth.notes.append("begins")
        await Booth.opened.wait()
        Booth.notes.append("ends")

    @command
    async def add_and_go_on(self) -> None:
        Booth.notes.append("begins")
        with contextlib.suppress(Exception):
            await self.persist(Added("pen", 1))
        await Booth.opened.wait()
        Booth.notes.append("ends")

    @command
    async def wait_and_start_a_timer(self) -> None:
        Booth.notes.append("begins")
        await Booth.opened.wait()
        self.context.start_timer("late", 0.1, Booth.ring)
        await asyncio.sleep(0.2)
        Booth.notes.append("ends")

    @command
    def add_and_start_a_timer(self) -> None:
        self.persist(Added("book", 1))
        self.context.start_timer("soon", 0.1, Booth.ring)

    @command
    def ring(self) -> None:
        Booth.notes.append("rings")

    @command
    def look(self) -> dict[str, int]:
        Booth.notes.append("next")
        return self.items


@pytest_asyncio.fixture
async def booth() -> AsyncIterator[MemoryCluster]:
    Booth.notes, Booth.opened = [], asyncio.Event()
    async with MemoryCluster([Booth], nodes=1) as cluster:
        with cluster.in_use():
            await Booth.ref("a").nothing()
            yield cluster


async def fail_before(cluster: MemoryCluster, first: str, then: str) -> list[asyncio.Future[Any]]:
    """Let a commit fail while the handler behind it runs; return these two calls and a third."""
    ref = Booth.ref("a")
    with cluster.writes_wait():
        cluster.fail_next_write(Booth, "a", reason="no room")
        arguments = ("book",) if first == "add" else ()
        calls = [
            asyncio.ensure_future(getattr(ref, first)(*arguments)),
            asyncio.ensure_future(getattr(ref, then)()),
            asyncio.ensure_future(ref.look()),
        ]
        await until(lambda: Booth.notes == ["begins"])
    with pytest.raises(NotSerializable, match="no room"):
        await calls[0]
    await travel(0.5)
    return calls


@pytest.mark.parametrize("handler", ["wait", "watch", "add_and_go_on"])
async def test_nothing_is_handled_beside_a_handler_behind_a_failed_commit(
    booth: MemoryCluster, handler: str
) -> None:
    _, behind, look = await fail_before(booth, "add", handler)
    noted = list(Booth.notes)
    Booth.opened.set()
    assert noted == ["begins"], "the next object handled while a handler of the one before it ran"
    with pytest.raises(Unavailable, match="an earlier commit of this entity failed"):
        await behind
    assert await look == {}
    assert Booth.notes == ["begins", "ends", "next"]
    assert booth.events(Booth, "a") == []


async def test_no_timer_of_an_object_rings_behind_its_failed_commit(booth: MemoryCluster) -> None:
    """Neither a timer of the failed command rings, nor one that the handler behind it starts."""
    _, behind, look = await fail_before(booth, "add_and_start_a_timer", "wait_and_start_a_timer")
    Booth.opened.set()
    with pytest.raises(Unavailable):
        await behind
    await look
    await travel(1.0)
    assert Booth.notes == ["begins", "ends", "next"]


async def test_an_object_whose_shard_is_lost_before_its_handler_ends_is_not_read_again(
    booth: MemoryCluster,
) -> None:
    _, behind, look = await fail_before(booth, "add", "wait")
    host = booth.nodes["node1"].hosts["entities.Booth"]
    shard = next(each for each in host.shards.values() if "a" in each.slots)
    host.shard_life.drop(shard.number)
    Booth.opened.set()
    await until(lambda: Booth.notes == ["begins", "ends"])
    assert (shard.slots, shard.busy) == ({}, 0)
    for call in (behind, look):
        call.cancel()


async def test_a_command_that_the_journal_is_asked_about_keeps_its_place_behind_a_failed_commit(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is recovered while the question is under way: what came later waits for it."""
    asked, answer = asyncio.Event(), asyncio.Event()
    look = MemoryJournal.outcome

    async def late(journal: MemoryJournal, *of: Any) -> Outcome | None:
        asked.set()
        await answer.wait()
        return await look(journal, *of)

    monkeypatch.setattr(MemoryJournal, "outcome", late)
    monkeypatch.setattr(KnownIds, "is_fresh", lambda *_: False)  # as of a command that an earlier home had
    cart = HotCart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        cluster.fail_next_write(HotCart, "a", reason="no room")
        calls = [
            asyncio.ensure_future(cart.add("book")),
            asyncio.ensure_future(HotCart.ref("a", command_id="once").add("pen")),
            asyncio.ensure_future(cart.add("cup")),
        ]
        await until(lambda: seen_by(cluster, "a").items == {"book": 1})  # type: ignore[attr-defined]
    with pytest.raises(NotSerializable, match="no room"):
        await calls[0]
    await asked.wait()
    await travel(0.5)
    assert not any(each.done() for each in calls[1:])
    answer.set()
    assert await asyncio.gather(*calls[1:]) == [1, 1]
    assert cluster.events(HotCart, "a") == [Added("pen", 1), Added("cup", 1)]


async def test_a_handler_that_raises_does_not_fail_the_commits_before_it(cluster: MemoryCluster) -> None:
    cart = HotCart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        before = asyncio.ensure_future(cart.add("book"))
        failing = asyncio.ensure_future(cart.add_then_raise("ghost"))
        after = asyncio.ensure_future(cart.add("book"))
        await travel(0.2)
    assert await before == 1
    with pytest.raises(EntityFailed, match="after persist"):
        await failing
    assert await after == 2
    assert cluster.events(HotCart, "a") == [Added("book", 1), Added("book", 1)]


async def test_an_intermediate_commit_keeps_its_place_in_the_pipeline(cluster: MemoryCluster) -> None:
    cart = HotCart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        adds = [
            asyncio.ensure_future(cart.add("book")),
            asyncio.ensure_future(cart.add_in_two("book")),
            asyncio.ensure_future(cart.add("book")),
        ]
        await travel(0.2)
        assert not any(add.done() for add in adds)
    assert await asyncio.gather(*adds) == [1, 12, 13]


async def test_what_is_under_way_is_bounded() -> None:
    async with MemoryCluster([HotCart], config=NodeConfig(mailbox_size=4)) as cluster:
        with cluster.in_use():
            cart = HotCart.ref("a")
            await cart.nothing()
            with cluster.writes_wait():
                adds = [asyncio.ensure_future(cart.add("book")) for _ in range(20)]
                await travel(0.2)
                assert seen_by(cluster, "a").items == {"book": 5}  # type: ignore[attr-defined]
            outcomes = await asyncio.gather(*adds, return_exceptions=True)
    assert [each for each in outcomes if isinstance(each, int)] == list(range(1, 10))


async def test_a_snapshot_is_taken_of_committed_state_only_and_under_constant_load() -> None:
    class Snapped(HotCart, name="entities.Snapped"):
        settings = ShardingSettings(pipelined=True, snapshot_every=10, keep_snapshots=100)

    async with MemoryCluster([Snapped]) as cluster:
        with cluster.in_use():
            cart = Snapped.ref("a")

            async def load() -> None:
                for _ in range(25):
                    await cart.add("book")

            await asyncio.gather(*(load() for _ in range(8)))
            await until(lambda: len(cluster.snapshots(Snapped, "a")) >= 15)
            for snapshot in cluster.snapshots(Snapped, "a"):
                assert snapshot.state == b'{"items":{"book":%d}}' % snapshot.seq
            cluster.forget()
            assert await cart.total() == 200


async def test_it_survives_the_death_of_its_node() -> None:
    async with MemoryCluster([HotCart], nodes=2) as cluster:
        with cluster.in_use():
            cart = HotCart.ref("a")
            await cart.nothing()
            with cluster.writes_wait():
                adds = [asyncio.ensure_future(cart.add("book")) for _ in range(10)]
                await travel(0.2)
                await cluster.kill_node(cluster.home_of(HotCart, "a"))
            assert await asyncio.gather(*adds) == list(range(1, 11))
            assert len(cluster.events(HotCart, "a")) == 10


async def test_a_type_that_does_not_opt_in_runs_one_command_at_a_time() -> None:
    running: list[str] = []

    class Careful(EventSourced, name="entities.Careful"):
        count: int = 0

        @command
        def step(self) -> int:
            running.append("step")
            self.persist(Added("x", 1))
            return self.count

        @query
        def look(self) -> int:
            running.append("look")
            return self.count

        @applies(Added)
        def on_added(self, happened: Added) -> None:
            self.count += 1

    async with MemoryCluster([Careful]) as cluster:
        with cluster.in_use():
            await Careful.ref("a").look()
            running.clear()
            with cluster.writes_wait():
                calls = [
                    asyncio.ensure_future(each) for each in (Careful.ref("a").step(), Careful.ref("a").look())
                ]
                await travel(0.2)
                assert running == ["step"], "a query looked at what was not committed"
            assert await asyncio.gather(*calls) == [1, 1]


class Stopper(EventSourced, name="pipelining.Stopper"):
    settings = ShardingSettings(
        pipelined=True, number_of_shards=1, supervision=Supervision({ValueError: "stop"})
    )
    total: int = 0

    @command
    async def add_slowly_and_stop(self, number: int) -> int:
        await asyncio.sleep(0.2)
        self.persist(Moved(number))
        self.context.stop()
        return self.total

    @command
    def add(self, number: int) -> int:
        self.persist(Moved(number))
        return self.total

    @command
    def add_and_fail(self, number: int) -> None:
        self.persist(Moved(number))
        raise ValueError("of no use any more")

    @applies(Moved)
    def on_moved(self, happened: Moved) -> None:
        self.total += happened.by


@pytest_asyncio.fixture
async def stoppers() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Stopper], nodes=1) as cluster:
        with cluster.in_use():
            assert await Stopper.ref("a").add(1) == 1
            yield cluster


async def test_what_comes_for_one_that_stops_behind_its_commit_overtakes_nothing(
    stoppers: MemoryCluster,
) -> None:
    with stoppers.writes_wait():
        adds = [asyncio.ensure_future(Stopper.ref("a").add_slowly_and_stop(2))]
        await travel(0.1)
        adds += [asyncio.ensure_future(Stopper.ref("a").add(3))]
        await travel(0.3)
        adds += [asyncio.ensure_future(Stopper.ref("a").add(4))]
        await travel(0.1)
    assert await asyncio.gather(*adds) == [3, 6, 10]
    assert stoppers.events(Stopper, "a") == [Moved(1), Moved(2), Moved(3), Moved(4)]


async def test_nothing_runs_on_what_a_handler_has_left_that_stops_its_entity(stoppers: MemoryCluster) -> None:
    """Its event was applied and is never stored."""
    with stoppers.writes_wait():
        before = asyncio.ensure_future(Stopper.ref("a").add(2))
        await travel(0.1)
        fails = asyncio.ensure_future(Stopper.ref("a").add_and_fail(1000))
        await travel(0.1)
        behind = asyncio.ensure_future(Stopper.ref("a").add(3))
        await travel(0.1)
    with pytest.raises(EntityFailed):
        await fails
    assert (await before, await behind) == (3, 6)


class Leaver(EventSourced, name="pipelining.Leaver"):
    settings = ShardingSettings(pipelined=True, remember_entities=True, number_of_shards=1)
    total: int = 0

    @command
    def add_and_leave(self, number: int) -> int:
        self.persist(Moved(number))
        self.context.passivate()
        return self.total

    @command
    def add(self, number: int) -> int:
        self.persist(Moved(number))
        return self.total

    @applies(Moved)
    def on_moved(self, happened: Moved) -> None:
        self.total += happened.by


@pytest_asyncio.fixture
async def leavers() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Leaver], nodes=1) as cluster:
        with cluster.in_use():
            yield cluster


def host_of(cluster: MemoryCluster) -> TypeHost:
    (node,) = cluster.nodes.values()
    return node.hosts["pipelining.Leaver"]


async def remembered(cluster: MemoryCluster) -> list[str]:
    found = host_of(cluster)
    return (await found.journal.recall(found.type_id, [0])).get(0, [])


async def test_a_message_for_one_that_leaves_behind_its_commit_waits_for_its_next_object(
    leavers: MemoryCluster,
) -> None:
    assert await Leaver.ref("a").add(1) == 1
    with leavers.writes_wait():
        leaving = asyncio.ensure_future(Leaver.ref("a").add_and_leave(2))
        await travel(0.2)
        behind = asyncio.ensure_future(Leaver.ref("a").add(3))
        await travel(0.2)
        assert await remembered(leavers) == ["a"]
    assert (await leaving, await behind) == (3, 6)
    await travel(1.0)
    assert await remembered(leavers) == ["a"], "it runs again"


async def test_one_that_leaves_behind_its_commit_is_forgotten(leavers: MemoryCluster) -> None:
    with leavers.writes_wait():
        leaving = asyncio.ensure_future(Leaver.ref("a").add_and_leave(2))
        await travel(0.2)
    assert await leaving == 2
    await travel(1.0)
    assert await remembered(leavers) == []
    assert not leavers.is_in_memory(Leaver, "a")


@pytest.mark.parametrize("runs", [False, True])
async def test_one_with_a_commit_under_way_is_erased_behind_it(leavers: MemoryCluster, *, runs: bool) -> None:
    """`runs`: another command comes meanwhile."""
    assert await Leaver.ref("a").add(1) == 1
    found = host_of(leavers)
    with leavers.writes_wait():
        adding = asyncio.ensure_future(Leaver.ref("a").add(2))
        await travel(0.2)
        slot = found.shards[0].slots["a"]
        assert (slot.state, slot.pending) == (SlotState.IDLE, 1)
        erasing = asyncio.ensure_future(found.erasing.erase(0, "a", "an operator"))
        await travel(0.2)
        behind = [asyncio.ensure_future(Leaver.ref("a").add(5))] if runs else []
        await travel(0.2)
        assert not erasing.done()
    assert await adding == 3
    erased = await erasing
    assert isinstance(erased, Erasure)
    assert erased.events == 2
    assert await asyncio.gather(*behind) == [5] * runs
    assert leavers.events(Leaver, "a") == [Moved(5)] * runs
