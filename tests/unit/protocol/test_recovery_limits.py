"""How much a recovery reads at a time."""

import pytest

from sharding_app.protocol.recovery_limits import Pace


def test_the_pace_of_reads() -> None:
    pace = Pace(250)
    for _ in range(10):
        pace.failed()
    assert pace.size == 1
    assert pace.share(1000, 50) == 50
    for _ in range(10):
        pace.took(0.01)
    assert pace.size == 250
    assert pace.share(1000) == 1000
    pace.took(0.5)
    assert pace.size == 250
    pace.took(1.5)
    assert pace.size == 125


@pytest.mark.parametrize("seconds", [0.3, 0.9, 1.5, 4.0])
def test_reads_that_take_their_time_however_small_they_are_grow_all_the_same(seconds: float) -> None:
    pace = Pace(250)
    for _ in range(10):
        pace.failed()
    for _ in range(30):
        pace.took(seconds)
    assert pace.size == 250


@pytest.mark.parametrize("seconds", [1.1, 4.0])
def test_half_of_a_slow_read_that_is_as_slow_shows_that_the_size_is_not_to_blame(seconds: float) -> None:
    """A busy server, or a way that is long: each of the many small ones would take as long."""
    pace = Pace(500)
    sizes = []
    for _ in range(20):
        pace.took(seconds)
        sizes.append(pace.size)
    assert sizes[0] == 250
    assert set(sizes[1:]) == {500}


def test_reads_that_are_slow_by_their_size_stay_below_it() -> None:
    pace, sizes = Pace(250), list[int]()
    for _ in range(10):
        pace.failed()
    for _ in range(100):
        sizes.append(pace.size)
        pace.took(1.5 + 0.05 * pace.size)
    assert max(sizes[20:]) < 50, "it would take more than twice as long as the least one"
    assert min(sizes[20:]) > 10


def test_a_way_that_was_slow_for_a_while_does_not_make_reads_long() -> None:
    pace = Pace(250)
    for _ in range(10):
        pace.failed()
    pace.took(4.0)
    pace.took(0.1)
    while pace.size < 250:
        pace.took(0.2)
    pace.took(1.1)
    assert pace.size == 125


def test_half_of_a_slow_read_that_is_slow_and_yet_quicker_is_halved_again() -> None:
    pace = Pace(500)
    pace.took(4.0)
    pace.took(2.5)
    assert pace.size == 125
