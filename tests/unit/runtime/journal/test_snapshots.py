"""Snapshots: when they are taken, what recovery makes of them, and what is left of the journal."""

import asyncio
import logging
from collections.abc import Sequence
from typing import ClassVar

import pytest

from sharding_app import (
    EventSourced,
    ShardingSettings,
    UnreadableEvent,
    UnreadableState,
    applies,
    command,
    query,
)
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.sessions import ConnectionLost
from sharding_app.ports.journal import JournalUnavailable, RowRefused, Snapshot
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.journal import snapshots
from sharding_app.runtime.node.stats import read_stats
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Added, Cart
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

WINDOW = 60.0


def settings(**changes: object) -> ShardingSettings:
    return ShardingSettings(**{"snapshot_every": 5, "keep_snapshots": 2, **changes})  # type: ignore[arg-type]


def config(**changes: object) -> NodeConfig:
    return NodeConfig(**{"command_window_seconds": WINDOW, **changes})  # type: ignore[arg-type]


class Snapped(Cart, name="entities.SnappedCart"):
    settings = settings()


class Predicate(Cart, name="entities.PredicateCart"):
    settings = ShardingSettings(
        snapshot_when=lambda entity, event, number: isinstance(event, Added) and event.sku == "snap"
    )


class BadPredicate(Cart, name="entities.BadPredicateCart"):
    settings = ShardingSettings(snapshot_when=lambda entity, event, number: 1 / 0 > 1)


class Trimmed(Cart, name="entities.TrimmedCart"):
    settings = settings(delete_events=True)


def seqs(cluster: MemoryCluster, entity: type[Cart], entity_id: str) -> list[int]:
    return [each.seq for each in cluster.snapshots(entity, entity_id)]


def journal(cluster: MemoryCluster, entity: type[Cart], entity_id: str) -> list[int]:
    return list(cluster._rows(entity, entity_id))


async def test_every_n_events_and_the_last_k_are_kept() -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        with cluster.in_use():
            for number in range(1, 24):
                await Snapped.ref("a").add("book")
                if number == 5:
                    await until(lambda: seqs(cluster, Snapped, "a") == [5])
            await until(lambda: seqs(cluster, Snapped, "a") == [15, 20])
            assert cluster.snapshots(Snapped, "a")[-1].state == b'{"items":{"book":20}}'
            assert journal(cluster, Snapped, "a") == list(range(1, 24)), "events stay unless asked otherwise"
            cluster.forget()
            assert await Snapped.ref("a").total() == 23


async def test_a_command_with_many_events_counts_them_all() -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        with cluster.in_use():
            await Snapped.ref("a").add_all(list("abcdefg"))
            await until(lambda: seqs(cluster, Snapped, "a") == [7])


async def test_by_predicate() -> None:
    async with MemoryCluster([Predicate]) as cluster:
        with cluster.in_use():
            await Predicate.ref("a").add("book")
            await Predicate.ref("a").add("snap")
            await Predicate.ref("a").add("book")
            await until(lambda: seqs(cluster, Predicate, "a") == [2])


async def test_a_predicate_that_raises_costs_no_command(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryCluster([BadPredicate]) as cluster:
        with cluster.in_use():
            assert await BadPredicate.ref("a").add("book") == 1
            assert seqs(cluster, BadPredicate, "a") == []
    assert "snapshot_when raised ZeroDivisionError" in caplog.text


async def test_recovery_reads_the_newest_and_the_rest() -> None:
    applied: list[int] = []

    class Counting(EventSourced, name="entities.Counting"):
        settings = ShardingSettings(snapshot_every=5)
        count: int = 0

        @command
        def step(self) -> int:
            self.persist(Added("x", 1))
            return self.count

        @applies(Added)
        def on_added(self, happened: Added) -> None:
            self.count += 1
            applied.append(self.count)

    async with MemoryCluster([Counting]) as cluster:
        with cluster.in_use():
            for _ in range(7):
                await Counting.ref("a").step()
            await until(lambda: len(cluster.snapshots(Counting, "a")) == 1)
            cluster.forget()
            applied.clear()
            assert await Counting.ref("a").step() == 8
    assert applied == [6, 7, 8]


async def test_a_snapshot_is_never_on_the_path_of_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        with cluster.in_use():
            monkeypatch.setattr(JournalWrites, "save_snapshots", _broken)
            for number in range(1, 12):
                assert await Snapped.ref("a").add("book") == number
            assert seqs(cluster, Snapped, "a") == []


def _broken(self: JournalWrites, snapshots: object) -> None:
    raise ConnectionLost("the server is out of reach for snapshots")


async def test_events_behind_the_oldest_kept_one_go_after_the_window_and_the_number_survives() -> None:
    async with MemoryCluster([Trimmed], config=config()) as cluster:
        with cluster.in_use():
            for _ in range(12):
                await Trimmed.ref("a").add("book")
            await until(lambda: seqs(cluster, Trimmed, "a") == [5, 10])
            assert journal(cluster, Trimmed, "a") == list(range(1, 13)), "a retry may still need them"
            await travel(2 * WINDOW + 1)
            for _ in range(8):
                await Trimmed.ref("a").add("book")
            await until(lambda: seqs(cluster, Trimmed, "a") == [15, 20])
            await until(lambda: journal(cluster, Trimmed, "a") == list(range(13, 21)))
            cluster.forget()
            assert await Trimmed.ref("a").add("book") == 21
            assert journal(cluster, Trimmed, "a")[-1] == 21
            await travel(2 * WINDOW + 1)
            for _ in range(4):
                await Trimmed.ref("a").add("book")
            await until(lambda: seqs(cluster, Trimmed, "a") == [20, 25])
            assert journal(cluster, Trimmed, "a")[-1] == 25
            cluster.forget()
            assert await Trimmed.ref("a").total() == 25


async def _snapped(cluster: MemoryCluster, entity: type[Cart], count: int) -> None:
    number = 0
    for _ in range(count):
        number = await entity.ref("a").add("book")
    await until(lambda: seqs(cluster, entity, "a")[-1:] == [number // 5 * 5])
    cluster.forget()


def _spoil(cluster: MemoryCluster, entity: type[Cart], *numbers: int) -> None:
    import msgspec

    kept = cluster.server.journal.snapshots[cluster._key(entity, "a")]
    for number in numbers:
        kept[number] = msgspec.structs.replace(kept[number], state=b'{"items": "not a dict"}')


async def test_an_unreadable_snapshot_falls_back_to_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        with cluster.in_use():
            await _snapped(cluster, Snapped, 12)
            _spoil(cluster, Snapped, 10)
            assert await Snapped.ref("a").total() == 12
    assert "a snapshot of an entity of entities.SnappedCart cannot be read" in caplog.text


async def test_with_none_readable_the_events_serve_if_they_reach_back_to_the_first() -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        with cluster.in_use():
            await _snapped(cluster, Snapped, 12)
            _spoil(cluster, Snapped, 5, 10)
            assert await Snapped.ref("a").total() == 12


async def test_else_the_recovery_fails_loudly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "sharding.region")
    async with MemoryCluster([Trimmed], config=config()) as cluster:
        with cluster.in_use():
            await _snapped(cluster, Trimmed, 12)
            await travel(2 * WINDOW + 1)
            await _snapped(cluster, Trimmed, 5)  # the 17th: snapshot at 15, the first ten events go
            assert journal(cluster, Trimmed, "a")[0] > 1
            _spoil(cluster, Trimmed, *seqs(cluster, Trimmed, "a"))
            with pytest.raises(
                UnreadableEvent, match=r"'a' cannot be recovered: .*the journal has no number 1"
            ):
                await Trimmed.ref("a").total()
            assert await Trimmed.ref("b").add("book") == 1, "others are not affected"
    assert "cannot be recovered" in caplog.text


async def test_a_state_too_large_for_a_snapshot_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryCluster([Snapped], config=config(max_state_bytes=1024)) as cluster:
        with cluster.in_use():
            await Snapped.ref("a").add_all(
                [f"a rather long name of an article, number {n}" for n in range(60)]
            )
            await Snapped.ref("b").add_all(list("abcdef"))
            await until(lambda: seqs(cluster, Snapped, "b") == [6])
            assert seqs(cluster, Snapped, "a") == []
            cluster.forget()
            assert await Snapped.ref("a").total() == 60
    assert "more than the 1024 of MAX_STATE_BYTES" in caplog.text


async def test_what_is_written_at_once_and_what_waits_is_bounded_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A state may have megabytes, and a locked table lets the snapshots of all entities wait."""
    batches: list[int] = []
    monkeypatch.setattr(snapshots, "WAITING_BYTES", 10_000)
    monkeypatch.setattr(snapshots, "BATCH_BYTES", 3_000)
    async with MemoryCluster([Snapped], nodes=1) as cluster:
        (node,) = cluster.nodes.values()
        found = node.hosts["entities.SnappedCart"].execution.snapshots
        journal = node.node_ports.journal
        real, free = journal.save_snapshots, asyncio.Event()

        async def save(snapshots: Sequence[Snapshot]) -> None:
            batches.append(sum(len(each.state) for each in snapshots))
            await free.wait()
            await real(snapshots)

        journal.save_snapshots = save  # type: ignore[method-assign]
        with cluster.in_use():
            for number in range(30):
                await Snapped.ref(str(number)).add_all([f"{each}" * 100 for each in range(10)])
            waiting = [len(each.state) for each in found._waiting.values()]
            assert 5 < len(waiting) < 30
            assert sum(waiting) <= 10_000
            free.set()
            await until(lambda: not found._waiting)
            assert max(batches) <= 3_000
            assert found.counters["snapshots_dropped"] == 30 - len(waiting)
            assert seqs(cluster, Snapped, "29") == [10]
            assert found._waiting_bytes == 0


async def test_own_snapshot_and_restore() -> None:
    class Own(EventSourced, name="entities.Own"):
        settings = ShardingSettings(snapshot_every=2)

        def __init__(self) -> None:
            self.seen: set[str] = set()

        def snapshot(self) -> list[str]:
            return sorted(self.seen)

        def restore(self, state: list[str]) -> None:
            self.seen = set(state)

        @command
        def see(self, name: str) -> None:
            self.persist(Added(name, 1))

        @query
        def all(self) -> list[str]:
            return sorted(self.seen)

        @applies(Added)
        def on_added(self, happened: Added) -> None:
            self.seen.add(happened.sku)

    async with MemoryCluster([Own]) as cluster:
        with cluster.in_use():
            for name in ("b", "a", "c"):
                await Own.ref("x").see(name)
            await until(lambda: [each.state for each in cluster.snapshots(Own, "x")] == [b'["a","b"]'])
            cluster.forget()
            assert await Own.ref("x").all() == ["a", "b", "c"]


async def test_a_fenced_home_writes_no_snapshot() -> None:
    async with MemoryCluster([Snapped], nodes=2, config=config()) as cluster:
        with cluster.in_use():
            await Snapped.ref("a").add("book", 1)
            former = cluster.nodes[cluster.home_of(Snapped, "a")].hosts["entities.SnappedCart"]
            shard = next(iter(former.shards.values()))
            cluster.server.cluster.epochs[former.execution.type_id, shard.number] += 1
            former.execution.snapshots._waiting["a"] = Snapshot(
                former.execution.type_id, "a", 1, shard.number, shard.epoch, b'{"items": {}}'
            )
            former.execution.snapshots._wake.set()
            await until(lambda: former.execution.snapshots.counters["snapshots_dropped"] == 1)
            assert cluster.snapshots(Snapped, "a") == []


async def test_one_that_waits_while_the_server_goes_back_is_dropped() -> None:
    """It may show events that the server has lost, at an epoch that still counts."""
    async with MemoryCluster([Snapped], config=config()) as cluster:
        (node,) = cluster.nodes.values()
        journal = node.node_ports.journal
        save = journal.save_snapshots

        async def unavailable(snapshots: Sequence[Snapshot]) -> None:
            raise JournalUnavailable("the server is gone")

        journal.save_snapshots = unavailable  # type: ignore[method-assign]
        with cluster.in_use():
            await Snapped.ref("a").add_all(list("abcde"))
            waiting = node.hosts["entities.SnappedCart"].execution.snapshots._waiting
            await until(lambda: [each.seq for each in waiting.values()] == [5])
            node.hosting.give_up_stored()
            assert waiting == {}
            journal.save_snapshots = save  # type: ignore[method-assign]
            assert await Snapped.ref("a").total() == 5, "it was read again"
            assert seqs(cluster, Snapped, "a") == []


@pytest.mark.parametrize(
    "error",
    [
        JournalUnavailable("a trigger of the user's raises (P0001)", answered=True),
        RowRefused("violates a constraint of the user's"),
    ],
)
async def test_one_that_the_server_does_not_take_holds_up_no_other(error: Exception) -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        (node,) = cluster.nodes.values()
        journal = node.node_ports.journal
        save, hold = journal.save_snapshots, asyncio.Event()

        async def picky(snapshots: Sequence[Snapshot]) -> None:
            await hold.wait()
            if any(each.entity == "bad" for each in snapshots):
                raise error
            await save(snapshots)

        journal.save_snapshots = picky  # type: ignore[method-assign]
        good = [f"cart-{number}" for number in range(9)]
        with cluster.in_use():
            for each in ("bad", *good):
                await Snapped.ref(each).add_all(list("abcde"))
            hold.set()
            await until(lambda: all(seqs(cluster, Snapped, each) == [5] for each in good))
            assert seqs(cluster, Snapped, "bad") == []


async def test_they_are_counted_apart_from_commands_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryCluster([Snapped], config=config()) as cluster:
        with cluster.in_use():
            await Snapped.ref("a").add_all(list("abcde"))
            await until(lambda: seqs(cluster, Snapped, "a") == [5])
            (node,) = cluster.nodes.values()
            monkeypatch.setattr(node.ports.transport, "statistics", lambda: {"deaf": 2})
            node.hosts["entities.SnappedCart"].execution.snapshots._failed("the test says so")
            found = read_stats(node, 1)
            counted = found.types[0].counters
            assert (counted["snapshots_saved"], counted["snapshots_failed"]) == (1, 1)
            assert "failed" not in counted, "no command has"
            assert found.counters["transport_deaf"] == 2, "what the transport counts is there too"


async def test_a_snapshot_of_an_older_version_of_the_class_is_passed_over_or_upgraded() -> None:
    """`snapshot()` notes a version, and `restore` decides what becomes of another one."""

    class Versioned(EventSourced, name="entities.VersionedSnapshot"):
        settings = ShardingSettings(snapshot_every=3)
        version: ClassVar[int] = 1
        upgrades: ClassVar[bool] = False

        def __init__(self) -> None:
            self.count = self.sum = 0

        def snapshot(self) -> dict[str, int]:
            return {"version": self.version, "count": self.count, "sum": self.sum}

        def restore(self, state: dict[str, int]) -> None:
            if state["version"] < self.version and not self.upgrades:
                raise UnreadableState(f"a snapshot of version {state['version']}, now {self.version}")
            self.count, self.sum = state["count"], state["sum"]
            if state["version"] < 2:
                self.sum = 2 * self.count

        @command
        def step(self) -> tuple[int, int]:
            self.persist(Added("x", 2))
            return self.count, self.sum

        @query
        def show(self) -> tuple[int, int]:
            return self.count, self.sum

        @applies(Added)
        def on_added(self, happened: Added) -> None:
            self.count += 1
            if self.version > 1:
                self.sum += happened.quantity

    async with MemoryCluster([Versioned]) as cluster:
        with cluster.in_use():
            for entity in ("passed over", "upgraded"):
                for _ in range(7):
                    await Versioned.ref(entity).step()
                assert await Versioned.ref(entity).show() == (7, 0)
                await _newest(cluster, Versioned, entity, 6)
            cluster.forget()
            Versioned.version = 2
            assert await Versioned.ref("passed over").show() == (7, 14), "from the events alone"
            Versioned.upgrades = True
            assert await Versioned.ref("upgraded").show() == (7, 14), "the sixth snapshot, and one event"


async def _newest(cluster: MemoryCluster, entity: type[EventSourced], entity_id: str, seq: int) -> None:
    await until(lambda: any(each.seq == seq for each in cluster.snapshots(entity, entity_id)))
