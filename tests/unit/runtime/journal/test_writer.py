"""The journal's writer and a server that answers with errors: it is not flooded, and one entity
does not stop the others.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import datetime

import pytest

from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable, RowRefused, ShardsLocked
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal.backlog import MAX_ROWS
from sharding_app.runtime.journal.commits import LARGE_BYTES, Commit, NotCommitted, Resident
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.testing.clock import TravelLoop
from tests.support.given import event_row

pytestmark = pytest.mark.asyncio

Trouble = Callable[[Sequence[EventRow]], Exception | None]


class Scripted:
    """A journal that fails as `trouble` says; what is appended must follow without a gap."""

    connections = 1

    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble
        self.stored: dict[str, list[int]] = {}
        self.attempts: list[float] = []
        self.rows: list[int] = []
        "How many each attempt had."

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        self.attempts.append(asyncio.get_running_loop().time())
        self.rows.append(len(rows))
        error = self.trouble(rows)
        if error is not None:
            raise error
        for row in rows:
            numbers = self.stored.setdefault(row.entity, [])
            assert row.seq == len(numbers) + 1, "a gap, or twice the same"
            numbers.append(row.seq)
        return None

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        return rows[0].seq in self.stored.get(rows[0].entity, ())


class Entities:
    """Makes commits of numbered events, and notes what becomes of them."""

    def __init__(self) -> None:
        self.shard = Shard("shop.Cart", 0, 1, Resident)
        self.slots: dict[str, Resident] = {}
        self.ends: list[tuple[str, int, NotCommitted | None]] = []

    def commit(self, entity: str, shard: int = 0) -> Commit:
        slot = self.slots.setdefault(entity, Resident(entity, self.shard))
        slot.seq += 1
        seq, ends = slot.seq, self.ends

        class Noted(Commit):
            def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
                ends.append((entity, seq, why))
                if why is not None and self.generation == slot.generation:
                    slot.generation += 1

        return Noted(slot, [event_row(1, entity, seq, shard=shard)])


def error(*args: object) -> Exception:
    return JournalUnavailable("could not extend file (53100)", answered=True)


def bad(*names: str) -> Trouble:
    """The server fails what holds a row of these."""
    return lambda rows: error() if any(row.entity in names for row in rows) else None


@contextlib.asynccontextmanager
async def written(journal: Scripted) -> AsyncIterator[JournalWriter]:
    writer = JournalWriter(journal, lambda: True)  # type: ignore[arg-type] # no more of a journal is needed
    task = asyncio.ensure_future(writer.run())
    try:
        yield writer
    finally:
        task.cancel()


async def pass_time(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    await loop.travel(seconds)


async def test_what_waits_together_is_one_append() -> None:
    """Commands in parts, or a batch in parts, would be there in part when a node dies between two
    of them.
    """
    appended: list[list[tuple[str, int]]] = []

    def noted(rows: Sequence[EventRow]) -> None:
        appended.append([(row.entity, row.seq) for row in rows])

    journal, entities = Scripted(noted), Entities()
    async with written(journal) as writer:
        for name in ("a", "b", "a"):
            writer.put(entities.commit(name))
        await pass_time(1)
    assert appended == [[("a", 1), ("b", 1), ("a", 2)]]


async def test_nothing_is_appended_without_the_lease() -> None:
    journal, entities = Scripted(lambda rows: None), Entities()
    valid = [False]
    writer = JournalWriter(journal, lambda: valid[0])  # type: ignore[arg-type] # no more of a journal is needed
    task = asyncio.ensure_future(writer.run())
    writer.put(entities.commit("a"))
    await pass_time(5)
    assert (journal.attempts, entities.ends) == ([], [])
    valid[0] = True
    writer.resume()
    await pass_time(1)
    assert entities.ends == [("a", 1, None)]
    task.cancel()


async def test_errors_of_the_server_are_not_answered_by_a_flood() -> None:
    journal, entities = Scripted(error), Entities()
    async with written(journal) as writer:
        for number in range(50):
            writer.put(entities.commit(f"e{number}"))
        await pass_time(60)
        assert len(journal.attempts) < 300, "a few each second"
        first, second, third = journal.attempts[:3]
        assert second - first == pytest.approx(0.05, abs=0.02)
        assert third - second == pytest.approx(0.1, abs=0.02)
        journal.trouble = lambda rows: None
        await pass_time(2)
    assert journal.stored == {f"e{number}": [1] for number in range(50)}
    assert sorted(entities.ends) == sorted((f"e{number}", 1, None) for number in range(50))
    assert writer.waiting == 0


async def test_a_connection_that_is_lost_is_tried_again_at_once_and_then_less_often() -> None:
    journal = Scripted(lambda rows: JournalUnavailable("lost") if len(journal.attempts) < 4 else None)
    entities = Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("a"))
        await pass_time(1)
    gaps = [later - former for former, later in zip(journal.attempts, journal.attempts[1:], strict=False)]
    assert gaps == pytest.approx([0, 0.05, 0.1], abs=0.02)
    assert entities.ends == [("a", 1, None)]


async def test_what_became_of_an_append_is_asked_before_it_is_made_again() -> None:
    """Its answer is lost, and it may be there: appended once more it would be refused, and its
    commands be told so.
    """

    class AnswersAreLost(Scripted):
        async def append(
            self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
        ) -> datetime | None:
            await super().append(rows)
            raise JournalUnavailable("the connection was lost")

    journal, entities = AnswersAreLost(lambda rows: None), Entities()
    async with written(journal) as writer:
        for name in ("a", "b"):
            writer.put(entities.commit(name))
            await pass_time(1)
    assert journal.stored == {"a": [1], "b": [1]}
    assert entities.ends == [("a", 1, None), ("b", 1, None)]
    assert len(journal.attempts) == 2


async def test_one_entity_that_the_server_fails_does_not_stop_the_others() -> None:
    journal, entities = Scripted(bad("bad")), Entities()
    names = [f"e{number}" for number in range(20)]
    async with written(journal) as writer:
        for name in [*names[:10], "bad", *names[10:]]:
            writer.put(entities.commit(name))
        await pass_time(5)
        assert journal.stored == {name: [1] for name in names}
        for name in ["bad", *names]:
            writer.put(entities.commit(name))
        await pass_time(0.01)
        assert journal.stored == {name: [1, 2] for name in names}, "they are not held up again"
        assert writer.waiting == 2
        journal.trouble = bad()
        await pass_time(1)
        assert journal.stored["bad"] == [1, 2], "in their order"
        assert writer.waiting == 0
    assert len(entities.ends) == len(set(entities.ends)) == 42
    assert {why for _, _, why in entities.ends} == {None}


@pytest.mark.parametrize("place", [0, 100, 199])
async def test_the_others_wait_for_no_pause_between_the_parts(place: int) -> None:
    """The same rows are asked about again after a pause. A part is another question."""
    journal, entities = Scripted(bad(f"e{place}")), Entities()
    names = [f"e{number}" for number in range(200)]
    async with written(journal) as writer:
        for name in names:
            writer.put(entities.commit(name))
        await pass_time(0.4)
        assert {*names} - {*journal.stored} == {f"e{place}"}
        assert writer.waiting == 1


async def test_several_that_wait_go_through_one_after_the_other() -> None:
    journal, entities = Scripted(bad("x", "y", "z")), Entities()
    async with written(journal) as writer:
        for name in ("a", "x", "y", "b", "z", "c"):
            writer.put(entities.commit(name))
        await pass_time(5)
        assert sorted(journal.stored) == ["a", "b", "c"]
        journal.trouble = bad("y")
        await pass_time(2)
        assert sorted(journal.stored) == ["a", "b", "c", "x", "z"]
        assert writer.waiting == 1


async def test_many_that_wait_go_through_in_few_appends_once_the_server_has_room() -> None:
    journal, entities = Scripted(error), Entities()
    names = [f"e{number}" for number in range(200)]
    async with written(journal) as writer:
        for name in names:
            writer.put(entities.commit(name))
        await pass_time(5)
        assert entities.ends == []
        journal.trouble = bad("e7")
        before = len(journal.attempts)
        await pass_time(10)
        assert {name for name, _, _ in entities.ends} == {*names} - {"e7"}
        tried_alone = 20  # at most each half of a second
        assert len(journal.attempts) - before < 30 + tried_alone
        journal.trouble = lambda rows: None
        await pass_time(1)
        assert entities.ends[-1] == ("e7", 1, None)


async def test_an_attempt_at_many_that_wait_has_no_more_rows_than_any_other() -> None:
    journal, entities = Scripted(error), Entities()
    names = [f"e{number}" for number in range(100)]
    async with written(journal) as writer:
        for name in names * 20:
            writer.put(entities.commit(name))
        await pass_time(5)
        journal.trouble = lambda rows: None
        await pass_time(2)
        assert journal.stored == {name: list(range(1, 21)) for name in names}
    assert max(journal.rows) <= MAX_ROWS


async def test_large_rows_go_in_appends_of_fewer() -> None:
    """A hundred states of a megabyte would be held twice, and wait for each other."""
    journal, entities = Scripted(lambda rows: None), Entities()
    async with written(journal) as writer:
        for number in range(100):
            commit = entities.commit(f"e{number}")
            commit.rows = [row._replace(payload=b"0" * 1_000_000) for row in commit.rows]
            writer.put(commit)
        await pass_time(1)
        assert sum(journal.rows) == 100
        assert max(journal.rows) == MAX_ROWS // (1 + 1_000_000 // LARGE_BYTES)
        for number in range(100):
            writer.put(entities.commit(f"f{number}"))
        await pass_time(1)
    assert journal.rows[-1] == 100, "small ones go together"


async def test_what_waits_of_an_object_that_is_thrown_away_is_never_written() -> None:
    journal, entities = Scripted(bad("bad")), Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("bad"))
        writer.put(entities.commit("good"))
        await pass_time(3)
        entities.slots["bad"].generation += 1
        await pass_time(1)
        journal.trouble = bad()
        await pass_time(1)
        assert writer.waiting == 0
    assert journal.stored == {"good": [1]}
    assert entities.ends == [("good", 1, None), ("bad", 1, NotCommitted.SUPERSEDED)]


class SlowToFail(Scripted):
    """Each attempt that fails takes its time, as one that waits for a lock does."""

    seconds = 5.0

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        if self.trouble(rows) is not None:
            await asyncio.sleep(self.seconds)
        return await super().append(rows, changes)


async def fails_beside_others(writer: JournalWriter, entities: Entities, *names: str) -> None:
    """Have entities fail twice while the server takes another one: it is they who are to blame."""
    for name in names:
        writer.put(entities.commit(name))
    await pass_time(5.2 * len(names) + 5)
    writer.put(entities.commit("good"))
    await pass_time(20 * len(names))
    assert writer.waiting == len(names)


async def test_entities_that_failed_with_all_others_are_tried_again_soon() -> None:
    """The table was locked, say: no entity is to blame for it."""
    journal, entities = SlowToFail(error), Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("a"))
        await pass_time(0.1)
        writer.put(entities.commit("b"))
        await pass_time(12)
        assert entities.ends == []
        journal.trouble = bad()
        await pass_time(6.5)
    assert sorted(entities.ends) == [("a", 1, None), ("b", 1, None)]


async def test_an_entity_that_fails_beside_others_rests_for_ten_times_as_long() -> None:
    journal, entities = SlowToFail(bad("bad")), Entities()
    async with written(journal) as writer:
        await fails_beside_others(writer, entities, "bad")
        attempts = len(journal.attempts)
        await pass_time(30)
        assert len(journal.attempts) == attempts
        journal.trouble = bad()
        await pass_time(30)
    assert entities.ends == [("good", 1, None), ("bad", 1, None)]


async def test_what_waits_of_an_object_that_is_thrown_away_does_not_rest_for_long() -> None:
    """Its shard stops when the outcome of all its commits is known, and begins nowhere before."""
    journal, entities = SlowToFail(bad("bad")), Entities()
    async with written(journal) as writer:
        await fails_beside_others(writer, entities, "bad")
        attempts = len(journal.attempts)
        entities.slots["bad"].generation += 1
        await pass_time(1)
        assert entities.ends[1:] == [("bad", 1, NotCommitted.SUPERSEDED)]
        assert writer.waiting == 0
        await pass_time(100)
    assert len(journal.attempts) == attempts


async def test_the_rest_of_an_entity_is_not_cut_short_by_another_that_is_thrown_away() -> None:
    journal, entities = SlowToFail(bad("bad", "worse")), Entities()
    async with written(journal) as writer:
        await fails_beside_others(writer, entities, "bad", "worse")
        attempts = len(journal.attempts)
        entities.slots["worse"].generation += 1
        await pass_time(5)
        assert entities.ends[1:] == [("worse", 1, NotCommitted.SUPERSEDED)]
        assert len(journal.attempts) == attempts
        journal.trouble = bad()
        await pass_time(60)
    assert entities.ends[-1] == ("bad", 1, None)


async def test_an_object_that_is_thrown_away_during_an_attempt_waits_for_nothing_after_it() -> None:
    journal, entities = SlowToFail(bad("bad")), Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("bad"))
        await pass_time(3)
        entities.slots["bad"].generation += 1
        await pass_time(2.1)
        assert entities.ends == [("bad", 1, NotCommitted.SUPERSEDED)]
        assert writer.waiting == 0


async def test_without_the_lease_what_was_thrown_away_is_given_up_all_the_same() -> None:
    journal, entities = SlowToFail(bad("bad")), Entities()
    valid = [True]
    writer = JournalWriter(journal, lambda: valid[0])  # type: ignore[arg-type] # no more of a journal is needed
    task = asyncio.ensure_future(writer.run())
    await fails_beside_others(writer, entities, "bad")
    valid[0] = False
    entities.slots["bad"].generation += 1
    await pass_time(1)
    assert entities.ends[1:] == [("bad", 1, NotCommitted.SUPERSEDED)]
    task.cancel()


async def test_what_was_put_before_its_object_was_thrown_away_is_never_written() -> None:
    """Its numbers are those of the object that is read again."""
    journal, entities = Scripted(lambda rows: None), Entities()
    async with written(journal) as writer:
        for name in ("old", "other"):
            writer.put(entities.commit(name))
        entities.slots["old"].generation += 1
        await pass_time(1)
    assert journal.stored == {"other": [1]}
    assert entities.ends == [("old", 1, NotCommitted.SUPERSEDED), ("other", 1, None)]


async def test_a_refused_row_waits_for_its_turn_behind_one_that_the_server_fails() -> None:
    """Its failure would throw away what lies before it and may still be stored."""

    def trouble(rows: Sequence[EventRow]) -> Exception | None:
        refused = [index for index, row in enumerate(rows) if row.seq == 2]
        return RowRefused("no", refused[0]) if refused else bad("a")(rows)

    journal, entities = Scripted(trouble), Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("a"))
        writer.put(entities.commit("a"))
        await pass_time(5)
        assert entities.ends == []
        journal.trouble = lambda rows: trouble(rows) if rows[-1].seq == 2 else None
        await pass_time(2)
        assert writer.waiting == 0
    assert entities.ends == [("a", 1, None), ("a", 2, NotCommitted.REFUSED)]


class Locking(Scripted):
    """The row of one entity's shard is locked at first, and free as soon as the writer asks who
    holds it. Appends take their time.
    """

    def __init__(self, trouble: Trouble, entity: str) -> None:
        super().__init__(trouble)
        self.locked_entity = entity
        self.looks = 0

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        error = self.trouble(rows)
        if error is None and not self.looks and any(row.entity == self.locked_entity for row in rows):
            raise ShardsLocked(
                {(row.type_id, row.shard): "" for row in rows if row.entity == self.locked_entity}
            )
        if error is None:
            await asyncio.sleep(0.5)
        return await super().append(rows)

    async def locked(self, shards: Collection[tuple[int, int]]) -> dict[tuple[int, int], str]:
        self.looks += 1
        return {}


async def test_what_waited_for_a_locked_shard_goes_before_what_a_split_batch_holds_of_it() -> None:
    """The row is free again while the first part of the batch is still being appended."""
    journal = Locking(
        lambda rows: next((RowRefused("no", n) for n, r in enumerate(rows) if r.entity == "bad"), None), "a"
    )
    entities = Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("a"))
        writer.put(entities.commit("b", shard=1))
        writer.put(entities.commit("bad", shard=1))
        writer.put(entities.commit("a"))
        await pass_time(5)
        assert journal.looks == 1
        assert writer.waiting == 0
    assert journal.stored == {"a": [1, 2], "b": [1]}
    assert [end for end in entities.ends if end[0] == "a"] == [("a", 1, None), ("a", 2, None)]


async def test_a_refused_row_waits_for_its_turn_behind_one_whose_shard_is_locked() -> None:
    def trouble(rows: Sequence[EventRow]) -> Exception | None:
        return next((RowRefused("no", index) for index, row in enumerate(rows) if row.seq == 2), None)

    journal, entities = Locking(trouble, "a"), Entities()
    async with written(journal) as writer:
        writer.put(entities.commit("a"))
        writer.put(entities.commit("a"))
        await pass_time(5)
        assert writer.waiting == 0
    assert entities.ends == [("a", 1, None), ("a", 2, NotCommitted.REFUSED)]
