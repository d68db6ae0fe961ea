"""Histograms, the meter of a host, and questions to nodes: what the dashboard's figures come
from.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from sharding_app.protocol.histogram import ROWS, SECONDS, Histogram, added, difference, quantile
from sharding_app.protocol.messages import (
    AnyMessage,
    Deliver,
    GetNodeStats,
    NodeStats,
    OperatorReply,
    OperatorRequest,
    ReplyCode,
)
from sharding_app.runtime.asking.queries import Queries
from sharding_app.runtime.telemetry.meter import (
    EVERY_COMMANDS,
    GIVE_UP_SECONDS,
    HOT_PLACES,
    SLOW_PLACES,
    SLOW_SECONDS,
    Hottest,
    Meter,
)


class HandClock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def message(entity: str = "a", request: int = 1) -> Deliver:
    return Deliver("shop.Cart", 3, 1, entity, request, "add", b"")


def test_bounds_ascend_and_cover_what_happens() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))
    assert (SECONDS[0], SECONDS[-1]) == (1e-05, 10.0)
    assert list(ROWS) == sorted(set(ROWS))


@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
def test_a_quantile_is_as_near_as_the_bounds_are(part: float) -> None:
    rng = random.Random(5)
    values = sorted(rng.lognormvariate(-6, 1) for _ in range(5000))
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    estimate = quantile(histogram.counts, part)
    assert estimate is not None
    assert estimate == pytest.approx(values[int(part * len(values))], rel=0.5)
    assert histogram.sum == pytest.approx(sum(values))


def test_what_was_never_counted_has_no_quantile() -> None:
    assert quantile([0, 0, 0], 0.5, (1.0, 2.0)) is None
    assert quantile([], 0.5) is None


def test_what_lies_beyond_the_last_bound_is_the_last_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.add(99.0)
    assert quantile(histogram.counts, 0.5, (1.0, 2.0)) == 2.0


def test_counts_differ_and_add_up() -> None:
    assert difference([3, 5], [1, 5]) == [2, 0]
    assert difference([1, 0], [3, 5]) == [1, 0], "a node that began anew counts from nothing"
    assert difference([1, 2, 3], [1, 2]) == [1, 2, 3], "another release counts by other bounds"
    assert added([[1, 2], [3, 4], [9]]) == [4, 6]
    assert added([]) == []


def test_the_meter_times_one_command_at_a_time() -> None:
    clock = HandClock()
    meter = Meter(clock)
    first, second = message(request=1), message(request=2)
    meter.batch([first], clock.now())
    meter.batch([second], clock.now())
    assert meter.watched is first
    clock.time += 0.004
    meter.done()
    assert [meter.watched, meter.commands] == [None, 2]
    assert quantile(meter.latency.counts, 0.5) == pytest.approx(0.004, rel=0.5)
    meter.batch([second], clock.now())
    assert meter.watched is second


def test_a_command_that_is_never_answered_does_not_stop_the_meter() -> None:
    clock = HandClock()
    meter = Meter(clock)
    meter.batch([message()], clock.now())
    clock.time += GIVE_UP_SECONDS + 1
    later = message()
    meter.batch([later], clock.now())
    assert meter.watched is later


def test_the_hottest_entity_is_found_among_many() -> None:
    clock = HandClock()
    meter = Meter(clock)
    rng = random.Random(3)
    for number in range(20_000):
        entity = "hot" if rng.random() < 0.3 else f"cold-{number}"
        meter.batch([message(entity)], clock.now())
    (entity, shard), _ = meter.hottest.top(3)[0]
    assert (entity, shard) == ("hot", 3)
    assert [shard for shard, _ in meter.shards.top(3)] == [3]


def test_the_table_of_the_hottest_is_bounded_and_cools() -> None:
    hottest: Hottest[tuple[str, int]] = Hottest()
    for _ in range(1000):
        hottest.add(("was", 1), EVERY_COMMANDS)
    for number in range(20_000):
        hottest.add(("is", 2), EVERY_COMMANDS)
        hottest.add((f"cold-{number}", 3), 1)
    assert hottest.top(1)[0][0] == ("is", 2)
    assert len(hottest.top(10_000)) <= HOT_PLACES


def test_the_slowest_of_the_last_minutes_are_named() -> None:
    clock = HandClock()
    meter = Meter(clock)

    def timed(entity: str, seconds: float) -> None:
        meter.batch([message(entity)], clock.now())
        clock.time += seconds
        meter.done()

    timed("old", 9.0)
    clock.time += SLOW_SECONDS
    for number in range(5 * SLOW_PLACES):
        timed(f"quick-{number}", 0.001)
        if number == SLOW_PLACES:
            timed("slow", 3.0)
    timed("late", 1.0)
    top = meter.slowest.top(SLOW_PLACES, clock.now())
    assert [each.entity for each in top[:2]] == ["slow", "late"]
    assert top[0].seconds == pytest.approx(3.0)
    assert len(top) <= SLOW_PLACES
    assert "old" not in {each.entity for each in top}
    meter.forget("slow")
    assert meter.slowest.top(1, clock.now())[0].entity == "late"


def test_troubles_are_kept_in_bounds() -> None:
    meter = Meter(HandClock())
    for number in range(1000):
        meter.trouble(f"e{number}", "add", "ValueError")
    assert len(meter.troubles) == 100
    assert meter.troubles[-1].entity == "e999"


def stats(request: int) -> NodeStats:
    return NodeStats(request, 1.0, {}, {}, {}, [], [], [])


@pytest.mark.asyncio
async def test_who_answers_in_time_is_heard_and_who_does_not_is_missing() -> None:
    sent: list[tuple[str, AnyMessage]] = []

    def put(node: str, asked: AnyMessage) -> bool:
        sent.append((node, asked))
        return True

    queries = Queries(put)
    waiting = asyncio.ensure_future(queries.stats(["n-a", "n-b"], timeout=0.05))
    await asyncio.sleep(0)
    (_, first), (_, second) = sent
    assert isinstance(first, GetNodeStats)
    assert isinstance(second, GetNodeStats)
    queries.told("n-x", stats(second.request))
    queries.told("n-a", stats(first.request))
    assert list(await waiting) == ["n-a"]
    queries.told("n-b", stats(second.request))


@pytest.mark.asyncio
async def test_a_request_that_no_node_answers_is_not_said_to_be_done() -> None:
    sent: list[AnyMessage] = []

    def put(_: str, asked: AnyMessage) -> bool:
        sent.append(asked)
        return True

    queries = Queries(put)
    assert await queries.operate("n-a", OperatorRequest(0, "rebalance", by="root"), timeout=0.01) is None
    waiting = asyncio.ensure_future(queries.operate("n-a", OperatorRequest(0, "rebalance", by="root")))
    await asyncio.sleep(0)
    last = sent[-1]
    assert isinstance(last, OperatorRequest)
    queries.told("n-a", OperatorReply(last.request, ReplyCode.DONE, "3 shards move."))
    assert await waiting == OperatorReply(last.request, ReplyCode.DONE, "3 shards move.")
