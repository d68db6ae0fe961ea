"""Figures over time of several nodes: one grid, sums and worst ones, and who shares an answer."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.dashboard.presenters.trends import type_charts
from sharding_app.operations.trends import (
    KEPT_ANSWERS,
    MAX_AGE_SECONDS,
    ClusterTrend,
    TrendCollector,
    grouped,
    on_grid,
    put_together,
)
from sharding_app.protocol.messages import NodeTrend
from sharding_app.protocol.trend import KEPT, TYPE_FIGURES
from tests.support.answering_nodes import HandClock
from tests.support.trends import FakeTrends, trend_of

NOW = datetime(2026, 5, 4, 3, 0, 5, tzinfo=UTC)
FIRST = 100


def slots(times: list[float], values: list[float | None], *, largest: bool = False) -> dict[int, float]:
    found = on_grid(times, values, 10, FIRST, largest=largest)
    return {number: value for number, value in enumerate(found) if value is not None}


def test_each_sample_has_its_slot() -> None:
    assert slots([1005.0, 1015.0], [1.0, 2.0]) == {0: 1.0, 1: 2.0}


@pytest.mark.parametrize(("largest", "value"), [(True, 3.0), (False, 2.0)])
def test_two_samples_in_a_slot_are_one(largest: bool, value: float) -> None:
    assert slots([1000.1, 1009.9], [1.0, 3.0], largest=largest) == {0: value}


def test_one_empty_slot_between_two_is_a_sample_that_came_late_and_two_are_a_gap() -> None:
    assert slots([1009.9, 1020.1], [1.0, 3.0]) == {0: 1.0, 1: 1.0, 2: 3.0}
    assert slots([1009.9, 1030.1], [1.0, 3.0]) == {0: 1.0, 3: 3.0}


def test_a_slot_without_a_value_stays_empty() -> None:
    assert slots([1005.0, 1015.0, 1025.0], [1.0, None, 3.0]) == {0: 1.0, 2: 3.0}


@given(st.floats(0, 10, exclude_max=True), st.lists(st.floats(-0.9, 0.9), min_size=50, max_size=50))
def test_a_node_that_samples_a_little_early_or_late_has_no_gap(phase: float, drifts: list[float]) -> None:
    times = [1000 + phase + 10 * number + drift for number, drift in enumerate(drifts)]
    found = slots(times, [1.0] * 50)
    assert set(range(1, 49)) <= set(found)


def test_samples_outside_of_the_grid_are_left_out() -> None:
    assert slots([0.0, 999.9, 1000.0 + 10 * KEPT], [1.0, 1.0, 1.0]) == {}


def test_the_cluster_is_the_sum_or_the_worst_node_of_those_that_are_known() -> None:
    answers = {"n-a": trend_of(10, value=10.0), "n-b": trend_of(10, value=4.0, samples=3, clock=5.0e3)}
    found = put_together(answers, ["n-a", "n-b", "n-c"], 10, NOW)
    assert found.silent == {"n-c"}
    assert found.total("commands")[-1] == 14.0
    assert found.total("command_p99")[-1] == 10.0
    assert found.total("commands")[9] == 10.0, "the other node began later"
    assert found.nodes["n-b"].since == NOW - timedelta(seconds=31)
    assert found.nodes["n-b"].figures["entities"].count(None) == KEPT - 2, "the newest is not over"


def test_the_grid_ends_before_the_slot_that_is_not_over() -> None:
    found = put_together({}, [], 10, NOW)
    assert (found.ends, found.ends - found.begins) == (NOW.replace(second=0), timedelta(hours=1))
    assert found.slot(NOW.replace(second=0) - timedelta(seconds=1)) == KEPT - 1
    assert found.slot(NOW) == KEPT
    assert found.total("commands") == (), "there are no nodes"


def test_a_node_of_a_release_with_other_figures_is_unknown_there() -> None:
    other = NodeTrend(0, 10, 100.0, 0.0, [95.0], {"commands": [1.0], "news": [2.0]})
    found = put_together({"n-a": other}, ["n-a"], 10, NOW)
    assert set(found.nodes["n-a"].figures["shards"]) == {None}
    assert found.total("shards") == (None,) * KEPT


def test_times_that_make_no_sense_break_nothing() -> None:
    absurd = NodeTrend(0, 10, 1.7e308, -1.7e308, [-1.7e308, 1.7e308], {"commands": [1.0, 2.0]})
    found = put_together({"n-a": absurd}, ["n-a"], 10, NOW)
    assert found.total("commands").count(None) >= KEPT - 1
    assert found.nodes["n-a"].since < NOW


def test_groups_show_the_mean_or_the_largest() -> None:
    values = [1.0, 3.0, None, 5.0, None, None]
    assert grouped(values, 2, largest=False) == [2.0, 5.0, None]
    assert grouped(values, 2, largest=True) == [3.0, 5.0, None]


def test_an_answer_is_shared_until_it_is_old_or_other_nodes_are_there() -> None:
    ask, clock = FakeTrends(), HandClock()
    collector = TrendCollector(ask, clock)
    first = collector.trend(["n-a"], 10, NOW)
    clock.time += 4.9
    assert collector.trend(["n-a"], 10, NOW) is first
    assert collector.trend(["n-a"], 240, NOW) is not first
    assert ask.asked == [10, 240]
    clock.time += 0.2
    collector.trend(["n-a"], 10, NOW)
    collector.trend(["n-a", "n-b"], 10, NOW)
    assert ask.asked == [10, 240, 10, 10]
    clock.time += MAX_AGE_SECONDS
    collector.trend(["n-a"], 240, NOW)
    assert ask.asked == [10, 240, 10, 10, 240]


def test_types_have_answers_of_their_own_and_the_latest_are_kept() -> None:
    ask, clock = FakeTrends(), HandClock()
    collector = TrendCollector(ask, clock)
    first = collector.trend(["n-a"], 10, NOW, "t0")
    assert set(first.nodes["n-a"].figures) == set(TYPE_FIGURES)
    assert collector.trend(["n-a"], 10, NOW, "t0") is first
    for number in range(KEPT_ANSWERS):
        collector.trend(["n-a"], 10, NOW, f"t{number}")
    assert collector.trend(["n-a"], 10, NOW, "t0") is first
    collector.trend(["n-a"], 10, NOW, "one more")
    assert collector.trend(["n-a"], 10, NOW, "t0") is not first
    assert ask.types == [*(f"t{number}" for number in range(KEPT_ANSWERS)), "one more", "t0"]


def test_an_answer_that_is_old_is_let_go_with_its_charts() -> None:
    """One of many nodes takes megabytes, and an open page takes another every few seconds."""
    clock = HandClock()
    collector = TrendCollector(FakeTrends(), clock)
    shown = {"n-a": {"letter": "A", "colour": 0, "name": "a"}}

    def draw(type_name: str) -> weakref.ref[ClusterTrend]:
        trend = collector.trend(["n-a"], 10, NOW, type_name)
        assert type_charts(trend, shown) is type_charts(trend, shown)
        clock.time += MAX_AGE_SECONDS / 2
        return weakref.ref(trend)

    drawn = [draw(type_name) for type_name in ("t0", "t1", "t1")]
    gc.collect()
    assert [each() is not None for each in drawn] == [False, False, True]


def test_without_nodes_none_is_asked() -> None:
    ask = FakeTrends()
    assert not TrendCollector(ask).trend([], 10, NOW).nodes
    assert ask.asked == []


def test_the_reason_is_kept_when_no_node_can_be_asked() -> None:
    ask = FakeTrends()
    ask.trouble = "the channel layer is away"
    found = TrendCollector(ask).trend(["n-a"], 10, NOW)
    assert not found.nodes
    assert found.silent == {"n-a"}
    assert "away" in found.trouble
