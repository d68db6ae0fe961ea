"""The kept order of regions gives what looking at all of them gives, whatever changes in
between.
"""

import random

import pytest

from sharding_app.protocol.allocation.strategy import Candidates, ClusterView, Host, Offered, most_suitable

NAMES = "ABCDEFG"


def some_view(chance: random.Random) -> ClusterView:
    known = [each for each in NAMES if chance.random() < 0.9]
    return ClusterView(
        {each: Host(each, chance.choice(("1.0", "2.0")), chance.random() < 0.2, each) for each in known}
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_kept_order_is_the_true_one(seed: int) -> None:
    chance = random.Random(seed)
    shards: dict[str, dict[int, None]] = {each: {} for each in NAMES}
    candidates, view = Candidates(shards), some_view(chance)
    chosen = set()
    for shard in range(400):
        if chance.random() < 0.05:
            view = some_view(chance)
        best = candidates.most_suitable(view)
        assert best == most_suitable(dict(shards), view)
        assert best == most_suitable(candidates, view) == most_suitable(Offered(candidates), view)
        chosen.add(best)
        changed = best if chance.random() < 0.6 else chance.choice(NAMES)
        if shards[changed] and chance.random() < 0.4:
            shards[changed].popitem()
        else:
            shards[changed][shard] = None
        candidates.changed(changed)
    assert len(chosen) > 2, f"seed {seed} has shown nothing"


def test_what_a_strategy_is_offered_looks_like_the_regions_and_cannot_be_changed() -> None:
    offered = Offered(Candidates({"A": {1: None, 2: None}, "B": {}}))
    assert {name: list(shards) for name, shards in offered.items()} == {"A": [1, 2], "B": []}
    assert (len(offered), "B" in offered, "C" in offered) == (2, True, False)
    with pytest.raises(TypeError):
        offered["C"] = {}  # type: ignore[index]


def test_a_change_of_one_that_is_no_candidate_has_no_effect() -> None:
    view = ClusterView({"A": Host("A")})
    candidates = Candidates({"A": {}})
    assert candidates.most_suitable(view) == "A"
    candidates.changed("B")
    assert candidates.most_suitable(view) == "A"
