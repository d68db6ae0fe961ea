"""What the judge makes of types that have one thing of their own: answers in order, states that are
stored as a whole, chains of calls, timers, entities that do not start.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.errors import EntityFailed, Rejected
from sharding_app.ports.journal import EventRow
from sharding_app.runtime.journal.durable_state import STATE
from sharding_app.testing.simulation.faults import schedule
from sharding_app.testing.simulation.particular import TURNSTILE, Alarm
from sharding_app.testing.simulation.promises import (
    Call,
    Entry,
    PromiseBroken,
    answers_keep_order,
    others_have_stored,
)
from sharding_app.testing.simulation.states import States
from sharding_app.testing.simulation.stubborn import LONGEST_BACKOFF_SECONDS, SPARE_SECONDS, Stubborn
from sharding_app.testing.simulation.timers import Timers
from sharding_app.testing.simulation.topology import PARTICULAR, cast_of

T = TypeVar("T")


def call(number: int, error: Exception | None = None, client: str = "me", *, repeated: bool = False) -> Call:
    return Call(number, client, "gate", "add", ("a",), 0.0, 1.0, error=error, repeated=repeated)


@pytest.mark.parametrize("error", [None, Rejected("no")])
def test_an_answer_before_that_to_an_earlier_call_is_out_of_order(error: Exception | None) -> None:
    with pytest.raises(PromiseBroken, match="#2 is answered before #1"):
        answers_keep_order(call(2, error), [call(1)])


@pytest.mark.parametrize(
    ("now", "other"),
    [
        (call(2), call(3)),
        (call(2), call(1, client="other")),
        (call(2), call(1, repeated=True)),
        (call(2, repeated=True), call(1)),
        (call(2, EntityFailed("it moved")), call(1)),
    ],
)
def test_other_answers_are_in_order(now: Call, other: Call) -> None:
    answers_keep_order(now, [other])


def state(number: int, *tokens: str) -> EventRow:
    payload = b'{"tokens":[%s]}' % ",".join(f'"{each}"' for each in tokens).encode()
    return EventRow(1, "ann", number, 0, 1, STATE, 1, payload, None, None, None)


def test_what_is_new_in_a_state_is_an_entry_each() -> None:
    states, entries = States(), list[Entry]()
    entries += states.stored("ann", state(1, "a"), entries, 1.0)
    entries += states.stored("ann", state(2, "a", "b", "c"), entries, 2.0)
    assert entries == [Entry(1, 1, "a", 1.0), Entry(2, 1, "b", 2.0), Entry(3, 1, "c", 2.0)]
    assert states.keeps("ann")
    assert states.went_back("ann", {1: Committed(state(1, "a"), 1.0)}, entries) == entries[:1]
    assert states.went_back("ann", {}, entries) == []


@pytest.mark.parametrize(
    ("row", "promise"), [(state(2, "b"), 3), (state(2), 3), (state(3, "a", "b"), 4), (state(1, "a"), 4)]
)
def test_a_state_holds_what_was_stored_before_and_has_the_next_number(row: EventRow, promise: int) -> None:
    states = States()
    before = states.stored("ann", state(1, "a"), [], 1.0)
    with pytest.raises(PromiseBroken) as broken:
        states.stored("ann", row, before, 2.0)
    assert broken.value.promise == promise


def test_who_goes_on_after_others_finds_theirs_stored() -> None:
    chain = Call(1, "me", "relay-0", "hand_on", ("a",), 0.0, along=(("relay-1", "b"),))
    others_have_stored(chain, {"relay-1": [Entry(1, 1, "b", 1.0)]})
    for journal in ({}, {"relay-1": [Entry(1, 1, "a", 1.0)]}, {"relay-0": [Entry(1, 1, "b", 1.0)]}):
        with pytest.raises(PromiseBroken, match="'b' of relay-1"):
            others_have_stored(chain, journal)


class Clock(asyncio.SelectorEventLoop):
    """A loop on which time passes when it is told to."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Ringing:
    """Alarms on a loop of their own, and what is found to be wrong with their timers."""

    clock: Clock

    def __init__(self) -> None:
        self.found: list[str] = []
        self.timers = Timers(lambda broken: self.found.append(broken.name))

    def alarm(self) -> Alarm:
        alarm = Alarm()
        alarm.entity_id = "ann"
        self.timers.object_is_made(alarm)
        return alarm

    def on_a_loop(self, happens: "Callable[[Ringing], T]") -> T:
        """Let it happen in a process of its own."""

        async def look() -> T:
            return happens(self)

        self.clock = Clock()
        try:
            return self.clock.run_until_complete(look())
        finally:
            self.clock.close()


def rings_as_it_should(all_of: Ringing) -> None:
    alarm = all_of.alarm()
    all_of.timers.is_started(alarm, "a", 1.0)
    all_of.clock.now += 1.0
    all_of.timers.rings(alarm, "a")
    assert all_of.timers.has_rung("a")


def rings_twice(all_of: Ringing) -> None:
    alarm = all_of.alarm()
    all_of.timers.is_started(alarm, "a", 0.0)
    all_of.timers.rings(alarm, "a")
    all_of.timers.rings(alarm, "a")


def rings_early(all_of: Ringing) -> None:
    alarm = all_of.alarm()
    all_of.timers.is_started(alarm, "a", 1.0)
    all_of.clock.now += 0.9
    all_of.timers.rings(alarm, "a")


def rings_though_it_was_set_anew(all_of: Ringing) -> None:
    alarm = all_of.alarm()
    all_of.timers.is_started(alarm, "a", 1.0)
    all_of.timers.is_started(alarm, "b", 2.0)
    all_of.clock.now += 1.0
    all_of.timers.rings(alarm, "a")


def rings_though_it_was_put_off(all_of: Ringing) -> None:
    alarm = all_of.alarm()
    all_of.timers.is_started(alarm, "a", 1.0)
    all_of.timers.is_put_off(alarm)
    all_of.clock.now += 1.0
    all_of.timers.rings(alarm, "a")


def was_due_when_it_was_set_anew(all_of: Ringing) -> None:
    """Its command waits in the mailbox."""
    alarm = all_of.alarm()
    all_of.timers.is_started(alarm, "a", 1.0)
    all_of.clock.now += 1.0
    all_of.timers.is_started(alarm, "b", 1.0)
    all_of.timers.rings(alarm, "a")


def rings_in_another_object(all_of: Ringing) -> None:
    all_of.timers.is_started(all_of.alarm(), "a", 1.0)
    all_of.clock.now += 0.5
    other = all_of.alarm()
    all_of.clock.now += 0.5
    all_of.timers.rings(other, "a")


def was_due_when_its_object_went(all_of: Ringing) -> None:
    all_of.timers.is_started(all_of.alarm(), "a", 1.0)
    all_of.clock.now += 1.0
    all_of.timers.rings(all_of.alarm(), "a")


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        (rings_as_it_should, []),
        (was_due_when_it_was_set_anew, []),
        (was_due_when_its_object_went, []),
        (rings_twice, ["a_timer_rings_once"]),
        (rings_early, ["a_timer_rings_in_time"]),
        (rings_though_it_was_set_anew, ["a_timer_is_put_off"]),
        (rings_though_it_was_put_off, ["a_timer_is_put_off"]),
        (rings_in_another_object, ["a_timer_ends_with_its_object"]),
    ],
)
def test_a_timer_rings_once_in_time_and_in_its_object(
    happens: Callable[[Ringing], None], found: list[str]
) -> None:
    all_of = Ringing()
    all_of.on_a_loop(happens)
    assert all_of.found == found


def test_a_command_that_stores_nothing_starts_its_timer_on_each_node_where_it_runs() -> None:
    def starts_and_rings(all_of: Ringing) -> str:
        alarm = all_of.alarm()
        token = all_of.timers.is_started(alarm, "a", 1.0)
        all_of.clock.now += 1.0
        all_of.timers.rings(alarm, token)
        return token

    all_of = Ringing()
    first, second = (all_of.on_a_loop(starts_and_rings) for _ in range(2))
    assert (first, all_of.found) == ("a", [])
    assert second != first


def test_only_who_will_not_start_may_be_told_so() -> None:
    now = [0.0]
    stubborn = Stubborn(lambda: now[0])
    assert not stubborn.excuses("ann", 0.0)
    stubborn.begins("ann")
    assert stubborn.excuses("ann", 0.0)
    assert not stubborn.excuses("bob", 0.0)
    with pytest.raises(RuntimeError, match="ann"):
        stubborn.starts("ann")
    stubborn.starts("bob")
    now[0] = 5.0
    stubborn.end_all()
    stubborn.starts("ann")
    assert stubborn.refused == 1
    told_for = 5.0 + LONGEST_BACKOFF_SECONDS + SPARE_SECONDS
    assert stubborn.excuses("ann", told_for)
    assert not stubborn.excuses("ann", told_for + 0.1), "it has been tried again since"


def test_each_such_type_comes_up_in_both_kinds_of_seeds() -> None:
    for parity in (0, 1):
        casts = [cast_of(seed).types for seed in range(24 + parity, 36, 2)]
        assert all(any(made in types for types in casts) for made in PARTICULAR)


def test_what_pipelines_meets_refused_rows() -> None:
    assert any(
        TURNSTILE in cast_of(seed).types and fault.kind == "refused_rows"
        for seed in range(12)
        for fault in schedule(seed, 3)
    )
