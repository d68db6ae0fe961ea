"""Conformance rows A4: consistent hashing. The reference's places follow from its hash; ours are as
stable.
"""

from collections import Counter

import pytest

from sharding_app.protocol.allocation.consistent_hashing import ConsistentHashAllocation
from sharding_app.protocol.allocation.strategy import ClusterView, Host
from tests.unit.protocol.allocation.regions import MIXED_VERSIONS, Regions, moved, regions, sizes, view

SHARDS = range(1000)


def empty(names: str) -> Regions:
    return {name: [] for name in names}


def places(names: str, strategy: ConsistentHashAllocation | None = None) -> dict[int, str]:
    chosen = strategy or ConsistentHashAllocation()
    return {shard: chosen.allocate(None, shard, empty(names), view(names)) for shard in SHARDS}


def filled(names: str) -> Regions:
    of = empty(names)
    for shard, name in places(names).items():
        of[name].append(shard)
    return of


def test_a4_1_places_are_stable_and_spread() -> None:
    first = places("ABC")
    assert first == places("ABC")
    assert first == places("CAB")
    assert min(Counter(first.values()).values()) > 100
    assert len(Counter(places("ABC", ConsistentHashAllocation(virtual_nodes=200)).values())) == 3


def test_a4_1_places_do_not_change_between_releases() -> None:
    assert [places("ABC")[shard] for shard in (0, 1, 2, 3, 10, 14)] == list(PINNED)


PINNED = "ACBACB"


def test_a4_2_a_node_that_goes_moves_only_its_own_shards() -> None:
    before, after = places("ABC"), places("AB")
    assert {before[shard] for shard in SHARDS if before[shard] != after[shard]} == {"C"}


def test_a4_3_a_node_that_comes_gets_shards_and_nothing_else_moves() -> None:
    before, after = places("ABC"), places("ABCD")
    assert {after[shard] for shard in SHARDS if before[shard] != after[shard]} == {"D"}


def test_a4_4_nothing_moves_while_the_nodes_are_the_same() -> None:
    assert ConsistentHashAllocation().rebalance(filled("ABC"), set(), view("ABC")) == []


@pytest.mark.parametrize("order", ["ABCD", "DCBA", "CADB"])
def test_a4_5_exactly_the_shards_of_the_new_node_move(order: str) -> None:
    of = {**filled("ABC"), "D": []}
    given = {name: of[name] for name in order}
    wanted = sorted(shard for shard, name in places("ABCD").items() if name == "D")
    strategy, seen = ConsistentHashAllocation(), view(order)
    chosen = strategy.rebalance(given, set(), seen)
    assert chosen == wanted
    after = moved(strategy, given, chosen, seen)
    assert after["D"] == wanted
    assert sum(sizes(after)) == len(SHARDS)


def test_a4_7_what_is_on_the_move_is_not_chosen_again() -> None:
    given = {**filled("ABC"), "D": []}
    strategy, seen = ConsistentHashAllocation(), view("ABCD")
    wanted = set(strategy.rebalance(given, set(), seen))
    right = next(shard for shard in SHARDS if shard not in wanted)
    assert strategy.rebalance(given, wanted, seen) == []
    assert strategy.rebalance(given, {*wanted, right}, seen) == []
    first = min(wanted)
    assert set(strategy.rebalance(given, {first}, seen)) == wanted - {first}


def test_a_limit_counts_what_is_on_the_move() -> None:
    given = {**filled("ABC"), "D": []}
    strategy, seen = ConsistentHashAllocation(rebalance_limit=3), view("ABCD")
    first = strategy.rebalance(given, set(), seen)
    assert len(first) == 3
    assert len(strategy.rebalance(given, {first[0]}, seen)) == 2
    assert strategy.rebalance(given, set(first), seen) == []


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(view("ABC", versions=MIXED_VERSIONS), id="A4.8 rolling update"),
        pytest.param(view("ABC", settled=False), id="A4.9 and A4.10 unreachable or joining"),
    ],
)
def test_nothing_moves_at_a_bad_time(seen: ClusterView) -> None:
    all_on_one = {"A": list(SHARDS), "B": [], "C": []}
    assert ConsistentHashAllocation().rebalance(all_on_one, set(), seen) == []


def test_a_restarted_node_of_the_same_name_has_the_same_places() -> None:
    strategy = ConsistentHashAllocation()
    before = ClusterView({each: Host(each, name=each[0]) for each in ("a-1", "b-1")})
    after = ClusterView({each: Host(each, name=each[0]) for each in ("b-1", "a-2")})
    for shard in SHARDS:
        old = strategy.allocate(None, shard, {"a-1": [], "b-1": []}, before)
        assert strategy.allocate(None, shard, {"b-1": [], "a-2": []}, after)[0] == old[0]


def test_two_nodes_of_one_name_share_the_work() -> None:
    seen = ClusterView({each: Host(each, name="twin") for each in ("a", "b")})
    strategy = ConsistentHashAllocation()
    assert {strategy.allocate(None, shard, {"a": [], "b": []}, seen) for shard in SHARDS} == {"a", "b"}


def test_a_leaving_node_gets_nothing_while_another_is_there() -> None:
    strategy, seen = ConsistentHashAllocation(), view("AB", leaving="A")
    assert {strategy.allocate(None, shard, empty("AB"), seen) for shard in SHARDS} == {"B"}
    assert strategy.allocate(None, 1, empty("A"), view("A", leaving="A")) == "A"


def test_bad_numbers_are_refused() -> None:
    for limit, factor in ((-1, 10), (0, 0)):
        with pytest.raises(ValueError, match="virtual_nodes"):
            ConsistentHashAllocation(limit, factor)


def test_nothing_moves_while_more_is_under_way_than_the_limit_allows() -> None:
    strategy, given, seen = ConsistentHashAllocation(rebalance_limit=2), regions(50, 0, 0), view("ABC")
    assert len(strategy.rebalance(given, set(), seen)) == 2
    assert strategy.rebalance(given, {1, 2, 3}, seen) == []
