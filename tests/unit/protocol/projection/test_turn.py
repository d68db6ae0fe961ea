"""A turn of a projection: what it asks of the database, and what it leaves alone."""

from collections.abc import Mapping
from typing import Any

import pytest

from sharding_app.protocol.projection.requests import (
    Change,
    Changes,
    Feed,
    FillKey,
    Found,
    Held,
    Keys,
    Position,
    PutHeld,
    ReadDue,
    ReadErased,
    ReadEvents,
    ReadFilled,
    ReadHeld,
    ReadKeys,
    Request,
    Save,
    Span,
    StoredEvent,
    Take,
    Taken,
    TellErased,
)
from sharding_app.protocol.projection.slices import slice_of
from sharding_app.protocol.projection.turn import SAVE_SECONDS, Limits, Outcome, Turn, divided, joined, turn
from sharding_app.protocol.projection.view import View

OLD, NEW = View(5, 5), View(9, 9)


def at(first: int, last: int, **fields: Any) -> Position:
    return Position(first, last, OLD, **fields)


def play(work: Turn, answers: Mapping[type, Any]) -> tuple[list[Request], Outcome]:
    """Answer each request by its type; return the requests and what the turn has done."""
    asked: list[Request] = []
    answer: Any = None
    while True:
        try:
            asked.append(work.send(answer))
        except StopIteration as end:
            return asked, end.value
        answer = answers.get(type(asked[-1]))


def follow(
    *changes: Change,
    position: Position | None = None,
    others: bool = False,
    holds: bool = False,
    age: float = 0.0,
) -> tuple[list[type], list[Request]]:
    """Take a turn of a part that is not filling; `others`: changes of other slices are there."""
    events = [
        StoredEvent(each.type_id, each.entity, number, "", 1, b"", None)
        for each in changes
        for number in range(each.first, each.last + 1)
    ]
    asked, _ = play(
        turn(0, 9, [1], Limits()),
        {
            Take: Taken([position or at(0, 9)], paused=False, holds=holds, age=age),
            Changes: Found(NEW, None, list(changes), any=others or bool(changes)),
            ReadDue: [],
            ReadErased: [],
            ReadEvents: events,
            ReadFilled: {},
            ReadHeld: [],
        },
    )
    return [type(each) for each in asked], asked


@pytest.mark.parametrize(
    ("there", "mine", "others"),
    [
        ([at(0, 9)], [at(0, 9)], []),
        ([at(0, 4), at(5, 9)], [at(0, 4), at(5, 9)], []),
        ([at(0, 19)], [at(0, 9)], [at(10, 19)]),
    ],
)
def test_positions_are_divided_at_the_ends_of_a_part(
    there: list[Position], mine: list[Position], others: list[Position]
) -> None:
    assert divided(there, 0, 9) == (mine, others)


def test_a_part_in_the_middle_leaves_what_is_on_both_sides() -> None:
    assert divided([at(0, 19)], 5, 9) == ([at(5, 9)], [at(0, 4), at(10, 19)])


@pytest.mark.parametrize("there", [[at(0, 8)], [at(1, 9)], [at(0, 4), at(6, 9)], []])
def test_a_part_without_all_its_positions_waits_for_those_that_divide_or_join_them(
    there: list[Position],
) -> None:
    asked, outcome = play(turn(0, 9, [1], Limits()), {Take: Taken(there, paused=False, holds=False, age=0.0)})
    assert (asked, outcome) == ([Take(0, 9)], Outcome(more=True))


def test_events_are_counted_once_however_often_positions_are_divided() -> None:
    """Counted in each piece, they would grow beyond what the column takes."""
    there = [at(0, 127, events=6)]
    for _ in range(100):
        for first, last in ((0, 42), (43, 84), (85, 127), (0, 63), (64, 127)):
            mine, others = divided(there, first, last)
            there = joined([*mine, *others])
    assert there == [at(0, 127, events=6)]


def test_neighbours_are_joined_if_they_have_come_equally_far() -> None:
    assert joined([at(5, 9, turn=3, events=4), at(0, 4, turn=7, events=2)]) == [at(0, 9, turn=7, events=6)]
    assert joined([at(0, 4, turn=3), at(5, 9, turn=7)]) == [at(0, 9, turn=7)], "a turn never goes back"
    for apart in (at(6, 9), at(5, 9, fill_type=1), at(5, 9, fill_until=8), at(5, 9)._replace(view=NEW)):
        assert joined([at(0, 4), apart]) == [at(0, 4), apart]


@pytest.mark.parametrize(
    ("others", "holds", "age", "saved"),
    [
        (True, False, SAVE_SECONDS, True),
        (True, False, SAVE_SECONDS - 0.1, False),
        (False, True, SAVE_SECONDS, True),
        (False, True, SAVE_SECONDS - 0.1, False),
        (False, False, SAVE_SECONDS, False),
    ],
)
def test_a_position_with_nothing_new_is_written_only_from_time_to_time(
    others: bool, holds: bool, age: float, saved: bool
) -> None:
    asked, _ = follow(others=others, holds=holds, age=age)
    assert (Save in asked) == saved


def test_new_events_are_fed_and_their_position_is_written() -> None:
    asked, requests = follow(Change(7, 1, "a", 3, 1, 2))
    assert asked == [Take, Changes, ReadEvents, ReadErased, Feed, Save]
    assert requests[2] == ReadEvents([Span(1, "a", 1, 2)], Limits().chunk)
    assert requests[-1] == Save([Position(0, 9, NEW, turn=1, events=2)])


def test_only_changes_after_a_fill_are_compared_with_it() -> None:
    filled = at(0, 9, fill_until=20)
    assert ReadFilled in follow(Change(7, 1, "a", 3, 1, 2), position=filled)[0]
    assert ReadFilled not in follow(Change(7, 1, "a", 3, 1, 2))[0]
    assert ReadFilled not in follow(position=filled)[0]


def test_an_entity_whose_erasure_fails_waits_with_its_next_life() -> None:
    asked, outcome = play(
        turn(0, 9, [1], Limits(), careful=True),
        {
            Take: Taken([at(0, 9)], paused=False, holds=False, age=0.0),
            Changes: Found(
                NEW, None, [Change(7, 1, "a", 3, 1, 2, erased=True), Change(8, 1, "a", 3, 1, 1)], any=True
            ),
            TellErased: "no room",
        },
    )
    assert [type(each) for each in asked] == [Take, Changes, TellErased, PutHeld, Save]
    assert asked[3] == PutHeld(Held(1, "a", slice_of("a"), 0, failures=1, delay=1.0, error="no room"))
    assert outcome.failed == 1


def tries_again(held: Held, **answers: object) -> tuple[list[Request], Outcome]:
    """Take a turn with nothing new, in which an entity that has failed is due."""
    return play(
        turn(0, 9, [1], Limits()),
        {
            Take: Taken([at(0, 9)], paused=False, holds=True, age=0.0),
            ReadDue: [held],
            ReadErased: [],
            Changes: Found(NEW, None, [], any=False),
            TellErased: answers.get("told"),
            ReadEvents: answers.get("events", []),
        },
    )


def fill(there: list[StoredEvent], *keys: FillKey) -> tuple[list[Request], Outcome]:
    """Take a turn of a first fill that has found these entities, and then reads these events."""
    return play(
        turn(0, 9, [1], Limits()),
        {
            Take: Taken([at(0, 9, fill_type=1)], paused=False, holds=False, age=0.0),
            ReadKeys: Keys(NEW, list(keys), None),
            ReadErased: [],
            ReadEvents: there,
        },
    )


@pytest.mark.parametrize("left", [[4, 5], [5]])
def test_a_fill_takes_an_entity_as_it_is_left_by_a_trim_between_its_reads(left: list[int]) -> None:
    there = [StoredEvent(1, "a", number, "", 1, b"", None) for number in left]
    asked, outcome = fill(there, FillKey("a", slice_of("a"), 1, 5))
    assert not any(isinstance(each, PutHeld) for each in asked)
    assert (outcome.events, outcome.failed) == (len(left), 0)


def test_a_fill_passes_over_an_entity_that_has_gone_into_the_archive_meanwhile() -> None:
    kept = StoredEvent(1, "b", 1, "", 1, b"", None)
    both = FillKey("a", slice_of("a"), 1, 5), FillKey("b", slice_of("b"), 1, 1)
    for there, keys in (([kept], both), ([], both[:1])):
        asked, outcome = fill(there, *keys)
        assert not any(isinstance(each, PutHeld) for each in asked)
        assert (outcome.events, outcome.failed) == (len(there), 0)


def test_a_fill_parks_an_entity_with_a_hole_in_its_history() -> None:
    there = [StoredEvent(1, "a", number, "", 1, b"", None) for number in (2, 3, 5)]
    asked, outcome = fill(there, FillKey("a", slice_of("a"), 1, 5))
    (put,) = [each.held for each in asked if isinstance(each, PutHeld)]
    assert (put.next, put.parked, outcome.failed) == (4, True, 1)


def test_an_entity_whose_next_event_is_missing_is_parked() -> None:
    held = Held(1, "a", slice_of("a"), 3, failures=1)
    asked, outcome = tries_again(held, events=[StoredEvent(1, "a", 5, "", 1, b"", None)])
    (put,) = [each.held for each in asked if isinstance(each, PutHeld)]
    assert (put.next, put.parked, outcome.failed) == (3, True, 1)
    assert "events from 3 on are not in the journal" in put.error


def test_an_erasure_that_fails_again_waits_longer() -> None:
    held = Held(1, "a", slice_of("a"), 0, failures=1, delay=1.0)
    asked, outcome = tries_again(held, told="no room")
    (put,) = [each.held for each in asked if isinstance(each, PutHeld)]
    assert (put.next, put.failures, put.delay, outcome.failed) == (0, 2, 2.0, 1)
    assert not any(isinstance(each, ReadEvents) for each in asked), "its next life waits behind it"


@pytest.mark.parametrize(("waits_at", "goes_on_at"), [(None, None), (2, None), (5, 3)])
def test_an_entity_that_waits_behind_an_erasure_goes_on_with_what_comes_after(
    waits_at: int | None, goes_on_at: int | None
) -> None:
    held = [] if waits_at is None else [Held(1, "a", slice_of("a"), waits_at, failures=1)]
    asked, _ = play(
        turn(0, 9, [1], Limits()),
        {
            Take: Taken([at(0, 9)], paused=False, holds=True, age=0.0),
            ReadDue: [],
            ReadHeld: held,
            Changes: Found(NEW, None, [Change(7, 1, "a", 3, 3, 6, erased=True)], any=True),
        },
    )
    put = [each.held.next for each in asked if isinstance(each, PutHeld)]
    assert put == ([] if goes_on_at is None else [goes_on_at])
