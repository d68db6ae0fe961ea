"""Conformance rows A5 that the strategy alone answers; the client and the cluster's part are in
tests/unit/runtime/coordinator_shell/test_strategies.py."""

from sharding_app.protocol.allocation.external import ExternalAllocation
from tests.unit.protocol.allocation.regions import moved, regions, sizes, view


def test_a5_2_without_a_location_the_one_that_asked_gets_the_shard() -> None:
    strategy, given = ExternalAllocation(), regions(5, 1, 0)
    assert strategy.allocate("A", 9, given, view("ABC", locations={})) == "A"
    assert strategy.allocate("A", 9, given, view("ABC", locations={8: "node-b"})) == "A"


def test_a5_2_when_the_locations_cannot_be_read_the_one_that_asked_gets_the_shard() -> None:
    assert ExternalAllocation().allocate("B", 9, regions(5, 1, 0), view("ABC", locations=None)) == "B"


def test_where_no_region_or_a_stranger_asked_the_region_with_the_fewest_gets_it() -> None:
    strategy, given, seen = ExternalAllocation(), regions(5, 1, 0), view("ABC", locations={})
    assert strategy.allocate(None, 9, given, seen) == "C"
    assert strategy.allocate("p-web", 9, given, seen) == "C"


def test_a5_3_when_the_locations_cannot_be_read_nothing_moves() -> None:
    assert ExternalAllocation().rebalance(regions(5, 1, 0), set(), view("ABC", locations=None)) == []


def test_a_location_goes_before_the_one_that_asked() -> None:
    seen = view("ABC", locations={9: "node-b"})
    assert ExternalAllocation().allocate("A", 9, regions(5, 1, 0), seen) == "B"


def test_a_shard_moves_to_its_new_location_and_others_stay() -> None:
    strategy, given = ExternalAllocation(), regions(3, 0, 0)
    seen = view("ABC", locations={2: "node-c", 3: "node-a"})
    chosen = strategy.rebalance(given, set(), seen)
    assert chosen == [2]
    assert strategy.rebalance(given, {2}, seen) == []
    after = moved(strategy, given, chosen, seen)
    assert after["C"] == [2]
    assert sizes(after) == (2, 0, 1)
    assert strategy.rebalance(after, set(), seen) == []


def test_a_location_that_is_not_there_yet_moves_nothing_until_it_is() -> None:
    strategy, given = ExternalAllocation(), regions(2, 0)
    wishes = {1: "node-d"}
    assert strategy.rebalance(given, set(), view("AB", locations=wishes)) == []
    assert strategy.allocate("B", 1, given, view("AB", locations=wishes)) == "B"
    given["D"] = []
    assert strategy.rebalance(given, set(), view("ABD", locations=wishes)) == [1]
    assert strategy.allocate("B", 1, given, view("ABD", locations=wishes)) == "D"
