"""Where new shards lie."""

from collections import Counter

import pytest

from sharding_app.protocol.journals import journal_of

MANY = 4000


def spread(weights: dict[str, float]) -> list[str]:
    return [journal_of("shop.Cart", shard, weights) for shard in range(MANY)]


def test_without_weights_all_lie_in_the_clusters_own() -> None:
    assert set(spread({})) == {""}
    assert set(spread({"": 0.0})) == {""}


def test_shards_are_spread_by_weight() -> None:
    counts = Counter(spread({"": 1.0, "b": 2.0, "c": 1.0, "full": 0.0}))
    assert counts["full"] == 0
    assert counts["b"] == pytest.approx(MANY / 2, rel=0.1)
    assert counts[""] == pytest.approx(MANY / 4, rel=0.1)


def test_a_new_journal_takes_its_share_and_no_other_changes() -> None:
    before, after = spread({"": 1.0, "b": 1.0}), spread({"": 1.0, "b": 1.0, "c": 1.0})
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {new for _, new in moved} == {"c"}
    assert len(moved) == pytest.approx(MANY / 3, rel=0.1)


def test_types_are_spread_in_different_ways() -> None:
    weights = {"": 1.0, "b": 1.0}
    assert spread(weights) != [journal_of("shop.Auction", shard, weights) for shard in range(MANY)]


def test_workers_of_projections_lie_in_the_clusters_own() -> None:
    """They follow all journals: one that is down must not stop them for the others."""
    assert {journal_of("workers:projection:shop.Open", shard, {"": 0.0, "b": 1.0}) for shard in range(8)} == {
        ""
    }
