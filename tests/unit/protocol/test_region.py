"""Where a region sends what: to homes that it was told of, in order, and never to two at a time."""

from collections.abc import Sequence

from sharding_app.protocol.call import Call
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import AskHomes, Forward, Refuse, RegionLimits, RegionRoutes

SHARD = 3
LIMITS = RegionLimits(retry_seconds=0.5)


def pending(request: int, shard: int = SHARD) -> PendingCall:
    return PendingCall(request, Call("shop.Cart", "alice", "add", b""), shard, 0.0, 10.0)


def a_region() -> RegionRoutes:
    return RegionRoutes("shop.Cart", {}, LIMITS)


def submit(region: RegionRoutes, *requests: int, now: float = 0.0) -> list[bool]:
    return [region.submit(pending(request), now) for request in requests]


def sent(region: RegionRoutes) -> list[tuple[int, str | None, int]]:
    """What goes out now: request, home and epoch."""
    found = [
        (each.pending.request, each.pending.home, each.pending.epoch)
        for each in region.out
        if isinstance(each, Forward)
    ]
    region.out[:] = [each for each in region.out if not isinstance(each, Forward)]
    return found


def asked(region: RegionRoutes) -> list[tuple[list[int], bool]]:
    """Which homes are asked for now, and whether again."""
    found = [(each.shards, each.again) for each in region.out if isinstance(each, AskHomes)]
    region.out[:] = [each for each in region.out if not isinstance(each, AskHomes)]
    return found


def resolve(region: RegionRoutes, requests: Sequence[int], now: float = 1.0) -> None:
    for request in requests:
        region.resolved(region.pending.pop(request), now)


def with_home(*requests: int, home: str = "n-1", epoch: int = 5) -> RegionRoutes:
    """A region that knows the home, with these requests under way to it."""
    region = a_region()
    region.submit(pending(1000), 0.0)
    region.home_told(SHARD, home, epoch, 0.0)
    resolve(region, [1000], 0.0)
    region.out.clear()
    assert submit(region, *requests) == [True] * len(requests)
    return region


# -- The first home --------------------------------------------------------------------------------


def test_what_waits_goes_to_its_home_in_order_once_that_is_told() -> None:
    region = a_region()
    assert submit(region, 1, 2, 3) == [False] * 3
    assert asked(region) == [([SHARD], False)], "once"
    assert region.waiting == 3
    region.home_told(SHARD, "n-1", 5, 0.1)
    assert sent(region) == [(1, "n-1", 5), (2, "n-1", 5), (3, "n-1", 5)]
    assert region.waiting == 0
    assert submit(region, 4) == [True], "it goes out at once"
    assert (region.pending[4].home, region.pending[4].epoch) == ("n-1", 5)
    assert region.out == []


def test_the_next_home_is_asked_for_as_soon_as_the_former_one_has_resolved_its_last_call() -> None:
    region = with_home(1, 2)
    region.handed_back("n-1", 5, [region.pending[1]], 1.0)
    assert asked(region) == [], "a call is still open at the former home"
    resolve(region, [2])
    assert asked(region) == [([SHARD], False)]


def test_homes_that_are_wanted_together_are_asked_for_together() -> None:
    region = a_region()
    for request, shard in enumerate((7, 8, 7, 9)):
        region.submit(pending(request, shard), 0.0)
    assert asked(region) == [([7, 8, 9], False)]


def test_a_home_that_is_not_told_is_asked_for_again_after_a_while() -> None:
    region = a_region()
    submit(region, 1)
    asked(region)
    for now, expected in ((0.4, []), (0.5, [([SHARD], True)]), (0.9, []), (1.0, [([SHARD], True)])):
        region.tick(now)
        assert asked(region) == expected
    region.home_told(SHARD, "n-1", 5, 1.1)
    sent(region)
    region.tick(9.0)
    assert asked(region) == []
    assert region._unsettled == set(), "it is not looked at any more"


def test_a_shard_that_moves_is_asked_for_no_earlier_because_nothing_waited_for_it() -> None:
    region = a_region()
    submit(region, 1)
    region.home_told(SHARD, "n-1", 5, 0.1)
    region.hand_off_begins([SHARD], 10.0)
    asked(region)
    region.tick(10.1)
    submit(region, 2, now=10.2)
    region.tick(10.3)
    assert asked(region) == []
    region.tick(10.5)
    assert asked(region) == [([SHARD], True)]


def test_a_home_is_found_without_a_message() -> None:
    region = with_home()
    region.find([SHARD, 4], 1.0)
    assert asked(region) == [([4], False)], "the other one is known"
    region.tick(1.5)
    assert asked(region) == [([4], True)]
    region.home_told(4, "n-2", 1, 1.6)
    region.tick(9.0)
    assert asked(region) == []


def test_who_was_told_of_a_shard_that_is_not_wanted_asks_nothing() -> None:
    region = a_region()
    region.home_told(SHARD, "n-1", 5, 0.0)
    assert not region.knows("n-1")
    assert asked(region) == []
    assert region.routes == {}


def test_a_search_that_was_given_up_begins_anew_with_the_next_message() -> None:
    region = a_region()
    submit(region, 1)
    region.abandon(region.pending[1], 0.2)
    assert (region.calls, region.pending) == (0, {})
    asked(region)
    region.tick(5.0)
    assert asked(region) == []
    submit(region, 2, now=6.0)
    assert asked(region) == [([SHARD], False)]


# -- Another home ----------------------------------------------------------------------------------


def test_a_home_of_an_older_epoch_is_not_believed() -> None:
    region = with_home(epoch=5)
    region.home_told(SHARD, "n-old", 4, 0.2)
    submit(region, 1)
    assert region.pending[1].home == "n-1"
    region.home_told(SHARD, "n-2", 7, 0.3)
    region.home_told(SHARD, "n-late", 6, 0.4)
    resolve(region, [1])
    submit(region, 2)
    assert region.pending[2].home == "n-2", "nor one that is older than the one to come"


def test_nothing_goes_to_a_new_home_before_the_former_one_has_resolved_all() -> None:
    region = with_home(1, 2)
    region.home_told(SHARD, "n-2", 6, 0.2)
    assert submit(region, 3) == [False]
    assert asked(region) == [], "the new one is known"
    resolve(region, [1])
    assert sent(region) == []
    resolve(region, [2])
    assert sent(region) == [(3, "n-2", 6)]
    assert submit(region, 4) == [True]


def test_a_home_that_stays_in_a_new_era_gets_calls_at_once() -> None:
    """A question of a follower may wait there for a minute."""
    region = with_home(1)
    region.home_told(SHARD, "n-1", 5, 0.2, era=7)
    assert submit(region, 2) == [True]
    region.home_told(SHARD, "n-old", 9, 0.3)
    assert submit(region, 3) == [True], "a home of the former era is not believed"
    region.home_told(SHARD, "n-2", 5, 0.4, era=8)
    assert submit(region, 4) == [False], "another home waits for the calls at the former one"


def test_a_home_that_stays_in_a_new_era_gets_calls_though_the_former_era_had_another_one() -> None:
    """The next home, and its hand-off that had begun, are among what the server has lost."""
    region = with_home(1)
    region.home_told(SHARD, "n-2", 6, 0.2)
    assert submit(region, 2) == [False]
    region.hand_off_begins([SHARD], 0.3)
    region.home_told(SHARD, "n-1", 5, 0.4, era=7)
    assert sent(region) == [(2, "n-1", 5)]
    assert submit(region, 3) == [True]


def test_what_the_former_home_hands_back_goes_first() -> None:
    region = with_home(1, 2)
    region.home_told(SHARD, "n-2", 6, 0.2)
    submit(region, 3)
    region.handed_back("n-1", 5, [region.pending[1], region.pending[2]], 0.3)
    assert sent(region) == [(1, "n-2", 6), (2, "n-2", 6), (3, "n-2", 6)]


def test_a_home_that_is_told_while_one_hands_back_in_parts_waits_for_the_rest() -> None:
    region = with_home(1, 2)
    region.handed_back("n-1", 5, [region.pending[2]], 0.3)
    assert asked(region) == []
    region.home_told(SHARD, "n-2", 6, 0.4)
    assert sent(region) == [], "the first one is at the former home still"
    region.handed_back("n-1", 5, [region.pending[1]], 0.5)
    assert sent(region) == [(1, "n-2", 6), (2, "n-2", 6)]


def test_one_that_hands_back_is_the_home_no_more_and_another_is_asked_for() -> None:
    region = with_home(1)
    region.handed_back("n-1", 5, [region.pending[1]], 0.3)
    assert asked(region) == [([SHARD], False)]
    assert submit(region, 2) == [False]
    assert (sent(region), asked(region)) == ([], [])


def test_what_another_process_hands_back_is_no_concern_of_the_home() -> None:
    region = with_home(1)
    region.handed_back("n-other", 5, [region.pending[1]], 0.3)
    assert (sent(region), asked(region)) == ([], [])
    assert submit(region, 2) == [True]


def test_its_epoch_alone_may_change() -> None:
    """The same node, once more: what is under way there was sent to its former epoch."""
    region = with_home(1)
    region.home_told(SHARD, "n-1", 6, 0.2)
    assert submit(region, 2) == [False]
    resolve(region, [1])
    assert sent(region) == [(2, "n-1", 6)]


# -- A home that stops -----------------------------------------------------------------------------


def test_a_shard_that_is_handed_off_is_held_until_its_home_is_told_again() -> None:
    region = with_home(1)
    region.hand_off_begins([SHARD, 99], 0.2)
    assert submit(region, 2) == [False]
    resolve(region, [1])
    assert (sent(region), asked(region)) == ([], [])
    region.tick(0.5)
    assert asked(region) == []
    region.tick(0.75)
    assert asked(region) == [([SHARD], True)], "the hand-off may have been given up"
    region.home_told(SHARD, "n-1", 5, 0.8)
    assert sent(region) == [(2, "n-1", 5)]
    assert submit(region, 3) == [True]


def test_a_hold_is_lifted_by_the_next_home_too() -> None:
    region = with_home(1)
    region.hand_off_begins([SHARD], 0.2)
    submit(region, 2)
    region.home_told(SHARD, "n-2", 6, 0.3)
    resolve(region, [1])
    assert sent(region) == [(2, "n-2", 6)]
    assert submit(region, 3) == [True]


def test_nothing_more_is_sent_to_a_home_that_leaves() -> None:
    region = with_home(1)
    region.submit(pending(9, 4), 0.0)
    region.home_told(4, "n-2", 1, 0.0)
    region.out.clear()
    region.left("n-1", 0.2)
    assert submit(region, 2) == [False]
    assert region.submit(pending(10, 4), 0.2), "another home is as before"
    region.left("n-stranger", 0.3)


# -- A home that dies ------------------------------------------------------------------------------


def test_what_was_under_way_at_a_dead_home_goes_first_to_the_next() -> None:
    region = with_home(1, 2)
    assert region.knows("n-1")
    region.hand_off_begins([SHARD], 0.1)
    submit(region, 3)
    region.gone("n-1", 0.2)
    assert not region.knows("n-1")
    assert asked(region) == [([SHARD], False)]
    region.home_told(SHARD, "n-2", 6, 0.3)
    assert sent(region) == [(1, "n-2", 6), (2, "n-2", 6), (3, "n-2", 6)], "and no hold is left"
    assert [region.pending[each].attempt for each in (1, 2, 3)] == [2, 2, 1]


def test_after_the_death_of_an_idle_home_the_next_message_asks_for_another() -> None:
    region = with_home()
    region.gone("n-1", 0.2)
    assert asked(region) == []
    submit(region, 1, now=0.3)
    assert asked(region) == [([SHARD], False)]


def test_a_home_to_come_may_die_before_it_is_one() -> None:
    region = with_home(1)
    region.home_told(SHARD, "n-2", 6, 0.2)
    submit(region, 2)
    region.gone("n-2", 0.3)
    resolve(region, [1])
    assert sent(region) == [(2, "n-1", 5)], "the former one, until it says otherwise"


def test_where_two_homes_died_a_command_is_not_sent_again() -> None:
    region = with_home(1)
    region.gone("n-1", 0.2)
    region.home_told(SHARD, "n-2", 6, 0.3)
    region.gone("n-2", 0.4)
    assert [(each.pending.request, each.reason) for each in region.out if isinstance(each, Refuse)] == [
        (1, "poisonous")
    ]
    assert (region.calls, region.pending) == (0, {})


def test_a_caller_that_gave_up_is_not_sent_for_again() -> None:
    region = with_home(1, 2)
    region.abandon(region.pending[1], 0.1)
    assert set(region.pending) == {1, 2}, "its home resolves it"
    region.handed_back("n-1", 5, list(region.pending.values()), 0.2)
    assert set(region.pending) == {2}
    region.home_told(SHARD, "n-2", 6, 0.3)
    assert sent(region) == [(2, "n-2", 6)]
    assert region.calls == 1


def test_only_the_shards_that_are_named_have_no_home() -> None:
    region = a_region()
    for request, shard in ((1, 7), (2, 8), (3, 9)):
        region.submit(pending(request, shard), 0.0)
    region.home_told(9, "n-1", 1, 0.1)
    region.out.clear()
    region.no_home("no_such_shard", 0.2, [7, 55])
    assert [each.pending.request for each in region.out if isinstance(each, Refuse)] == [1]
    region.out.clear()
    region.no_home("no_host", 0.3)
    assert [each.pending.request for each in region.out if isinstance(each, Refuse)] == [2], (
        "the third has one"
    )
