"""The judge of a singleton's schedule: when it is set, and which times a firing takes."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.schedules import TICK, Schedules

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Stage:
    """A server by hand, and the judge of its schedule. The tick was set at 0, for second 4."""

    def __init__(self) -> None:
        self.broken: list[PromiseBroken] = []
        self.world = self._made()
        self.judge = Schedules(self.world)
        self.set(0.0, 4.0)

    def _made(self) -> Any:
        return SimpleNamespace(
            server=SimpleNamespace(date=lambda: BEGAN), obstacles=SimpleNamespace(refused={}), now=0.0,
            broke=self.broken.append, transition=lambda *_: None,
        )  # fmt: skip

    def set(self, at: float, due: float) -> None:
        row = MessageRow(
            "m", 1, 0, "the", 1, 0, 0, "clerk", "the", "tick", b"", _date(due), key=TICK, every=""
        )
        self._commit(at, MessageChanges([row]))

    def fire(self, at: float, again: float) -> None:
        self._commit(at, MessageChanges(takes=[Taking("m", (1, "the", TICK), again=("n", _date(again)))]))

    def go_on(self, at: float, again: float) -> None:
        """Give the timer's row its next time without an append, as for an entity in memory."""
        self.world.now = at
        self.judge.goes_on([Taking("m", (1, "the", TICK), again=("n", _date(again)))])

    def _commit(self, at: float, changes: MessageChanges) -> None:
        self.world.now = at
        self.judge.changed(changes, _date(at))


def _date(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def test_a_start_that_sets_a_timer_anew_breaks_the_promise() -> None:
    stage = Stage()
    stage.set(0.002, 4.002)
    assert [each.name for each in stage.broken] == ["schedules_stay"]


@pytest.mark.parametrize(
    ("at", "again", "broken"),
    [
        (4.1, 8.0, None),
        (9.0, 12.0, None),
        (3.9, 8.0, "timers_fire_in_time"),
        (4.1, 9.0, "schedules_keep_their_times"),
        (4.1, 12.0, "schedules_lose_no_time"),
        (9.0, 16.0, "schedules_lose_no_time"),
    ],
)
def test_a_firing_takes_the_times_that_have_come(at: float, again: float, broken: str | None) -> None:
    stage = Stage()
    stage.fire(at, again)
    assert [each.name for each in stage.broken] == ([broken] if broken else [])


def test_a_late_firing_may_count_the_next_time_by_a_clock_that_is_ahead() -> None:
    stage = Stage()
    stage.fire(7.0, 12.0)
    assert not stage.broken, "the node took it to be 8 s"


def test_a_firing_in_memory_counts_once_its_handler_has_begun() -> None:
    stage = Stage()
    for due in (4.0, 8.0):
        stage.world.now = due + 0.1
        stage.judge.is_handled("tick")
        stage.go_on(due + 0.2, due + 4.0)
    assert not stage.broken
    assert stage.judge.fired_since(0.0) == 2
    stage.go_on(12.1, 16.0)
    assert [each.name for each in stage.broken] == ["schedules_lose_no_time"], "nothing has handled it"


def test_a_handler_of_before_a_failover_counts_for_the_row_that_is_there_again() -> None:
    stage = Stage()
    stage.judge.is_handled("tick")
    stage.judge.went_back()
    stage.go_on(4.2, 8.0)
    assert not stage.broken
    stage.judge.went_back()
    stage.judge.is_handled("tick")
    stage.go_on(8.1, 12.0)
    assert not stage.broken
    stage.go_on(12.1, 16.0)
    assert [each.name for each in stage.broken] == ["schedules_lose_no_time"]


def test_a_timer_that_an_operator_has_discarded_is_set_anew() -> None:
    stage = Stage()
    stage.judge.is_discarded(TICK)
    stage.set(2.0, 6.0)
    assert not stage.broken
