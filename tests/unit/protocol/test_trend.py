"""A node's figures over time: what a sample is made of, how many are kept, and when readings are
due.
"""

from __future__ import annotations

import sys

import pytest

from sharding_app.protocol.histogram import SECONDS
from sharding_app.protocol.trend import (
    FIGURES,
    KEPT,
    MOST_TYPES,
    SPANS,
    STEP_SECONDS,
    TYPE_FIGURES,
    Reading,
    Trend,
    Trends,
)

BOUNDS = len(SECONDS) + 1


def histogram(**counts: int) -> list[int]:
    """Counts by the number of their bound: `b12=5`."""
    found = [0] * BOUNDS
    for name, count in counts.items():
        found[int(name[1:])] = count
    return found


def reading(
    at: float,
    *,
    commands: float = 0,
    latency: list[int] | None = None,
    entities: float = 0,
    lag: float = 0.0,
) -> Reading:
    return Reading(
        at,
        (commands, 0, 0, 0.0),
        (latency or histogram(), histogram()),
        (entities, 0, 1e8),
        (lag, 0, 0),
    )


def test_a_sample_is_what_happened_between_two_readings() -> None:
    trend = Trend(10)
    trend.add(reading(100.0, commands=1000, latency=histogram(b3=500), entities=1))
    assert (trend.began, list(trend.at)) == (100.0, []), "one reading gives no rate"
    trend.add(reading(110.0, commands=1200, latency=histogram(b3=500, b20=10), entities=7, lag=0.25))
    found = trend.figures()
    assert list(found) == list(FIGURES)
    assert list(trend.at) == [110.0]
    assert found["commands"] == [20.0]
    assert found["entities"] == [7.0]
    assert found["loop_lag_seconds"] == [0.25]
    (p99,) = found["command_p99"]
    assert p99 is not None
    assert SECONDS[19] < p99 <= SECONDS[20], "of the ten new commands alone"
    assert found["append_p99"] == [None], "nothing was appended"


def test_a_long_span_has_the_rate_of_its_time_and_the_largest_peak_in_it() -> None:
    trend = Trend(40)
    for number, lag in enumerate((0.0, 0.1, 0.9, 0.0, 0.2)):
        trend.add(reading(number * 10.0, commands=number * 100, lag=lag))
    found = trend.figures()
    assert list(trend.at) == [40.0]
    assert found["commands"] == [10.0]
    assert found["loop_lag_seconds"] == [pytest.approx(0.9)]
    for number in range(5, 9):
        trend.add(reading(number * 10.0, lag=0.3))
    assert trend.figures()["loop_lag_seconds"][1] == pytest.approx(0.3), "a peak counts once"


def test_readings_that_come_a_little_early_or_late_make_one_sample_each_period() -> None:
    trend = Trend(240)
    for number in range(24 * 5 + 1):
        trend.add(reading(number * 10 + (0.4 if number % 3 else -0.4)))
    assert len(trend.at) == 5


def test_a_counter_that_falls_gives_no_negative_rate() -> None:
    trend = Trend(10)
    trend.add(reading(0.0, commands=100))
    trend.add(reading(10.0, commands=0))
    assert trend.figures()["commands"] == [0.0]


def test_memory_is_bounded() -> None:
    trends = Trends()
    for number in range(3 * KEPT * 24):
        trends.add(reading(number * 10.0, commands=number))
    size = 0
    for trend in trends.spans.values():
        assert {len(values) for values in trend.figures().values()} == {len(trend.at)} == {KEPT}
        size += sys.getsizeof(trend.at) + sum(map(sys.getsizeof, trend._values.values()))
    assert size < 50_000
    assert trends.spans[SPANS[0]].at[-1] == (3 * KEPT * 24 - 1) * 10.0, "the oldest ones go"


def of_type(at: float, *, events: float = 0, entities: float = 0) -> Reading:
    return Reading(at, (0, events, 0, 0), (histogram(),), (entities, 0), ())


def test_a_type_has_its_own_figures_from_its_first_reading_on() -> None:
    trends = Trends()
    trends.add(reading(0.0))
    trends.add(reading(10.0), {"shop.Cart": of_type(10.0, events=5)})
    trends.add(reading(20.0), {"shop.Cart": of_type(20.0, events=45, entities=3)})
    found = trends.of_types["shop.Cart"][SPANS[0]]
    assert list(found.at) == [20.0]
    assert set(found.figures()) == set(TYPE_FIGURES)
    assert (found.figures()["events"], found.figures()["entities"]) == ([4.0], [3.0])
    assert list(trends.spans[SPANS[0]].at) == [10.0, 20.0]


def test_the_number_of_types_with_figures_is_bounded() -> None:
    trends = Trends()
    for second in (0.0, 10.0):
        trends.add(reading(second), {f"t{number}": of_type(second) for number in range(MOST_TYPES + 5)})
    assert list(trends.of_types) == [f"t{number}" for number in range(MOST_TYPES)]


def test_a_type_takes_the_memory_that_is_said() -> None:
    trends = Trends()
    for number in range(KEPT * 24 + 1):
        trends.add(reading(number * 10.0), {"t": of_type(number * 10.0)})
    size = 0
    for trend in trends.of_types["t"].values():
        assert len(trend.at) == KEPT
        size += sys.getsizeof(trend.at) + sum(map(sys.getsizeof, trend._values.values()))
    assert size < 35_000


def test_a_reading_is_due_once_for_each_step_and_does_not_drift() -> None:
    trends = Trends()
    looks = [number * 1.01 for number in range(300)]
    taken = [now for now in looks if trends.is_due(now)]
    assert taken[0] == 0.0
    assert len(taken) == int(looks[-1] // STEP_SECONDS) + 1


def test_after_a_long_stop_one_reading_is_due() -> None:
    trends = Trends()
    assert trends.is_due(0.0)
    assert trends.is_due(500.0)
    assert [trends.is_due(now) for now in (500.5, 501.0, 510.0)] == [True, False, True]
