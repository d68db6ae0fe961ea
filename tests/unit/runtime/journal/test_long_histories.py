"""Recovery of long histories: in pages and slices, in turn with others, within limits, and named
where it takes long.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sharding_app import (
    EventSourced,
    HistoryTooLong,
    ShardingSettings,
    UnreadableEvent,
    applies,
    command,
    event,
    query,
)
from sharding_app.adapters.memory import MemoryJournal
from sharding_app.ports.journal import Bounds, History, JournalUnavailable, RowRefused
from sharding_app.protocol.recovery_limits import RecoveryLimits
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Profile
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


@event
class Step:
    by: int = 1


class Walk(EventSourced, name="entities.Walk"):
    """Refuses to be folded in another order, or twice."""

    steps: int = 0
    last: int = 0

    @command
    def step(self) -> int:
        self.persist(Step(self.last + 1))
        return self.steps

    @query
    def show(self) -> int:
        return self.steps

    @applies(Step)
    def on_step(self, happened: Step) -> None:
        if happened.by != self.last + 1:
            raise ValueError(f"{happened.by} after {self.last}")
        self.last = happened.by
        self.steps += 1


class Snapped(Walk, name="entities.SnappedWalk"):
    settings = ShardingSettings(snapshot_every=100, keep_snapshots=2)


def limits(**changes: int) -> RecoveryLimits:
    small = {"batch_entities": 8, "batch_events": 10, "batch_rows": 30, "page_events": 7}
    return RecoveryLimits(**{**small, **changes})


def cluster_of(*types: type[EventSourced], config: RecoveryLimits | None = None) -> MemoryCluster:
    return MemoryCluster([*types, Profile], config=NodeConfig(recovery=config or limits()))


async def walked(cluster: MemoryCluster, entity_id: str, steps: int, kind: type[Walk] = Walk) -> None:
    await kind.ref(entity_id).show()
    cluster.forget()
    cluster.append_raw(kind, entity_id, *(("Step", 1, b'{"by": %d}' % (n + 1)) for n in range(steps)))


@pytest.mark.parametrize("steps", [1, 9, 10, 11, 16, 17, 18, 500])
async def test_every_length_is_recovered(steps: int) -> None:
    """Around the bounds of a batch and of a page."""
    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            await walked(cluster, "a", steps)
            assert await Walk.ref("a").show() == steps
            assert await Walk.ref("a").step() == steps + 1


async def test_many_of_all_lengths_together() -> None:
    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            lengths = {f"e{n}": n * 3 for n in range(40)}
            for name, steps in lengths.items():
                await walked(cluster, name, steps)
            found = await asyncio.gather(*(Walk.ref(name).show() for name in lengths))
            assert found == list(lengths.values())
            loader = cluster.nodes["node1"].hosts["entities.Walk"].loader
            assert loader._permits.free == loader._permits.limit, "all permits were given back"


async def test_no_read_brings_more_than_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = [0, 0]
    read, read_from = MemoryJournal.read, MemoryJournal.read_from

    async def batch(self: MemoryJournal, type_id: int, entities: Sequence[str], bounds: Bounds) -> Any:
        found = await read(self, type_id, entities, bounds)
        largest[0] = max(largest[0], sum(len(each.events) for each in found.values()))
        return found

    async def page(self: MemoryJournal, type_id: int, entity: str, after: int, bounds: Bounds) -> History:
        found = await read_from(self, type_id, entity, after, bounds)
        largest[1] = max(largest[1], len(found.events))
        return found

    monkeypatch.setattr(MemoryJournal, "read", batch)
    monkeypatch.setattr(MemoryJournal, "read_from", page)
    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            for name in "abcdefgh":
                await walked(cluster, name, 40)
            assert await asyncio.gather(*(Walk.ref(name).show() for name in "abcdefgh")) == [40] * 8
    assert largest[0] <= 30
    assert largest[1] <= 7


async def test_the_loop_turns_inside_one_entity() -> None:
    """Between two turns no more than a slice of events is applied."""
    turns = [0]
    seen: list[tuple[int, int]] = []

    class Seen(Walk, name="entities.SeenWalk"):
        @applies(Step)
        def on_step(self, happened: Step) -> None:
            self.steps = self.last = happened.by
            seen.append((turns[0], happened.by))

    async def turning() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    big = limits(batch_events=100_000, batch_rows=1_000_000, page_events=100_000)
    async with cluster_of(Seen, config=big) as cluster:
        with cluster.in_use():
            await walked(cluster, "a", 5000, Seen)
            seen.clear()
            turner = asyncio.ensure_future(turning())
            assert await Seen.ref("a").show() == 5000
            turner.cancel()
    at_once = max(sum(1 for turn, _ in seen if turn == each) for each in {turn for turn, _ in seen})
    assert at_once <= 1000
    assert len(seen) == 5000


async def test_a_long_one_holds_up_no_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones wake after it and are through long before it is."""
    pages = asyncio.Event()
    read_from = MemoryJournal.read_from

    async def slow(self: MemoryJournal, *args: Any) -> History:
        pages.set()
        await asyncio.sleep(0.001)
        return await read_from(self, *args)

    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            await walked(cluster, "long", 20_000)
            for n in range(20):
                await walked(cluster, f"short{n}", n % 30)
            monkeypatch.setattr(MemoryJournal, "read_from", slow)
            long = asyncio.ensure_future(Walk.ref("long", timeout=60).show())
            await pages.wait()
            found = await asyncio.gather(*(Walk.ref(f"short{n}").show() for n in range(20)))
            assert found == [n % 30 for n in range(20)]
            assert not long.done()
            long.cancel()


@pytest.mark.parametrize("bad", [1, 250])
async def test_a_batch_that_is_too_much_for_the_server_is_halved(
    bad: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server gives up on more than `bad` entities, or on more than 100 events, at a time."""
    asked: list[int] = []
    read, read_from = MemoryJournal.read, MemoryJournal.read_from

    async def weak(self: MemoryJournal, type_id: int, entities: Sequence[str], bounds: Bounds) -> Any:
        asked.append(len(entities))
        if len(entities) > bad or bounds.events > 100:
            raise JournalUnavailable("canceling statement due to statement timeout", answered=True)
        return await read(self, type_id, entities, bounds)

    async def weak_page(
        self: MemoryJournal, type_id: int, entity: str, after: int, bounds: Bounds
    ) -> History:
        if bounds.events > 100:
            raise JournalUnavailable("canceling statement due to statement timeout", answered=True)
        return await read_from(self, type_id, entity, after, bounds)

    async with cluster_of(Walk, config=RecoveryLimits()) as cluster:
        with cluster.in_use():
            for n in range(12):
                await walked(cluster, f"e{n}", 300)
            monkeypatch.setattr(MemoryJournal, "read", weak)
            monkeypatch.setattr(MemoryJournal, "read_from", weak_page)
            monkeypatch.setattr("sharding_app.runtime.journal.loader.RETRY_SECONDS", 0.0)
            asks = [Walk.ref(f"e{n}", timeout=60).show() for n in range(12)]
            assert await asyncio.gather(*asks) == [300] * 12
    assert min(asked) <= bad


async def test_an_id_that_the_server_refuses_is_its_own_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of one entity makes a read raise: it ends no vital job, and no other entity waits
    for it.
    """
    read, read_last = MemoryJournal.read, MemoryJournal.read_last

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        async def read(self: MemoryJournal, type_id: int, entities: Sequence[str], *rest: Any) -> Any:
            if "bad" in entities:
                raise RowRefused("the server does not like it")
            return await real(self, type_id, entities, *rest)

        return read

    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            await Walk.ref("e0").step()
            await Profile.ref("e0").visit()
            monkeypatch.setattr(MemoryJournal, "read", refusing(read))
            monkeypatch.setattr(MemoryJournal, "read_last", refusing(read_last))
            asks: list[Callable[[str], Any]] = [
                lambda name: Walk.ref(name).step(),
                lambda name: Profile.ref(name).visit(),
            ]
            for ask in asks:
                names = ["e1", "e2", "bad", "e3"]
                found = await asyncio.gather(*(ask(name) for name in names), return_exceptions=True)
                assert [type(each) for each in found] == [int, int, UnreadableEvent, int]
            assert not cluster.nodes["node1"].ended.done()


@pytest.mark.parametrize(
    ("given", "setting"),
    [({"max_events": 99}, "MAX_RECOVERY_EVENTS"), ({"max_bytes": 500}, "MAX_HISTORY_BYTES")],
)
async def test_a_history_beyond_the_limit_is_refused_with_what_to_do(
    given: dict[str, int], setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster_of(Walk, config=limits(**given)) as cluster:
        with cluster.in_use():
            await walked(cluster, "a", 100)
            await walked(cluster, "b", 20)
            with pytest.raises(HistoryTooLong, match=f"Raise {setting} .* `snapshot_every`") as caught:
                await Walk.ref("a").show()
            assert caught.value.params["setting"] == setting
            assert "'a'" in caught.value.message
            assert await Walk.ref("b").show() == 20
            assert len(cluster.events_raw(Walk, "a")) == 100
    (said,) = [each for each in caplog.records if getattr(each, "action", "") == "recovery_failed"]
    assert "entities.Walk 'a'" in said.getMessage()


async def test_no_limit_where_it_is_0() -> None:
    async with cluster_of(Walk, config=limits(max_events=0, max_bytes=0)) as cluster:
        with cluster.in_use():
            await walked(cluster, "a", 100)
            assert await Walk.ref("a").show() == 100


async def test_a_long_recovery_is_said_with_type_and_entity(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharding_app.runtime.journal.loader.LONG_EVENTS", 50)
    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            await walked(cluster, "a", 60)
            await walked(cluster, "b", 40)
            with caplog.at_level(logging.WARNING, "sharding"):
                await asyncio.gather(Walk.ref("a").show(), Walk.ref("b").show())
            assert cluster.nodes["node1"].hosts["entities.Walk"].loader.longest_events == 60
    (said,) = [each for each in caplog.records if getattr(each, "action", "") == "long_history"]
    assert (said.entity_type, said.entity, said.events) == ("entities.Walk", "a", 60)  # type: ignore[attr-defined]


async def test_what_is_being_folded_is_named_to_the_watchdog() -> None:
    named: list[tuple[str, str] | None] = []

    class Named(Walk, name="entities.NamedWalk"):
        @applies(Step)
        def on_step(self, happened: Step) -> None:
            self.steps += 1
            named.append(watch().recovering)

    async with cluster_of(Named) as cluster:

        def watch() -> Any:
            return cluster.nodes["node1"].node_ports.watch

        with cluster.in_use():
            await walked(cluster, "a", 30, Named)
            named.clear()
            await Named.ref("a").show()
            assert set(named) == {("entities.NamedWalk", "a")}
            assert watch().recovering is None


async def test_events_that_a_newer_snapshot_covers_may_go_between_two_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot of the former object is saved, and the journal trimmed, while the history is being
    read.
    """
    read_from = MemoryJournal.read_from
    pages = [0]

    async with cluster_of(Snapped) as cluster:
        with cluster.in_use():
            await Snapped.ref("a").show()

            async def trimmed(self: MemoryJournal, type_id: int, entity: str, *rest: Any) -> History:
                pages[0] += 1
                if pages[0] == 3:
                    key = cluster._key(Snapped, "a")
                    rows = cluster.server.journal
                    newest = dict(cluster_snapshot)
                    rows.snapshots[key] = newest
                    for seq in range(1, 101):
                        rows.events[key].pop(seq, None)
                return await read_from(self, type_id, entity, *rest)

            for _ in range(120):
                await Snapped.ref("a").step()
            key = cluster._key(Snapped, "a")
            await until(lambda: 100 in cluster.server.journal.snapshots.get(key, {}))
            cluster_snapshot = dict(cluster.server.journal.snapshots.pop(key))
            cluster.forget()
            monkeypatch.setattr(MemoryJournal, "read_from", trimmed)
            assert await Snapped.ref("a").show() == 120


async def test_a_gap_that_stays_is_told() -> None:
    async with cluster_of(Walk) as cluster:
        with cluster.in_use():
            await walked(cluster, "a", 60)
            del cluster.server.journal.events[cluster._key(Walk, "a")][40]
            with pytest.raises(UnreadableEvent, match="it has a gap"):
                await Walk.ref("a").show()
