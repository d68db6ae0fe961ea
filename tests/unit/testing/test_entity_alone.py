"""The test kit's way to test an entity alone."""

import pytest

from sharding_app import EntityFailed, EventSourced, InvalidCall, NotSerializable, Rejected, applies, command
from sharding_app.testing.entity import given
from tests.unit.runtime.one_of_each import Added, Cart, Profile, Room


def test_given_when_then() -> None:
    given(Added("book", 1)).when(Cart.add, "book", 2).then(
        events=[Added("book", 2)], reply=3, state={"items": {"book": 3}}
    )


def test_one_call_after_another() -> None:
    (
        given()
        .when(Cart.add, "book")
        .then(reply=1)
        .when(Cart.add, sku="book", quantity=2)
        .then(reply=3, events=[Added("book", 2)])
        .when(Cart.total)
        .then(reply=3, events=[])
    )


def test_refusals_and_failures() -> None:
    given(Added("book", 1)).when(Cart.add, "book", 0).then_raises(Rejected, "at least 1", events=[])
    given(Added("book", 1)).when(Cart.add_then_raise, "x").then_raises(
        EntityFailed, "RuntimeError: after persist", events=[], state={"items": {"book": 1}}
    )


def test_the_next_write_fails_and_the_one_after_it_does_not() -> None:
    scenario = given().when(Cart.add, "book").next_write_fails("disk on fire")
    scenario.when(Cart.add, "book").then_raises(NotSerializable, "disk on fire", state={"items": {"book": 1}})
    scenario.when(Cart.add, "book").then(reply=2)


def test_the_other_kinds() -> None:
    given(state={"name": "joe", "visits": 4}).when(Profile.visit).then(
        reply=5, state={"name": "joe", "visits": 5}
    )
    given().when(Room.enter).then(reply=1).when(Room.enter).then(reply=2)


def test_state_that_is_changed_past_the_events_is_found() -> None:
    class Careless(EventSourced, name="kit.Careless"):
        count: int = 0

        @command
        def step(self) -> None:
            self.count += 1

        @applies(Added)
        def on_added(self, happened: Added) -> None:
            """Forgotten here, done there."""

    with pytest.raises(AssertionError, match="'count' is changed outside its @applies methods"):
        given().when(Careless.step)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"reply": 7}, "reply: got 1, expected 7"),
        ({"events": []}, r"events: got \[Added\(sku='book', quantity=1\)\], expected \[\]"),
        ({"state": {}}, "state: got {'items': {'book': 1}}, expected {}"),
    ],
)
def test_what_differs_is_shown(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        given().when(Cart.add, "book").then(**wrong)


def test_an_unexpected_outcome_is_told() -> None:
    with pytest.raises(AssertionError, match="the call raised Rejected: quantity"):
        given().when(Cart.add, "book", 0).then(reply=1)
    with pytest.raises(AssertionError, match="expected Rejected, but the call returned 1"):
        given().when(Cart.add, "book").then_raises(Rejected)
    with pytest.raises(InvalidCall, match=r"such as Cart\.add, not 'add'"):
        given().when("add")
    with pytest.raises(InvalidCall, match=r"this test is about entities\.Cart, not entities\.Room"):
        given().when(Cart.add, "book").when(Room.enter)


@pytest.mark.asyncio
async def test_it_works_where_a_loop_is_running() -> None:
    given().when(Cart.add_in_two, "book").then(reply=11, events=[Added("book", 1), Added("book", 10)])
