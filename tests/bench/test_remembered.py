"""`sharding_bench remembered` on real servers."""

from tests.bench.test_command import LEFT, bench, number
from tests.support.live import Live


def test_all_that_ran_runs_again_after_a_full_restart(live_tables: Live) -> None:
    (remembered,) = bench(live_tables, "remembered", "--entities", "3000")
    assert remembered["entities"] == 3000
    assert remembered["nodes"] == 2
    assert remembered["balanced_s"] < 30.0
    assert "all run" in remembered["note"]
    assert number(live_tables, LEFT) == 0
