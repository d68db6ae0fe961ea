"""Decisions about messages whose rows lie in another journal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.delivery.foreign import (
    LEAST_AGE_SECONDS,
    MarkedShards,
    Search,
    Standing,
    TakenMark,
    before_the_handler,
)
from sharding_app.protocol.delivery.outcome import GONE, Outcome

OLD = LEAST_AGE_SECONDS
WAITS, PARKED = Standing(False, 0.0), Standing(True, 0.0)
A, B, C = (1, 0), (1, 1), (2, 0)


def mark(name: str, *, partial: bool = False, age: float = OLD, journal: str = "b") -> TakenMark:
    return TakenMark(name, 1, 0, journal, partial, age)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (WAITS, None),
        (None, GONE),
        (PARKED, GONE),
        (Standing(True, 3.0), GONE),
        (Standing(False, 3.0), Outcome("early", 3.0)),
    ],
)
def test_a_handler_runs_for_a_row_that_waits_alone(found: Standing | None, expected: Outcome | None) -> None:
    assert before_the_handler(found) == expected


@pytest.mark.parametrize(
    ("found", "partial", "goes"),
    [
        (None, False, True),
        (None, True, True),
        (WAITS, False, False),
        (WAITS, True, False),
        (PARKED, False, False),
        (PARKED, True, True),
    ],
)
def test_a_mark_goes_with_its_row(found: Standing | None, partial: bool, goes: bool) -> None:
    rows = {} if found is None else {"m": found}
    assert left_after([mark("m", partial=partial)], b=rows) == (["m"] if goes else [])
    assert left_after([mark("m", partial=partial)], b={}, c=rows) == (["m"] if goes else [])


def left_after(marks: list[TakenMark], **rows: dict[str, Standing]) -> list[str]:
    """Return what is left of a search in journals that have these rows."""
    search = Search(marks)
    for journal, messages in search.named().items():
        search.answer(messages, rows.get(journal))
    for _ in range(2):
        for journal in rows:
            search.answer(search.left(), rows[journal])
    return search.left()


def test_a_mark_of_a_message_in_hand_stays() -> None:
    search = Search([mark("m"), mark("n"), mark("o")._replace(shard=1)])
    assert search.spent(lambda each: each.id == "m") == {A: ["n"], B: ["o"]}


def test_marks_of_a_journal_that_has_not_answered_stay() -> None:
    marks = [mark("m"), mark("n", journal="c")]
    assert Search(marks).named() == {"b": ["m"], "c": ["n"]}
    assert left_after(marks, c={}) == ["n"]


def test_while_any_journal_has_not_answered_marks_stay() -> None:
    """The row may have moved there with its shard."""
    search = Search([mark("m"), mark("n", journal="c")])
    search.answer(["m"], {})
    search.answer(search.left(), None)
    assert search.left() == []
    assert search.spent(lambda _: False) == {}


def test_a_row_that_moves_while_journals_are_asked_is_found() -> None:
    """It lies in the journal that is asked last, and moves to the one that was asked first."""
    search = Search([mark("m")])
    search.answer(["m"], {})  # b: it has left
    search.answer(search.left(), {})  # a: it has not come yet
    assert search.left() == ["m"]
    search.answer(search.left(), {})  # c: it has left by now
    search.answer(search.left(), {"m": WAITS})  # a, once more
    assert search.left() == []


def test_a_young_mark_is_left_alone() -> None:
    """Its row was not asked for, so its absence says nothing."""
    search = Search([mark("m", age=OLD / 2), mark("n")])
    assert search.named() == {"b": ["n"]}
    assert search.left() == ["n"]


def test_all_shards_are_looked_at_until_a_look_finds_none() -> None:
    found, homes = MarkedShards(), {A: 1, B: 1, C: 1}
    assert found.begin(homes, ()) == [A, B, C]
    found.end([A, B, C], homes, {B})
    assert found.begin(homes, ()) == [B]
    found.end([B], homes, ())
    assert found.begin(homes, ()) == []


def test_a_shard_that_takes_a_message_is_looked_at_again() -> None:
    found, homes = MarkedShards(), {A: 1, B: 1}
    found.begin(homes, ())
    found.took(A)  # during the look, which may have been before
    found.end([A, B], homes, ())
    assert found.begin(homes, ()) == [A]
    found.end([A], homes, ())
    assert found.begin(homes, ()) == []
    found.took(B)
    assert found.begin(homes, ()) == [B]


def test_a_shard_that_is_about_to_make_a_mark_is_looked_at_again() -> None:
    found, homes = MarkedShards(), {A: 1}
    assert found.begin(homes, [A]) == [A]
    found.end([A], homes, ())
    assert found.begin(homes, ()) == [A]


def test_a_shard_that_comes_back_is_looked_at_again() -> None:
    """Its former home may have left marks."""
    found = MarkedShards()
    found.begin({A: 1}, ())
    found.end([A], {A: 1}, ())
    assert found.begin({}, ()) == []
    assert found.begin({A: 3}, ()) == [A]


def test_a_look_that_was_not_finished_is_repeated() -> None:
    found, homes = MarkedShards(), {A: 1, B: 1}
    found.begin(homes, ())
    found.end([A], homes, ())
    assert found.begin(homes, ()) == [B]


STEPS = st.lists(st.sampled_from(["hold", "commit", "begin", "read", "end"]), max_size=40)


@given(STEPS)
def test_no_mark_is_forgotten(steps: list[str]) -> None:
    """Commits fall between all parts of a look; a shard with a mark is looked at in the end."""
    found, homes = MarkedShards(), {A: 1}
    in_hand = marks = 0
    asked: list[tuple[int, int]] | None = None
    seen: set[tuple[int, int]] | None = None
    for step in steps:
        if step == "hold":
            in_hand += 1
            found.took(A)
        elif step == "commit" and in_hand:
            in_hand, marks = in_hand - 1, marks + 1
        elif step == "begin" and asked is None:
            asked, seen = found.begin(homes, [A] if in_hand else []), None
        elif step == "read" and asked is not None:
            seen = {A} if marks else set()
        elif step == "end" and asked is not None and seen is not None:
            found.end(asked, homes, seen)
            asked = None
    if asked is not None:
        found.end(asked, homes, {A} if marks else set())
    assert not marks or found.begin(homes, [A] if in_hand else []) == [A]
