"""What waits or is under way in a process is bounded: for a type, for one shard of it, and for all
types together.
"""

import time

import pytest

from sharding_app.protocol.call import Call
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import Refuse, RegionLimits, RegionRoutes, Total

HOME = "n-home"


def pending(request: int, shard: int, size: int = 0, type_name: str = "shop.Cart") -> PendingCall:
    return PendingCall(request, Call(type_name, "alice", "add", b"x" * size), shard, 0.0, 10.0)


def taken(region: RegionRoutes, shards: range, size: int = 0, first: int = 1) -> int:
    """Submit one call for each of these shards; return how many were taken."""
    before = region.calls
    for request, shard in enumerate(shards, first):
        region.submit(pending(request, shard, size, region.type), 0.0)
    return region.calls - before


def refused(region: RegionRoutes) -> list[int]:
    return [each.pending.request for each in region.out if isinstance(each, Refuse)]


def test_the_count_of_a_type_is_bounded() -> None:
    region = RegionRoutes("shop.Cart", {}, RegionLimits(max_calls=50))
    assert taken(region, range(60)) == 50
    assert refused(region) == list(range(51, 61))
    assert len(region.pending) == 50


def test_the_bytes_of_a_type_are_bounded() -> None:
    region = RegionRoutes("shop.Cart", {}, RegionLimits(max_bytes=100_000))
    assert taken(region, range(60), size=10_000) == 9
    assert region.bytes <= 100_000


@pytest.mark.parametrize("size", [0, 10_000])
def test_one_shard_leaves_room_for_the_others(size: int) -> None:
    """A caller that floods one entity keeps no other caller out."""
    limits = RegionLimits(max_calls=100, max_bytes=1_000_000)
    region = RegionRoutes("shop.Cart", {}, limits)
    for request in range(1, 500):
        region.submit(pending(request, 7, size), 0.0)
    assert 85 <= region.calls <= 90
    assert refused(region) == list(range(region.calls + 1, 500))
    assert taken(region, range(100, 104), size, first=1000) == 4


def test_one_type_leaves_room_for_the_others() -> None:
    limits = RegionLimits(max_bytes=500_000, max_total_bytes=1_000_000)
    total = Total()
    regions = [RegionRoutes(f"shop.T{number}", {}, limits, total) for number in range(3)]
    assert [taken(region, range(100), size=10_000) for region in regions] == [49, 49, 1]
    assert total.bytes <= 1_000_000


@pytest.mark.parametrize("how", ["answered", "abandoned", "dead", "no home"])
def test_all_room_is_given_back(how: str) -> None:
    total = Total()
    region = RegionRoutes("shop.Cart", {}, None, total)
    taken(region, range(20), size=1000)
    if how in ("answered", "dead"):
        for shard in range(20):
            region.home_told(shard, HOME, 1, 0.1)
    for each in list(region.pending.values()):
        if how == "answered":
            region.pending.pop(each.request)
            region.resolved(each, 0.2)
        elif how == "abandoned":
            region.abandon(each, 0.2)
        else:
            each.safe = False
    if how == "dead":
        region.gone(HOME, 0.2)
    elif how == "no home":
        region.no_home("no_host", 0.2)
    assert (region.calls, region.bytes, total.bytes) == (0, 0, 0)
    assert all(route.size == 0 for route in region.routes.values())
    assert not region.pending


def test_callers_give_up_at_once_however_many_others_wait() -> None:
    """Those with short timeouts stand behind others, and all of them give up in one tick."""
    region = RegionRoutes("T", {})
    for number in range(40_000):
        region.submit(pending(number, 0), 0.0)
    began = time.process_time()
    for number in range(20_000, 40_000):
        region.abandon(region.pending[number], 5.0)
    assert time.process_time() - began < 2.0, "a loop that is held for longer misses other deadlines"
    assert list(region.pending) == list(region.routes[0].waiting) == list(range(20_000))


def test_the_time_to_find_a_home_and_what_waits_for_it_are_known() -> None:
    region = RegionRoutes("T", {})
    for number, at in ((1, 1.0), (2, 1.5)):
        region.submit(pending(number, 0), at)
    assert region.waiting == 2
    region.tick(3.0)
    region.home_told(0, "n", 1, 4.0)
    assert region.waiting == 0
    assert (sum(region.total.home_seconds.counts), region.total.home_seconds.sum) == (1, 3.0), (
        "from the first"
    )
    region.home_told(0, "n", 1, 9.0)
    assert sum(region.total.home_seconds.counts) == 1


@pytest.mark.parametrize("how", ["no home", "given up"])
def test_a_search_that_was_given_up_is_no_part_of_the_next_one(how: str) -> None:
    region = RegionRoutes("T", {})
    first = pending(1, 0)
    region.submit(first, 1.0)
    if how == "no home":
        region.no_home("no_host", 2.0)
    else:
        region.abandon(first, 2.0)
    region.tick(3.0)
    region.out.clear()
    region.submit(pending(2, 0), 5000.0)
    assert [type(each).__name__ for each in region.out] == ["AskHomes"], "asked at once"
    region.home_told(0, "n", 1, 5001.0)
    assert region.total.home_seconds.sum == 1.0
