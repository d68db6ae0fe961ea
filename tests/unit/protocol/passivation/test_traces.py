"""How often a message finds its entity in memory, by strategy, for accesses of different kinds; and
at best.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from random import Random

import pytest

from sharding_app.protocol.passivation.recency import Tracked
from sharding_app.protocol.passivation.strategy import NAMED

LIMIT, ACCESSES = 100, 20_000
Trace = list[int]


def zipf(among: int, random: Random) -> Callable[[], int]:
    """Few are used often, and most seldom."""
    weights = list(accumulate(1 / (rank + 1) for rank in range(among)))
    return lambda: random.choices(range(among), cum_weights=weights)[0]


def popular() -> Trace:
    choose = zipf(2000, Random(1))
    return [choose() for _ in range(ACCESSES)]


def uniform() -> Trace:
    random = Random(2)
    return [random.randrange(1000) for _ in range(ACCESSES)]


def circle() -> Trace:
    """One after the other, and again, a few more than there is room for."""
    return [number % (LIMIT + 50) for number in range(ACCESSES)]


def popular_with_scans() -> Trace:
    """As a report does that goes once over everything."""
    choose, trace, scanned = zipf(1000, Random(3)), Trace(), 100_000
    while len(trace) < ACCESSES:
        trace += [choose() for _ in range(500)]
        trace += range(scanned, scanned + 500)
        scanned += 500
    return trace


def fashions() -> Trace:
    """What is popular changes altogether, now and then."""
    choose = zipf(500, Random(4))
    return [choose() + 10_000 * (number // 2500) for number in range(ACCESSES)]


def moving_on() -> Trace:
    """What was used last is used again soon, and then no more."""
    random = Random(5)
    return [number // 10 + random.randrange(60) for number in range(ACCESSES)]


TRACES = {each.__name__: each for each in (popular, uniform, circle, popular_with_scans, fashions, moving_on)}


@cache
def hits(trace_name: str, strategy_name: str) -> float:
    strategy, nodes, found = NAMED[strategy_name].strategy(LIMIT), dict[int, Tracked](), 0
    trace = TRACES[trace_name]()
    for entity in trace:
        found += entity in nodes
        node = nodes.get(entity) or nodes.setdefault(entity, Tracked(str(entity)))
        for evicted in strategy.touched(node):
            del nodes[int(evicted.id)]
    return found / len(trace)


@cache
def best(trace_name: str) -> float:
    """Of who knows what will come: the one goes that is needed last."""
    trace = TRACES[trace_name]()
    next_use, later = [0] * len(trace), dict[int, int]()
    for at in range(len(trace) - 1, -1, -1):
        next_use[at] = later.get(trace[at], len(trace))
        later[trace[at]] = at
    here, order, found = dict[int, int](), list[tuple[int, int]](), 0
    for at, entity in enumerate(trace):
        found += entity in here
        here[entity] = next_use[at]
        heapq.heappush(order, (-next_use[at], entity))
        while len(here) > LIMIT:
            use, entity_there = heapq.heappop(order)
            if here.get(entity_there) == -use:
                del here[entity_there]
    return found / len(trace)


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("strategy", NAMED)
def test_none_is_better_than_the_best(trace: str, strategy: str) -> None:
    assert 0 <= hits(trace, strategy) <= best(trace)


LRU, SEGMENTED, MRU, LFU, AGING, COMPOSITE = NAMED


@pytest.mark.parametrize(
    ("trace", "better", "worse"),
    [
        ("popular", LFU, LRU),
        ("popular", COMPOSITE, LRU),
        ("popular", SEGMENTED, LRU),
        ("circle", MRU, LRU),
        ("circle", COMPOSITE, LRU),
        ("popular_with_scans", COMPOSITE, LRU),
        ("popular_with_scans", SEGMENTED, LRU),
        ("popular_with_scans", LFU, LRU),
        ("fashions", AGING, LFU),
        ("fashions", COMPOSITE, LFU),
        ("fashions", LRU, LFU),
        ("moving_on", LRU, LFU),
        ("moving_on", LRU, MRU),
    ],
)
def test_each_is_good_at_what_it_is_for(trace: str, better: str, worse: str) -> None:
    assert hits(trace, better) > hits(trace, worse) + 0.02


@pytest.mark.parametrize("trace", ["popular", "popular_with_scans", "fashions", "circle"])
def test_the_composite_is_near_the_best_of_the_others(trace: str) -> None:
    others = max(hits(trace, each) for each in NAMED if each not in (COMPOSITE, MRU))
    assert hits(trace, COMPOSITE) >= others - 0.05
