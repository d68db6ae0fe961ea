"""Decisions about messages whose rows lie in another journal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.delivery.foreign import (
    LEAST_AGE_SECONDS,
    MarkedShards,
    Standing,
    TakenMark,
    asked_about,
    before_the_handler,
    spent,
)
from sharding_app.protocol.delivery.outcome import AWAY_SECONDS, GONE, Outcome

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
        (Standing(False, 0.0, is_away=True), Outcome("early", AWAY_SECONDS)),
        (Standing(True, 0.0, is_away=True), GONE),
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
    standing = {"b": {} if found is None else {"m": found}}
    assert spent([mark("m", partial=partial)], standing, lambda _: False) == ({A: ["m"]} if goes else {})


def test_a_mark_of_a_message_in_hand_stays() -> None:
    marks = [mark("m"), mark("n")]
    assert spent(marks, {"b": {}}, lambda each: each.id == "m") == {A: ["n"]}


def test_marks_of_a_journal_that_has_not_answered_stay() -> None:
    marks = [mark("m"), mark("n", journal="c")]
    assert asked_about(marks) == {"b": ["m"], "c": ["n"]}
    assert spent(marks, {"c": {}}, lambda _: False) == {A: ["n"]}


def test_a_young_mark_is_left_alone() -> None:
    """Its row was not asked for, so its absence says nothing."""
    marks = [mark("m", age=OLD / 2), mark("n")]
    assert asked_about(marks) == {"b": ["n"]}
    assert spent(marks, {"b": {}}, lambda _: False) == {A: ["n"]}


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
