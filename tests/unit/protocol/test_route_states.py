"""The states of a route: the table has each transition that a region makes, and no other."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from sharding_app.protocol import region as region_module
from sharding_app.protocol.call import Call
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import ROUTE, RegionLimits, RegionRoutes, Route, RouteState
from sharding_app.protocol.transitions import IllegalTransition

NODES = "abc"
SHARDS = (0, 1)


class Noted(dict[Any, Any]):
    """The table, with a note of each transition that is looked up."""

    def __init__(self) -> None:
        self.seen: set[tuple[RouteState, RouteState]] = set()

    def __getitem__(self, before: RouteState) -> Any:
        return NotedFollowers(before, self.seen)


class NotedFollowers(dict[Any, Any]):
    def __init__(self, before: RouteState, seen: set[tuple[RouteState, RouteState]]) -> None:
        self.before = before
        self.seen = seen

    def __getitem__(self, after: RouteState) -> RouteState:
        self.seen.add((self.before, after))
        return ROUTE[self.before][after]


def some_events(region: RegionRoutes, random: random.Random, now: float, epoch: int) -> None:
    """Let one of all events happen to a region."""
    shard, node = random.choice(SHARDS), random.choice(NODES)
    under_way = [each for each in region.pending.values() if each.home is not None]
    kind = random.randrange(8)
    if kind <= 1:
        request = epoch * 10 + kind
        region.submit(PendingCall(request, Call("t", "e", "c", b""), shard, now, now + 5.0), now)
    elif kind == 2 and under_way:
        done = random.choice(under_way)
        region.resolved(region.pending.pop(done.request), now)
    elif kind == 3 and under_way:
        one = random.choice(under_way)
        back = [each for each in under_way if (each.shard, each.epoch) == (one.shard, one.epoch)]
        region.handed_back(str(one.home), one.epoch, back[: random.randint(1, len(back))], now)
    elif kind <= 5:
        route, era = region.routes.get(shard), epoch // 30
        if route is not None and route.home is not None and random.random() < 0.3:
            region.home_told(shard, route.home, route.epoch, now, era)  # it stays in a new era
        else:
            region.home_told(shard, node, epoch - random.randrange(3), now, era)
    elif kind == 6:
        region.hand_off_begins([shard], now)
    else:
        region.gone(node, now)


def expected(route: Route) -> Iterator[RouteState]:
    """Return the states that fit the homes of a route."""
    if route.next_home is not None:
        yield from (RouteState.DRAINING, RouteState.DRAINING_HELD)
    elif route.home is None:
        yield RouteState.UNKNOWN
    else:
        yield from (RouteState.OPEN, RouteState.HELD)


def test_a_region_makes_each_transition_of_the_table_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    monkeypatch.setattr(region_module, "ROUTE", noted)
    for seed in range(150):
        chance = random.Random(seed)
        region = RegionRoutes("t", {}, RegionLimits())
        for step in range(1, 150):
            some_events(region, chance, step / 10, step)
            region.out.clear()
            for route in region.routes.values():
                assert route.state in expected(route), (seed, step)
                assert route.outstanding or route.next_home is None, "nothing to wait for"
    assert noted.seen == {(before, after) for before, then in ROUTE.items() for after in then}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RouteState.UNKNOWN, RouteState.HELD),
        (RouteState.OPEN, RouteState.DRAINING_HELD),
        (RouteState.DRAINING, RouteState.HELD),
    ],
)
def test_an_illegal_transition_raises(before: RouteState, after: RouteState) -> None:
    route = Route(1)
    route.state = before
    with pytest.raises(IllegalTransition, match=f"a route that is {before.name} cannot become {after.name}"):
        route.become(after)
    assert route.state is before
