"""Projections in the dashboard's words."""

from datetime import UTC, datetime, timedelta

import pytest

from sharding_app.adapters.django.projections import HeldEntity, PartStatus, ProjectionStatus
from sharding_app.dashboard.presenters import projections as shown
from sharding_app.operations.projection_rates import Rates, whole
from sharding_app.operations.projections import ProjectionLook

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def look(
    *,
    seconds: float = 0.0,
    parked: int = 0,
    paused: bool = False,
    filling: bool = False,
    declared: bool = True,
) -> ProjectionLook:
    part = PartStatus(0, 127, 1234, filling, "", NOW, 1000, True, seconds, parked + 1, parked)
    return ProjectionLook(ProjectionStatus("shop.Open", 1, True, paused, True, [part]), declared)


@pytest.mark.parametrize(
    ("given", "state", "tone", "bad"),
    [
        (look(), "live", "good", False),
        (look(seconds=61.0), "live", "bad", True),
        (look(seconds=61.0, paused=True), "paused", "warn", False),
        (look(seconds=61.0, filling=True), "filling", "busy", False),
        (look(declared=False), "without code", "warn", False),
        (look(parked=2), "live", "good", True),
    ],
)
def test_a_projection_says_how_it_is(given: ProjectionLook, state: str, tone: str, bad: bool) -> None:
    row = shown.projection_row(given, {whole(given): 2.5})
    assert (row["state"], row["tone"], row["bad"]) == (state, tone, bad)
    assert (row["behind"], row["events"], row["rate"], row["failing"]) == ("1,000+", "1,234", "2.5", "1")


def test_parts_say_in_which_journal_they_are() -> None:
    here = PartStatus(0, 127, 10, False, "", NOW, 3, False, 2.0, 0, 0)
    there = here._replace(journal="journal_b", events=20)
    away = here._replace(journal="journal_c", trouble="no route")
    status = ProjectionStatus("shop.Open", 1, True, False, True, [here, there, away])
    given = ProjectionLook(status, declared=True)
    found = Rates().of([given])
    assert {("shop.Open", 1, 0, 127), ("shop.Open", 1, 0, 127, "journal_b")} <= found.keys()
    rows = shown.part_rows(given, found, NOW)
    assert [(each["journal"], each["events"], each["behind"]) for each in rows] == [
        ("", "10", "3"), ("journal_b", "20", "3"), ("journal_c", "10", "?"),
    ]  # fmt: skip
    assert list(given.by_journal) == ["", "journal_b"]
    assert given.journals_away == {"journal_c": "no route"}
    assert "'journal_c' cannot be reached" in given.problems[0]


def test_the_text_of_an_error_is_for_those_who_may_see_contents() -> None:
    held = HeldEntity(
        "shop.Cart", "alice", 4, 5, False, "ValueError: secret", NOW + timedelta(seconds=8), NOW
    )
    for payloads, error in ((False, "ValueError"), (True, "ValueError: secret")):
        (row,) = shown.held_rows([held], {"shop.Cart": 7}, NOW, payloads=payloads)
        assert (row["error"], row["retry"], row["type_number"]) == (error, "in 8 s", 7)


def test_rates_are_differences_between_looks() -> None:
    now = 100.0
    rates = Rates(lambda: now)

    def at(seconds: float, events: int) -> float | None:
        nonlocal now
        now = seconds
        part = PartStatus(0, 127, events, False, "", NOW, 0, False, 0.0, 0, 0)
        taken = ProjectionLook(ProjectionStatus("shop.Open", 1, True, False, True, [part]), declared=True)
        found = rates.of([taken])
        assert found["shop.Open", 1, 0, 127] == found[whole(taken)]
        return found[whole(taken)]

    assert at(100.0, 50) is None
    assert at(100.5, 60) == 20.0
    assert at(102.0, 70) == 10.0
    # A second viewer sees the rate too.
    assert at(102.25, 72) == 22 / 2.25
    # A reset begins at 0.
    assert at(104.0, 0) == 0.0
    assert at(200.0, 90) is None
