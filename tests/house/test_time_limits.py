"""No test fails because a machine is slow: what hypothesis draws and runs has no time limit of its
own.
"""

from hypothesis import HealthCheck, settings


def test_an_example_may_take_as_long_as_it_takes() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
