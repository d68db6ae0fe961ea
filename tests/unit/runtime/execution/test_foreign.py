"""The questions of a target's home about rows and marks in other journals."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

import pytest

from sharding_app import Rejected
from sharding_app.errors import (
    EntityFailed,
    InvalidCall,
    NotSerializable,
    PartiallyApplied,
    ShardingError,
    Unavailable,
    from_wire,
    to_wire,
)
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.protocol.delivery.foreign import Standing
from sharding_app.protocol.delivery.outcome import GONE, NOT_PARKED, TAKEN
from sharding_app.protocol.messages import Deliver, Delivery
from sharding_app.runtime.delivery.rows import kind_of
from sharding_app.runtime.execution import foreign
from sharding_app.runtime.execution.foreign import ForeignMessages
from tests.support.slack import SLACK
from tests.unit.runtime.execution.nasty import ERRORS

pytestmark = pytest.mark.asyncio


class Rows:
    """A journal with rows, or with marks."""

    def __init__(self, *rows: str, marks: dict[str, bool] | None = None) -> None:
        self.rows = rows
        self.marks = marks or {}
        self.asked: list[list[str]] = []
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()

    async def standing(self, messages: Collection[str], *, secured: bool = False) -> dict[str, Standing]:
        self.asked.append(list(messages))
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        return {each: Standing(False, 0.0) for each in messages if each in self.rows}

    async def marked(self, messages: Collection[str]) -> dict[str, bool]:
        if self.error is not None:
            raise self.error
        return {each: self.marks[each] for each in messages if each in self.marks}


class Command:
    def __init__(self, name: str, shard: int = 0) -> None:
        self.message = message(name, shard=shard)
        self.is_over = False


def message(name: str, journal: str = "b", *, shard: int = 0) -> Deliver:
    return Deliver("T", shard, 1, "e", 1, "c", b"", delivery=Delivery(name, journal=journal))


def made(here: Rows, **others: Rows) -> ForeignMessages:
    tasks = set()

    def spawn(job: Coroutine[Any, Any, None]) -> None:
        tasks.add(asyncio.ensure_future(job))

    def other(name: str) -> Journal:
        if name not in others:
            raise JournalUnavailable("it is not used")
        found: Any = others[name]
        return found  # type: ignore[no-any-return]

    journal: Any = here
    return ForeignMessages("", journal, other, spawn)


async def test_a_message_of_this_journal_is_none() -> None:
    found = made(Rows())
    assert found.journal_of(message("m", "")) is None
    assert found.journal_of(message("m", "b")) == "b"
    assert found.journal_of(Deliver("T", 0, 1, "e", 1, "c", b"")) is None


async def test_questions_that_come_while_one_is_asked_go_together() -> None:
    rows = Rows("a", "b", "c", "d")
    found = made(Rows(), b=rows)
    rows.answers.clear()
    asked = [asyncio.ensure_future(found.look(message(each), "b")) for each in "ab"]
    await asyncio.sleep(0.01)
    asked += [asyncio.ensure_future(found.look(message(each), "b")) for each in "cdxc"]
    await asyncio.sleep(0.01)
    assert rows.asked == [["a", "b"]]
    rows.answers.set()
    assert await asyncio.gather(*asked) == [None, None, None, None, GONE, None]
    assert rows.asked == [["a", "b"], ["c", "d", "x"]]


async def test_a_journal_that_does_not_answer_holds_up_no_other() -> None:
    away, there = Rows("a"), Rows("a")
    away.answers.clear()
    found = made(Rows(), b=away, c=there)
    waiting = asyncio.ensure_future(found.look(message("a"), "b"))
    assert await found.look(message("a", "c"), "c") is None
    away.error = JournalUnavailable("away")
    away.answers.set()
    assert isinstance(await waiting, Unavailable)
    away.error = None
    assert await found.look(message("a"), "b") is None


async def test_a_journal_that_is_not_used_gives_no_answer() -> None:
    """Its owner's home tries again: nothing of the delivery is under way."""
    answer = await made(Rows()).look(message("a"), "b")
    assert isinstance(answer, Unavailable)
    assert answer.stored == "nothing"


async def test_a_question_whose_asker_has_ended_disturbs_no_other() -> None:
    rows = Rows("a", "b")
    rows.answers.clear()
    found = made(Rows(), b=rows)
    ended = asyncio.ensure_future(found.look(message("a"), "b"))
    other = asyncio.ensure_future(found.look(message("b"), "b"))
    await asyncio.sleep(0.01)
    ended.cancel()
    rows.answers.set()
    assert await other is None


async def test_a_bug_in_a_question_ends_no_later_one() -> None:
    rows = Rows("a", "b", "c")
    rows.answers.clear()
    found = made(Rows(), b=rows)
    first = asyncio.ensure_future(found.look(message("a"), "b"))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(found.look(message("b"), "b"))
    await asyncio.sleep(0.01)
    rows.error = ZeroDivisionError("a bug")
    rows.answers.set()
    await asyncio.wait([first])
    rows.error = None
    async with asyncio.timeout(10 * SLACK):
        await asyncio.wait([second])
        assert await found.look(message("c"), "b") is None


async def test_a_message_is_in_hand_until_all_its_commands_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foreign, "LIST_ANEW", 3)
    found = made(Rows())
    touched: list[int] = []
    found.took = touched.append
    first, second, other = Command("m"), Command("m"), Command("n", shard=4)
    for each in (first, second, other):
        found.hold(each)
    assert touched == [0, 0, 4]
    first.is_over = other.is_over = True
    assert found.is_in_hand("m")
    assert not found.is_in_hand("n")
    assert not found.is_in_hand("never")
    found.hold(Command("o", shard=7))
    assert found._in_hand.keys() == {"m", "o"}
    assert found.shards_in_hand() == {0, 7}
    second.is_over = True
    assert not found.is_in_hand("m")


class SoldOut(Rejected):
    retryable = True


FAILURES: list[ShardingError] = [Rejected("no"), SoldOut("not now"), EntityFailed("broken")]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_a_failure_is_told_if_there_is_no_mark(error: ShardingError) -> None:
    found = made(Rows(marks={"whole": False, "partial": True}))
    assert found.must_look(message("m"), error)
    assert not found.must_look(message("m", ""), error)
    assert await found.judged(message("m"), error) is error
    assert await found.judged(message("whole"), error) == TAKEN
    partly = await found.judged(message("partial"), error)
    assert isinstance(partly, PartiallyApplied)
    assert partly.params[NOT_PARKED]
    assert kind_of(partly, among_others=True).name == "PARTLY"


async def test_a_part_of_this_delivery_is_to_be_parked() -> None:
    judged = await made(Rows()).judged(message("m"), PartiallyApplied("a part", params={"error": "E"}))
    assert isinstance(judged, PartiallyApplied)
    assert judged.params == {"error": "E", NOT_PARKED: True}


async def test_a_failure_that_is_delivered_again_anyway_needs_no_look() -> None:
    assert not made(Rows()).must_look(message("m"), Unavailable("later"))


async def test_nothing_is_told_while_the_journal_does_not_say_whether_there_is_a_mark() -> None:
    rows = Rows()
    rows.error = JournalUnavailable("away")
    judged = await made(rows).judged(message("m"), Rejected("no"))
    assert isinstance(judged, ShardingError)
    assert kind_of(judged, among_others=True).name == "UNKNOWN"


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("two nodes died", code="poisonous"),
        InvalidCall("no such type here"),
        InvalidCall("no such shard", code="no_such_shard"),
        NotSerializable("more than a message carries", code="arguments_too_large"),
    ],
    ids=lambda error: error.code,
)
async def test_the_asking_side_judges_no_message_of_several_journals(error: ShardingError) -> None:
    """Only the home of a target looks for a mark, and not before an error after which the message
    is delivered again anyway, such as that of another entity that its handler has asked.
    """
    assert kind_of(error, among_others=True).name == "UNJUDGED"
    assert kind_of(error, among_others=False).name == "FAILED"
    told = from_wire(*to_wire(error))
    assert kind_of(told, among_others=True).name == ("UNJUDGED" if error.retryable else "FAILED")


async def test_a_rejection_that_the_targets_home_has_told_is_final_at_once() -> None:
    assert kind_of(from_wire(*to_wire(SoldOut("not now"))), among_others=True).name == "REJECTED"
    assert kind_of(SoldOut("not now"), among_others=True).name == "UNJUDGED"
    assert kind_of(SoldOut("not now"), among_others=False).name == "REJECTED"


async def test_a_question_that_is_cancelled_holds_up_no_later_one() -> None:
    class Cancels(Rows):
        async def standing(self, messages: Any, *, secured: bool = False) -> Any:
            found = await super().standing(messages, secured=secured)
            if len(self.asked) == 1:
                raise asyncio.CancelledError
            return found

    rows = Cancels("a", "b")
    found = made(Rows(), b=rows)
    rows.answers.clear()
    first = asyncio.ensure_future(found.look(message("a"), "b"))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(found.look(message("b"), "b"))
    await asyncio.sleep(0.01)
    rows.answers.set()
    await asyncio.wait([first])
    await asyncio.wait([second], timeout=1)
    assert second.done()


async def test_a_refusal_without_a_text_is_judged() -> None:
    here = Rows()
    here.error = JournalUnavailable("away")
    assert isinstance(await made(here).judged(message("a"), ERRORS["mute_text"]()), Unavailable)
