"""How much a recovery reads at a time."""

from sharding_app.protocol.recovery_limits import Pace


def test_the_pace_of_reads() -> None:
    pace = Pace(250)
    for _ in range(10):
        pace.failed()
    assert pace.size == 1
    assert pace.share(1000, 50) == 50
    pace.took(5.0)
    assert pace.size == 1
    for _ in range(10):
        pace.took(0.01)
    assert pace.size == 250
    assert pace.share(1000) == 1000
    pace.took(0.5)
    assert pace.size == 250
    pace.took(1.5)
    assert pace.size == 125
