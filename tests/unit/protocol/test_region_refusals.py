"""A region says that a command was not taken only of what no home can have taken."""

from sharding_app.protocol.call import Call
from sharding_app.protocol.messages import MOST_LATER, Delivery
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import AskHomes, Forward, Refuse, RegionRoutes


def pending(request: int) -> PendingCall:
    return PendingCall(request, Call("shop.Cart", "alice", "add", b""), 3, 0.0, 10.0)


def refusals(region: RegionRoutes) -> dict[int, str]:
    found = {each.pending.request: each.reason for each in region.out if isinstance(each, Refuse)}
    region.out.clear()
    return found


def region_with_one_under_way() -> RegionRoutes:
    region = RegionRoutes("shop.Cart", {})
    region.submit(pending(1), 0.0)
    region.home_told(3, "dead", 1, 0.1)
    region.out.clear()
    return region


def test_what_waited_and_never_left_was_not_taken() -> None:
    region = RegionRoutes("shop.Cart", {})
    region.submit(pending(1), 0.0)
    region.no_home("no_host", 1.0)
    assert refusals(region) == {1: "no_host"}


def test_the_fate_of_what_had_reached_a_dead_home_is_unknown() -> None:
    region = region_with_one_under_way()
    region.gone("dead", 0.2)
    region.submit(pending(2), 0.3)
    region.no_home("no_host", 1.0)
    assert refusals(region) == {1: "fate_unknown", 2: "no_host"}
    assert not region.pending


def test_what_a_home_has_handed_back_was_not_taken() -> None:
    region = region_with_one_under_way()
    region.handed_back("dead", 1, list(region.pending.values()), 0.2)
    region.no_home("no_host", 1.0)
    assert refusals(region) == {1: "no_host"}


def test_a_home_that_hands_back_again_and_again_is_asked_for_after_a_pause() -> None:
    """It is at home by its row and cannot take anything yet, such as one that waits for a lease."""
    region = region_with_one_under_way()
    asked = []
    now = 0.2
    while now < 1.2:
        region.handed_back("dead", 1, list(region.pending.values()), now)
        now = round(now + 0.002, 3)
        region.tick(now)
        if any(isinstance(each, AskHomes) for each in region.out):
            asked.append(now)
            region.home_told(3, "dead", 1, now)
        region.out.clear()
    assert 3 <= len(asked) <= 6, asked


def test_another_home_is_asked_for_at_once() -> None:
    region = region_with_one_under_way()
    for epoch, home in ((1, "dead"), (1, "dead"), (2, "other")):
        region.home_told(3, home, epoch, 0.1)
        region.out.clear()
        region.handed_back(home, epoch, list(region.pending.values()), 0.2)
    assert [each.shards for each in region.out if isinstance(each, AskHomes)] == [[3]]


def test_what_may_not_be_handled_twice_is_not_sent_again() -> None:
    region = region_with_one_under_way()
    region.pending[1].safe = False
    region.gone("dead", 0.2)
    assert refusals(region) == {1: "fate_unknown"}
    assert not region.pending


def test_what_never_left_goes_again_whatever_it_is() -> None:
    region = region_with_one_under_way()
    waits = region.pending[1]
    waits.safe = False
    region.gone("dead", 0.2, unsent=[waits])
    assert refusals(region) == {}
    region.home_told(3, "new", 2, 0.3)
    assert [
        (each.pending.home, each.pending.attempt) for each in region.out if isinstance(each, Forward)
    ] == [("new", 1)]


def region_with_three_under_way() -> RegionRoutes:
    region = region_with_one_under_way()
    region.submit(pending(2), 0.1)
    other = PendingCall(3, Call("shop.Cart", "bob", "add", b""), 3, 0.0, 10.0)
    region.submit(other, 0.1)
    region.out.clear()
    return region


def test_a_call_that_goes_again_names_the_later_ones_to_its_entity() -> None:
    """The dead home may have refused the first one, its mailbox full, and have done the others. One
    of them is waited for no longer, and one has an id of its caller's.
    """
    region = region_with_three_under_way()
    region.submit(
        PendingCall(4, Call("shop.Cart", "alice", "add", b"", command_id="mine"), 3, 0.1, 10.0), 0.1
    )
    region.abandon(region.pending[2], 0.15)
    region.gone("dead", 0.2)
    assert refusals(region) == {2: "fate_unknown"}
    assert {each.request: each.later for each in region.pending.values()} == {1: (2, "mine"), 3: (), 4: ()}


def test_a_call_with_too_many_later_ones_does_not_go_again() -> None:
    region = region_with_one_under_way()
    for number in range(2, MOST_LATER + 3):
        region.submit(pending(number), 0.1)
    region.out.clear()
    region.gone("dead", 0.2)
    assert refusals(region) == {1: "fate_unknown"}
    assert len(region.pending[2].later) == MOST_LATER


def test_the_owner_of_a_message_hears_that_a_home_has_died_with_it() -> None:
    """It counts the deaths: a message must not end one node after another."""
    region = region_with_one_under_way()
    region.pending[1].call.delivery, region.pending[1].safe = Delivery("m1"), False
    region.gone("dead", 0.2)
    assert refusals(region) == {1: "home_died"}
    assert not region.pending


def test_a_message_goes_again_whatever_is_behind_it_for_its_row_decides() -> None:
    region = region_with_one_under_way()
    region.pending[1].call.delivery = Delivery("m1")
    for number in range(2, MOST_LATER + 3):
        region.submit(pending(number), 0.1)
    region.out.clear()
    region.gone("dead", 0.2)
    assert refusals(region) == {}
    assert region.pending[1].later == ()
    region.home_told(3, "new", 2, 0.3)
    region.gone("new", 0.4)
    assert refusals(region)[1] == "poisonous", "its second death"


def test_no_call_goes_again_behind_a_later_one_that_may_not_be_handled_twice() -> None:
    region = region_with_three_under_way()
    region.pending[2].safe = False
    region.gone("dead", 0.2)
    assert refusals(region) == {1: "fate_unknown", 2: "fate_unknown"}
    assert list(region.pending) == [3]


def test_a_call_goes_again_behind_an_earlier_one_that_does_not() -> None:
    region = region_with_three_under_way()
    region.abandon(region.pending[1], 0.15)
    region.gone("dead", 0.2)
    assert refusals(region) == {1: "fate_unknown"}
    assert list(region.pending) == [2, 3]
