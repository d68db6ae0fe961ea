"""A singleton lives on the node that has been there longest, and stays there."""

from sharding_app.protocol.allocation.singleton import OldestAllocation
from tests.unit.protocol.allocation.regions import regions, view


def test_the_oldest_gets_it_however_much_it_has() -> None:
    assert OldestAllocation().allocate("C", 0, regions(5, 0, 0), view("ABC")) == "A"


def test_one_that_leaves_is_the_last_choice() -> None:
    oldest = OldestAllocation()
    assert oldest.allocate("A", 0, regions(0, 0, 0), view("ABC", leaving="AB")) == "C"
    assert oldest.allocate("A", 0, regions(0, 0), view("AB", leaving="AB")) == "A", (
        "of those that leave the oldest"
    )


def test_one_that_nothing_is_known_of_does_not_leave() -> None:
    assert OldestAllocation().allocate("B", 0, regions(0, 0), view("B")) == "A"


def test_nothing_moves_by_itself() -> None:
    assert OldestAllocation().rebalance(regions(5, 0), set(), view("AB", leaving="A")) == []
