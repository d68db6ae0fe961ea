"""The server's clock as a node estimates it: late rather than early."""

import pytest

from sharding_app.protocol.delivery.clock import DRIFT, ServerClock


def test_the_wait_lasts_until_the_slowest_clock_has_reached_the_time() -> None:
    clock = ServerClock()
    clock.heard(100.0, 5.0)
    assert clock.low(15.0) == pytest.approx(100.0 + 10.0 * (1 - DRIFT))
    wait = clock.wait(130.0, 15.0)
    assert clock.low(15.0 + wait) == pytest.approx(130.0)
    assert clock.wait(90.0, 15.0) == 0.0, "it is over"


def test_a_clock_that_was_never_heard_reaches_nothing() -> None:
    clock = ServerClock()
    assert (clock.known, clock.wait(0.0, 5.0)) == (False, float("inf"))
