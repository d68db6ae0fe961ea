"""A region says that a command was not taken only of what no home can have taken."""

from sharding_app.core.parcel import Parcel
from sharding_app.core.region import Refuse, Region


def parcel(request: int) -> Parcel:
    return Parcel(request, "shop.Cart", 3, "alice", "add", b"", 0.0, 10.0)


def refusals(region: Region) -> dict[int, str]:
    found = {each.parcel.request: each.reason for each in region.out if isinstance(each, Refuse)}
    region.out.clear()
    return found


def region_with_one_under_way() -> Region:
    region = Region("shop.Cart", {})
    region.submit(parcel(1), 0.0)
    region.home_told(3, "dead", 1, 0.1)
    region.out.clear()
    return region


def test_what_waited_and_never_left_was_not_taken() -> None:
    region = Region("shop.Cart", {})
    region.submit(parcel(1), 0.0)
    region.no_home("no_host", 1.0)
    assert refusals(region) == {1: "no_host"}


def test_the_fate_of_what_had_reached_a_dead_home_is_unknown() -> None:
    region = region_with_one_under_way()
    region.gone("dead", 0.2)
    region.submit(parcel(2), 0.3)
    region.no_home("no_host", 1.0)
    assert refusals(region) == {1: "fate_unknown", 2: "no_host"}
    assert not region.pending


def test_what_a_home_has_handed_back_was_not_taken() -> None:
    region = region_with_one_under_way()
    region.handed_back("dead", 1, list(region.pending.values()), 0.2)
    region.no_home("no_host", 1.0)
    assert refusals(region) == {1: "no_host"}
