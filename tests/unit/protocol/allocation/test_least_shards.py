"""Conformance rows A1 and A3: the default strategy."""

import random
from itertools import chain

import pytest

from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from tests.unit.protocol.allocation.regions import MIXED_VERSIONS, Regions, moved, regions, sizes, view


def plain(absolute: int = 1000, relative: float = 1.0) -> LeastShardAllocation:
    return LeastShardAllocation(absolute, relative)


def test_a1_1_a_new_shard_goes_to_the_region_with_the_fewest() -> None:
    assert plain().allocate("A", 3, regions(1, 1, 0), view("ABC")) == "C"


def test_without_regions_nothing_moves() -> None:
    assert plain().rebalance({}, set(), view("")) == []


@pytest.mark.parametrize(
    ("strategy", "given", "chosen", "after"),
    [
        pytest.param(plain(), (1, 2, 0), [2], (1, 1, 1), id="A1.2"),
        pytest.param(plain(), (2, 0, 0), [1], (1, 1, 0), id="A1.3"),
        pytest.param(plain(), (1, 1, 0), [], (1, 1, 0), id="A1.4"),
        pytest.param(plain(), (3, 0, 0), [1, 2], (1, 1, 1), id="A1.5"),
        pytest.param(plain(), (4, 4, 0), [1, 5], (3, 3, 2), id="A1.6"),
        pytest.param(plain(), (4, 4, 2), [1], (3, 4, 3), id="A1.7"),
        pytest.param(plain(), (5, 5, 0), [1, 6], (4, 4, 2), id="A1.8"),
        pytest.param(
            plain(), (50, 50, 0), [*range(1, 17), *range(51, 67)], (34, 34, 32), id="A1.9 first round"
        ),
        pytest.param(plain(absolute=3), (1, 9, 0), [2, 3, 4], (2, 6, 2), id="A1.10"),
        pytest.param(plain(absolute=5, relative=0.3), (1, 9, 0), [2, 3, 4], (2, 6, 2), id="A1.11"),
    ],
)
def test_what_one_round_moves(
    strategy: LeastShardAllocation, given: tuple[int, ...], chosen: list[int], after: tuple[int, ...]
) -> None:
    before = regions(*given)
    seen = view("ABC")
    assert sorted(strategy.rebalance(before, set(), seen)) == chosen
    assert sizes(moved(strategy, before, chosen, seen)) == after


def test_a1_9_a_second_round_moves_the_one_that_is_left() -> None:
    strategy, seen = plain(), view("ABC")
    first = regions(50, 50, 0)
    second = moved(strategy, first, strategy.rebalance(first, set(), seen), seen)
    chosen = strategy.rebalance(second, set(), seen)
    assert chosen == [17]
    third = moved(strategy, second, chosen, seen)
    assert sizes(third) == (33, 34, 33)
    assert strategy.rebalance(third, set(), seen) == []


def test_a1_12_nothing_more_moves_while_something_does() -> None:
    assert plain().rebalance(regions(10, 0, 0), {2, 3}, view("ABC")) == []


@pytest.mark.parametrize("in_progress", [set(), {1, 2}, {1, 2, 51, 52}])
def test_a1_14_nothing_moves_while_versions_are_mixed(in_progress: set[int]) -> None:
    seen = view("ABC", versions=MIXED_VERSIONS)
    assert plain().rebalance(regions(5, 5, 0), in_progress, seen) == []


@pytest.mark.parametrize("in_progress", [set(), {1, 2}, {1, 2, 51, 52}])
def test_a1_16_nothing_moves_while_a_node_joins(in_progress: set[int]) -> None:
    assert plain().rebalance(regions(5, 5, 0), in_progress, view("ABC", settled=False)) == []


def test_leaving_regions_come_last_and_the_newest_version_first() -> None:
    strategy = plain()
    given = regions(0, 5, 7)
    assert strategy.allocate(None, 99, given, view("ABC", leaving="A")) == "B"
    newer = view("ABC", versions=("1.9.0", "1.10.0", "1.9.0"))
    assert strategy.allocate(None, 99, given, newer) == "B"
    assert strategy.allocate(None, 99, given, view("ABC", versions=("1.0", "1.0", "1.0-rc"))) == "A"
    leaving_and_newest = view("ABC", versions=("1", "2", "1"), leaving="B")
    assert strategy.allocate(None, 99, given, leaving_and_newest) == "A"


def test_the_older_of_two_equal_regions_is_chosen() -> None:
    assert plain().allocate(None, 99, regions(2, 1, 1), view("ABC")) == "B"


def test_the_lower_of_the_two_limits_counts_but_one_may_always_move() -> None:
    assert len(LeastShardAllocation(20, 0.1).rebalance(regions(1000, 0), set(), view("AB"))) == 20
    assert len(LeastShardAllocation(20, 0.1).rebalance(regions(100, 0), set(), view("AB"))) == 10
    assert len(LeastShardAllocation(20, 0.1).rebalance(regions(4, 0), set(), view("AB"))) == 1


def test_where_a_limit_cuts_the_fullest_region_gives_first() -> None:
    assert plain(absolute=2).rebalance(regions(8, 12, 0), set(), view("ABC")) == [9, 10]


def test_bad_limits_are_refused() -> None:
    for absolute, relative in ((0, 0.5), (1, 0.0), (1, 1.1)):
        with pytest.raises(ValueError, match="absolute_limit"):
            LeastShardAllocation(absolute, relative)


# -- A3: rounds until it is even -------------------------------------------------------------------


def scattered(chance: random.Random, most_regions: int, most_shards: int) -> Regions:
    """Put a random number of shards anywhere."""
    given = regions(*[0] * chance.randint(1, most_regions))
    names = list(given)
    for shard in range(1, chance.randint(1, most_shards) + 1):
        given[chance.choice(names)].append(shard)
    return given


def rounds_until_even(strategy: LeastShardAllocation, given: Regions, most: int) -> tuple[int, Regions]:
    seen = view(given)
    for number in range(most + 1):
        chosen = strategy.rebalance(given, set(), seen)
        if not chosen:
            return number, given
        given = moved(strategy, given, chosen, seen)
    return most + 1, given


@pytest.mark.parametrize(
    ("most_regions", "most_shards", "rounds"),
    [(5, 5, 2), (5, 100, 2), (20, 20, 2), (20, 200, 5), (100, 100, 5), (100, 1000, 5)],
)
def test_a3_it_is_even_after_a_few_rounds(most_regions: int, most_shards: int, rounds: int) -> None:
    for _ in range(10):
        seed = random.SystemRandom().getrandbits(32)
        chance = random.Random(seed)
        before = scattered(chance, most_regions, most_shards)
        needed, after = rounds_until_even(plain(), before, rounds)
        assert needed <= rounds, f"seed {seed}"
        assert max(sizes(after)) - min(sizes(after)) <= 1, f"seed {seed}"
        assert sorted(chain(*after.values())) == sorted(chain(*before.values())), f"seed {seed}"


def test_a3_it_gets_even_with_any_limits() -> None:
    for _ in range(10):
        seed = random.SystemRandom().getrandbits(32)
        chance = random.Random(seed)
        strategy = plain(chance.randint(6, 12), chance.uniform(0.05, 1.0))
        before = scattered(chance, 20, 200)
        needed, after = rounds_until_even(strategy, before, 200)
        assert needed <= 200, f"seed {seed}"
        assert max(sizes(after)) - min(sizes(after)) <= 1, f"seed {seed}"
        assert sum(sizes(after)) == sum(sizes(before)), f"seed {seed}"
