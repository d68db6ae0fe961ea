"""Several appends under way at once: of different shards, each on its own connection."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from typing import Any

import pytest

from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused, ShardsFenced, ShardsLocked
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal import backlog
from sharding_app.runtime.journal.appender import PATIENCE
from sharding_app.runtime.journal.backlog import FURTHER_ROWS, MAX_ROWS
from sharding_app.runtime.journal.commits import Commit, NotCommitted, Resident
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.testing.clock import TravelLoop
from tests.support.given import event_row

pytestmark = pytest.mark.asyncio

SLOW_SECONDS, LATE_SECONDS = 100.0, 400.0
"So long that no append is late because the machine is busy."
SLOW, LATE = 1.5 * SLOW_SECONDS, 1.5 * LATE_SECONDS
End = tuple[str, int, NotCommitted | None]


@pytest.fixture(autouse=True)
def _late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "SLOW_SECONDS", SLOW_SECONDS)
    monkeypatch.setattr(backlog, "LATE_SECONDS", LATE_SECONDS)


class Append:
    """One append under way: the test says how it ends."""

    def __init__(self, on: int, rows: Sequence[EventRow]) -> None:
        self.on = on
        self.rows = rows
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def entities(self) -> str:
        return " ".join(f"{row.entity}{row.seq}" for row in self.rows)


class Gated:
    """A journal whose appends wait at a gate. Each connection has one append at a time, no shard is
    in two, and events follow without a gap.
    """

    def __init__(self, connections: int = 3) -> None:
        self.connections = connections
        self.under_way: dict[int, Append] = {}
        self.begun: list[str] = []
        self.stored: dict[str, list[int]] = {}
        self.settled: list[int] = []
        "Connections that were asked for the outcome of their append."
        self.settles: dict[int, asyncio.Future[bool]] = {}
        self.holders: dict[tuple[int, int], str] = {}

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        shards = {row.shard for row in rows}
        for other in self.under_way.values():
            assert shards.isdisjoint(row.shard for row in other.rows), "two appends with rows of one shard"
        assert on not in self.under_way, "two appends on one connection"
        append = self.under_way[on] = Append(on, rows)
        self.begun.append(append.entities)
        try:
            await append.outcome
        finally:
            del self.under_way[on]
        self.store(rows)
        return None

    def store(self, rows: Sequence[EventRow]) -> None:
        for row in rows:
            numbers = self.stored.setdefault(row.entity, [])
            assert row.seq == len(numbers) + 1, "a gap, or twice the same"
            numbers.append(row.seq)

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        self.settled.append(on)
        if on in self.settles:
            return await self.settles[on]
        return rows[0].seq in self.stored.get(rows[0].entity, ())

    async def locked(self, shards: Collection[tuple[int, int]]) -> dict[tuple[int, int], str]:
        return {key: holder for key, holder in self.holders.items() if key in shards}

    def of(self, entity: str) -> Append:
        """The append under way with a row of this entity."""
        return next(each for each in self.under_way.values() if entity in [row.entity for row in each.rows])

    async def end(self, entity: str, error: Exception | None = None) -> None:
        """End the append with a row of this entity, and see what follows."""
        append = self.of(entity)
        if error is None:
            append.outcome.set_result(None)
        else:
            append.outcome.set_exception(error)
        await turns()

    @property
    def now(self) -> list[str]:
        """The rows of the appends under way, by connection."""
        return [self.under_way[on].entities for on in sorted(self.under_way)]


class Entities:
    """Makes commits of numbered events, and notes what becomes of them."""

    def __init__(self) -> None:
        self.shards: dict[int, Shard[Resident]] = {}
        self.slots: dict[str, Resident] = {}
        self.ends: list[End] = []

    def commit(self, entity: str, shard: int, rows: int = 1) -> Commit:
        home = self.shards.setdefault(shard, Shard("shop.Cart", shard, 1, Resident))
        slot = self.slots.setdefault(entity, Resident(entity, home))
        first = slot.seq + 1
        slot.seq += rows
        seq, ends = slot.seq, self.ends

        class Noted(Commit):
            def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
                ends.append((entity, seq, why))
                if why is not None and self.generation == slot.generation:
                    slot.generation += 1

        return Noted(slot, [event_row(1, entity, number, shard=shard) for number in range(first, seq + 1)])


@contextlib.asynccontextmanager
async def written(journal: Any) -> AsyncIterator[tuple[JournalWriter, Entities]]:
    writer, entities = JournalWriter(journal, lambda: True), Entities()
    task = asyncio.ensure_future(writer.run())
    try:
        yield writer, entities
    finally:
        task.cancel()


async def turns() -> None:
    """Let everything happen that takes no time."""
    for _ in range(20):
        await asyncio.sleep(0)


async def pass_time(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    await loop.travel(seconds)
    await turns()


async def test_an_append_that_lasts_keeps_no_other_shard_waiting() -> None:
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        writer.put(entities.commit("b", 1))
        await pass_time(LATE)
        assert journal.now == ["a1", "b1"]
        assert (writer.under_way, writer.overlapping) == (2, 1)
        await journal.end("b")
        assert entities.ends == [("b", 1, None)]
        await journal.end("a")
        assert entities.ends == [("b", 1, None), ("a", 1, None)]
        assert (writer.under_way, writer.waiting) == (0, 0)


async def test_a_few_rows_wait_for_an_append_that_has_just_begun() -> None:
    """An append of all of them together is cheaper than two."""
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        writer.put(entities.commit("b", 1))
        writer.put(entities.commit("c", 2))
        await turns()
        assert journal.now == ["a1"]
        await journal.end("a")
        assert journal.now == ["b1 c1"]
        await journal.end("b")
        assert writer.overlapping == 0


async def test_many_rows_wait_only_as_long_as_a_fast_append_lasts() -> None:
    journal = Gated(2)
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        for number in range(FURTHER_ROWS - 1):
            writer.put(entities.commit(f"e{number}-", 1 + number))
        await pass_time(SLOW)
        assert journal.now == ["a1"], "one row is missing"
        writer.put(entities.commit("last", FURTHER_ROWS))
        await turns()
        assert [len(each.rows) for each in journal.under_way.values()] == [1, FURTHER_ROWS]
        await journal.end("last")
        await journal.end("a")
        assert len(entities.ends) == 1 + FURTHER_ROWS


async def test_many_rows_that_wait_are_looked_at_again_when_an_append_lasts() -> None:
    journal = Gated(2)
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        writer.put(entities.commit("b", 1, rows=FURTHER_ROWS))
        await turns()
        assert journal.now == ["a1"], "it may be done soon"
        await pass_time(SLOW)
        assert [len(each.rows) for each in journal.under_way.values()] == [1, FURTHER_ROWS]
        await journal.end("b")
        await journal.end("a")


async def test_rows_of_a_busy_shard_are_not_counted() -> None:
    journal = Gated(2)
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        for _ in range(MAX_ROWS - 1):
            writer.put(entities.commit("a", 0))
        writer.put(entities.commit("b", 1))
        await pass_time(SLOW)
        assert journal.now == ["a1"]
        await journal.end("a")
        assert [len(each.rows) for each in journal.under_way.values()] == [MAX_ROWS]
        await journal.end("a")


async def test_a_shard_is_in_one_append_at_a_time_and_in_its_order() -> None:
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        for name, shard in (("a", 0), ("b", 1), ("c", 0), ("a", 0)):
            writer.put(entities.commit(name, shard))
        await pass_time(LATE)
        assert journal.now == ["a1", "b1"]
        await journal.end("a")
        assert journal.now == ["b1"], "it has just ended"
        await pass_time(LATE)
        assert journal.now == ["a2 c1 a3", "b1"]
        await journal.end("a")
        await journal.end("b")
    assert journal.stored == {"a": [1, 2, 3], "b": [1], "c": [1]}


async def test_no_more_appends_are_under_way_than_there_are_connections() -> None:
    journal = Gated(2)
    async with written(journal) as (writer, entities):
        for shard, name in enumerate("abcd"):
            writer.put(entities.commit(name, shard))
            await pass_time(LATE)
        assert journal.now == ["a1", "b1"]
        await journal.end("b")
        await pass_time(LATE)
        assert journal.now == ["a1", "c1 d1"]
        await journal.end("a")
        await journal.end("c")
    assert len(entities.ends) == 4


async def test_an_append_in_doubt_stalls_its_shards_and_no_others() -> None:
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        known = journal.settles[0] = asyncio.get_running_loop().create_future()
        await journal.end("a", JournalUnavailable("the connection was lost"))
        assert journal.settled == [0]
        for name, shard in (("a", 0), ("b", 1), ("x", 0)):
            writer.put(entities.commit(name, shard))
        await pass_time(LATE)
        assert journal.now == ["b1"]
        assert journal.of("b").on == 1
        await journal.end("b")
        await pass_time(60)
        assert journal.now == [], "the shard in doubt waits"
        assert entities.ends == [("b", 1, None)]
        journal.store([event_row(1, "a", 1)])
        known.set_result(True)
        await turns()
        assert entities.ends == [("b", 1, None), ("a", 1, None)]
        assert journal.now == ["a2 x1"]
        await journal.end("a")
    assert journal.settled == [0]
    assert journal.stored == {"a": [1, 2], "b": [1], "x": [1]}


async def test_each_connection_is_asked_for_its_own_append() -> None:
    journal = Gated()
    async with written(journal) as (writer, entities):
        for shard, name in enumerate("ab"):
            writer.put(entities.commit(name, shard))
            await pass_time(LATE)
        await journal.end("b", JournalUnavailable("the connection was lost"))
        assert journal.settled == [1]
        assert journal.now == ["a1", "b1"], "it was not stored: it is appended again"
        await journal.end("b")
        await journal.end("a")
    assert entities.ends == [("b", 1, None), ("a", 1, None)]


async def test_a_part_that_is_tried_again_keeps_its_order() -> None:
    """Its shard is busy until the last part of its batch is done."""
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("z", 9))
        await turns()
        for name in ("a", "b", "a"):
            writer.put(entities.commit(name, 0))
        await pass_time(LATE)
        assert journal.now == ["z1", "a1 b1 a2"]
        await journal.end("a", RowRefused("no", 1))
        writer.put(entities.commit("a", 0))
        await pass_time(LATE)
        assert journal.now == ["z1", "a1"]
        await journal.end("a")
        assert journal.now == ["z1", "a2"]
        await pass_time(LATE)
        assert journal.now == ["z1", "a2"]
        await journal.end("a")
        await pass_time(LATE)
        assert journal.now == ["z1", "a3"]
        await journal.end("a")
        await journal.end("z")
    refused = ("b", 1, NotCommitted.REFUSED)
    assert entities.ends == [("a", 1, None), refused, ("a", 2, None), ("a", 3, None), ("z", 1, None)]


async def test_errors_of_the_server_on_one_connection_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A success beside them does not begin their patience anew."""
    monkeypatch.setattr(backlog, "SLOW_SECONDS", 0.0)
    journal = Gated(2)
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("z", 9, rows=FURTHER_ROWS))
        await turns()
        writer.put(entities.commit("a", 0, rows=FURTHER_ROWS - 1))
        writer.put(entities.commit("bad", 1))
        await turns()
        for _ in range(PATIENCE):
            assert journal.of("a") is journal.of("bad")
            await journal.end("bad", JournalUnavailable("closed (P0001)", answered=True))
            await journal.end("z")
            writer.put(entities.commit("z", 9, rows=FURTHER_ROWS))
            await pass_time(0.5)
        assert len(journal.of("a").rows) == FURTHER_ROWS - 1, "without the one that the server fails"
        await journal.end("a")
        await journal.end("bad")
        await journal.end("z")
    assert {why for _, _, why in entities.ends} == {None}


async def test_a_locked_shards_rows_are_taken_once() -> None:
    """It is free again while its former append still holds later rows of it: those go after the
    ones that wait.
    """
    journal = Gated()
    async with written(journal) as (writer, entities):
        for name, shard in (("a", 0), ("b", 1), ("bad", 1), ("a", 0)):
            writer.put(entities.commit(name, shard))
        await turns()
        assert journal.now == ["a1 b1 bad1 a2"]
        await journal.end("a", RowRefused("no", 2))
        assert journal.now == ["a1 b1"]
        await journal.end("a", ShardsLocked({(1, 0): "a migration"}))
        assert journal.now == ["b1"]
        await pass_time(1)
        writer.put(entities.commit("c", 2))
        await pass_time(LATE)
        assert journal.now == ["b1", "c1"], "it is free, and its append still holds a2"
        await journal.end("c")
        await journal.end("b")
        assert journal.now == ["a1 a2"]
        await journal.end("a")
        assert writer.waiting == 0
    assert Counter(entities.ends) == Counter(
        {
            ("a", 1, None): 1,
            ("a", 2, None): 1,
            ("b", 1, None): 1,
            ("bad", 1, NotCommitted.REFUSED): 1,
            ("c", 1, None): 1,
        }
    )


async def test_a_stuck_entity_is_not_tried_while_an_append_holds_its_shard() -> None:
    closed = JournalUnavailable("closed (P0001)", answered=True)
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("bad", 0))
        await turns()
        for _ in range(3):
            await journal.end("bad", closed)
            await pass_time(0.2)
        assert journal.now == [], "it waits beside the others"
        writer.put(entities.commit("a", 0))
        await turns()
        assert journal.now == ["a1"]
        await pass_time(60)
        assert journal.now == ["a1"]
        await journal.end("a")
        assert journal.now == ["bad1"]
        writer.put(entities.commit("bad", 0))
        writer.put(entities.commit("b", 1))
        await pass_time(LATE)
        assert journal.now == ["bad1", "b1"], "the others go on during the attempt"
        await journal.end("bad")
        await journal.end("b")
        await pass_time(LATE)
        await journal.end("bad")
    assert journal.stored == {"a": [1], "b": [1], "bad": [1, 2]}


async def test_what_an_object_staged_before_it_was_dropped_is_not_written_beside_an_append() -> None:
    journal = Gated()
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("z", 9))
        await turns()
        for name, shard in (("old", 0), ("other", 1)):
            writer.put(entities.commit(name, shard))
        entities.slots["old"].generation += 1
        await pass_time(LATE)
        assert journal.now == ["z1", "other1"]
        await journal.end("other")
        await journal.end("z")
    assert entities.ends[0] == ("old", 1, NotCommitted.SUPERSEDED)


async def test_what_follows_a_failed_commit_of_a_busy_shard_is_not_written() -> None:
    """The shard has a newer epoch: the commits that waited behind its append have no place any
    more.
    """
    journal = Gated()
    async with written(journal) as (writer, entities):
        for name, shard in (("a", 0), ("b", 1)):
            writer.put(entities.commit(name, shard))
            await pass_time(LATE)
        writer.put(entities.commit("a", 0))
        await pass_time(LATE)
        await journal.end("a", ShardsFenced(frozenset({(1, 0)})))
        await pass_time(LATE)
        assert journal.now == ["b1"]
        await journal.end("b")
    assert entities.ends == [
        ("a", 1, NotCommitted.FENCED), ("a", 2, NotCommitted.SUPERSEDED), ("b", 1, None)
    ]  # fmt: skip


async def test_nothing_is_begun_beside_an_append_without_the_lease() -> None:
    journal, entities = Gated(), Entities()
    valid = [True]
    writer = JournalWriter(journal, lambda: valid[0])  # type: ignore[arg-type] # no more of a journal is needed
    task = asyncio.ensure_future(writer.run())
    writer.put(entities.commit("a", 0))
    await turns()
    valid[0] = False
    writer.put(entities.commit("b", 1))
    await pass_time(LATE)
    assert journal.now == ["a1"]
    valid[0] = True
    writer.resume()
    await turns()
    assert journal.now == ["a1", "b1"]
    task.cancel()


async def test_one_connection_has_one_append_under_way() -> None:
    journal = Gated(1)
    async with written(journal) as (writer, entities):
        writer.put(entities.commit("a", 0))
        await turns()
        for number in range(2 * MAX_ROWS):
            writer.put(entities.commit(f"e{number}-", number + 1))
        await pass_time(60)
        assert journal.now == ["a1"]
        await journal.end("a")
        await journal.end("e0-")
        await journal.end(f"e{MAX_ROWS}-")
    assert len(entities.ends) == 1 + 2 * MAX_ROWS


async def test_a_long_backlog_of_a_busy_shard_is_not_looked_through_for_each_commit() -> None:
    """A look costs as much as what waits."""
    looks = [0]

    class Counting(Commit):
        @property
        def key(self) -> tuple[int, int]:
            looks[0] += 1
            return super().key

        def resolved(self, why: NotCommitted | None, detail: str = "") -> None: ...

    journal, entities = Gated(2), Entities()
    slot = Resident("a", Shard("shop.Cart", 0, 1, Resident))
    async with written(journal) as (writer, _):
        writer.put(entities.commit("a", 0))
        await pass_time(LATE)
        for number in range(2000):
            writer.put(Counting(slot, [event_row(1, "a", number + 2)]))
            await asyncio.sleep(0)
        await pass_time(LATE)
        assert journal.now == ["a1"]
        assert looks[0] < 5 * 2000
