"""`sharding_bench messages timers projection` on real servers."""

from tests.bench.test_command import LEFT, bench, number
from tests.support.live import Live


def test_messages_between_two_nodes(live_tables: Live) -> None:
    (messages,) = bench(live_tables, "messages", "--in-flight", "8", "--seconds", "0.5")
    assert messages["nodes"] == 2
    assert messages["in_flight"] == 8
    assert messages["ratio"]["durable"] > 0
    assert messages["rows_per_op"] >= 2, "an event of the sender, and one of the target"
    assert "durable beside it" in messages["note"]
    assert number(live_tables, LEFT) == 0


def test_timers_that_are_due_and_timers_that_wait(live_tables: Live) -> None:
    idle, burst, pending = bench(live_tables, "timers", "--entities", "3000", "--seconds", "2")
    assert idle["count"] == 500
    assert 0 <= idle["p50_ms"] <= idle["p99_ms"]
    assert burst["count"] == 300
    assert burst["balanced_s"] > 0
    assert pending["entities"] == 3000
    assert pending["count"] == 1000, "those that came due while no node was up"
    assert pending["node_mb"] > 0
    assert "MB on the largest node" in pending["note"]
    assert number(live_tables, LEFT) == 0
    assert number(live_tables, "SELECT count(*) FROM sharding_message") == 0


def test_projections_beside_a_load(live_tables: Live) -> None:
    arguments = ("--seconds", "0.5", "--entities", "2000", "--in-flight", "8")
    bulk, single, live, followed = bench(live_tables, "projection", *arguments)
    assert bulk["count"] == single["count"] == 2000
    assert bulk["ops_per_s"] > 0
    assert 0 < live["p50_ms"] <= live["p99_ms"]
    assert followed["ratio"]["plain"] > 0
    assert number(live_tables, LEFT) == 0
    assert number(live_tables, "SELECT count(*) FROM sharding_projection") == 0
