"""The pause between two attempts."""

import pytest

from sharding_app.protocol.back_off import doubled


@pytest.mark.parametrize(
    ("doublings", "pause"), [(-1, 0.05), (0, 0.1), (1, 0.2), (3, 0.8), (4, 1.0), (5000, 1.0)]
)
def test_it_doubles_up_to_the_longest_one(doublings: int, pause: float) -> None:
    assert doubled(0.1, doublings, 1.0) == pytest.approx(pause)
