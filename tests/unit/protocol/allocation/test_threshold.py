"""Conformance rows A2: the older strategy, with a threshold and a number that may move at a
time.
"""

import pytest

from sharding_app.protocol.allocation.threshold import ThresholdAllocation
from tests.unit.protocol.allocation.regions import MIXED_VERSIONS, regions, view


def test_a2_1_a_new_shard_goes_to_the_region_with_the_fewest() -> None:
    assert ThresholdAllocation(3, 10).allocate("A", 3, regions(1, 1, 0), view("ABC")) == "C"


@pytest.mark.parametrize(
    ("threshold", "most", "given", "rounds"),
    [
        pytest.param(1, 10, (2, 0, 0), [{1}, set()], id="A2.2"),
        pytest.param(1, 10, (1, 1, 0), [set()], id="A2.3"),
        pytest.param(1, 10, (1, 2, 0), [{2}, set()], id="A2.4"),
        pytest.param(1, 10, (3, 0, 0), [{1}, {2}], id="A2.5"),
        pytest.param(1, 10, (4, 4, 2), [{1}, {5}], id="A2.7"),
        pytest.param(2, 10, (2, 2, 0), [set()], id="A2.9"),
        pytest.param(2, 10, (3, 3, 0), [{1}, {4}, set()], id="A2.10"),
        pytest.param(2, 10, (4, 4, 0), [{1, 2}, {5, 6}, set()], id="A2.11"),
        pytest.param(2, 100, (50, 50, 0), [{1, 2}, {51, 52}, {3, 4}], id="A2.13"),
    ],
)
def test_what_is_chosen_while_the_earlier_ones_move(
    threshold: int, most: int, given: tuple[int, ...], rounds: list[set[int]]
) -> None:
    strategy, seen = ThresholdAllocation(threshold, most), view("ABC")
    moving: set[int] = set()
    for expected in rounds:
        chosen = strategy.rebalance(regions(*given), moving, seen)
        assert set(chosen) == expected
        moving |= expected


def test_a2_15_those_on_the_move_take_the_room_of_others() -> None:
    chosen = ThresholdAllocation(3, 4).rebalance(regions(10, 0, 0), {2, 3}, view("ABC"))
    assert set(chosen) == {1, 4}
    assert ThresholdAllocation(3, 2).rebalance(regions(10, 0, 0), {2, 3}, view("ABC")) == []


@pytest.mark.parametrize("in_progress", [set(), {1, 2}, {1, 2, 51, 52}])
def test_a2_17_nothing_moves_while_versions_are_mixed(in_progress: set[int]) -> None:
    # The empty region is the most suitable one only in the second case.
    for versions in (MIXED_VERSIONS, ("1.0.0", "1.0.0", "1.0.1")):
        seen = view("ABC", versions=versions)
        assert ThresholdAllocation(2, 100).rebalance(regions(5, 5, 0), in_progress, seen) == []


@pytest.mark.parametrize("in_progress", [set(), {1, 2}, {1, 2, 51, 52}])
def test_a2_19_nothing_moves_while_a_node_joins(in_progress: set[int]) -> None:
    seen = view("ABC", settled=False)
    assert ThresholdAllocation(2, 100).rebalance(regions(5, 5, 0), in_progress, seen) == []


def test_the_lowest_numbers_move_in_whatever_order_the_region_got_them() -> None:
    """Two coordinators that read the rows in another order choose alike."""
    allocations = {"A": [7, 2, 9, 4], "B": [1]}
    assert ThresholdAllocation(1, 10).rebalance(allocations, set(), view("AB")) == [2]


def test_bad_numbers_are_refused() -> None:
    for threshold, most in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            ThresholdAllocation(threshold, most)
