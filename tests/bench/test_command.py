"""`sharding_bench` on real servers: each kind of workload once, briefly, and nothing left
behind.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import psycopg
import pytest

from sharding_app.bench.database import LOCK
from tests.support.live import Live
from tests.support.slack import STEADY

TTL_SECONDS = 3.0
TRIES = 3
FACTS = {"fsync", "full_page_writes", "synchronous_commit"}
LEFT = """
SELECT (SELECT count(*) FROM sharding_type WHERE name LIKE 'sharding.Bench%')
     + (SELECT count(*) FROM sharding_node WHERE incarnation LIKE 'n-bench%')
     + (SELECT count(*) FROM sharding_event) + (SELECT count(*) FROM sharding_shard)
     + (SELECT count(*) FROM sharding_decision WHERE subject LIKE '%Bench%' OR subject LIKE 'n-bench%')
     + (SELECT count(*) FROM pg_class WHERE relname LIKE 'sharding_bench%')
"""


def bench(live: Live, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    done = live.manage("sharding_bench", *arguments, "--json", seconds=120, **environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def number(live: Live, query: str) -> int:
    with psycopg.connect(live.database_url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


def test_asks_with_a_probe_beside_them(live_tables: Live) -> None:
    ask, durable = bench(live_tables, "ask", "durable", "--in-flight", "8", "--seconds", "0.5", "--probe")
    assert (ask["workload"], durable["workload"]) == ("ask", "durable")
    for each in (ask, durable):
        assert set(each) >= {"in_flight", "nodes", "ops_per_s", "p50_ms", "p99_ms", *FACTS}
        assert each["in_flight"] == 8
        assert each["nodes"] == 1
        assert each["p50_ms"] <= each["p99_ms"]
        figures = ("ops_per_s", "p50_ms", "p99_ms")
        assert set(each["ratio"]) == {f"{wire}_{name}" for wire in ("sockets", "redis") for name in figures}
        assert each["note"].startswith("the probe over sockets: ")
        assert all(part > 0 for part in each["ratio"].values())
    assert ask["rows_per_op"] == 0
    assert durable["rows_per_op"] == pytest.approx(1)
    assert number(live_tables, LEFT) == 0


def test_the_same_work_in_django_and_entities_in_memory(live_tables: Live) -> None:
    django, memory = bench(live_tables, "django", "memory", "--seconds", "0.5", "--entities", "2000")
    assert django["ops_per_s"] > 0
    assert django["in_flight"] in (8, 64)
    assert memory["entities"] == 2000
    assert "bytes_per_entity" in memory
    assert number(live_tables, LEFT) == 0


def test_recovery_and_failover(live_tables: Live) -> None:
    recover, failover = bench(live_tables, "recover", "failover", "--entities", "300", "--kills", "1")
    assert recover["count"] == 300
    assert recover["rows_per_op"] == 0, "to wake is to read"
    assert failover["nodes"] == 3
    assert failover["count"] >= 1
    assert failover["p50_ms"] > 0
    assert number(live_tables, LEFT) == 0


def test_failover_by_a_pulled_cable(live_tables: Live) -> None:
    """Its connections stay open and fall silent: it is away until its lease is over, and comes back
    nowhere sooner.
    """
    (failover,) = bench(live_tables, "failover", "--entities", "300", "--kills", "1", "--how", "cable")
    assert "1 x a pulled cable" in failover["note"]
    assert failover["count"] >= 1
    assert failover["p50_ms"] > TTL_SECONDS * 500, "the kernel told no peer of its death"
    assert number(live_tables, LEFT) == 0


def test_a_long_history(live_tables: Live) -> None:
    (long,) = bench(live_tables, "long-history", "--entities", "5000")
    assert long["count"] == 5000
    assert long["node_mb_most"] >= 10
    assert "the loop stood still for" in long["note"]
    assert number(live_tables, LEFT) == 0


def test_a_large_database_is_made_measured_and_removed(live_tables: Live) -> None:
    shape = ("--types", "3", "--shards", "7", "--entities", "40", "--journal", "300", "--bytes", "20")
    kept = bench(live_tables, "large", *shape, "--seconds", "0.3", "--in-flight", "8", "--keep")
    notes = [each["note"].partition(":")[0] for each in kept]
    assert notes == ["empty"] * 4 + ["filled"] * 5
    assert kept[4]["count"] == 300
    assert all(each["ratio"]["of empty"] > 0 for each in kept[5:8])
    assert kept[8]["note"] == "filled: a page of events, left out: there is no admin"
    assert number(live_tables, "SELECT count(*) FROM sharding_event WHERE payload::text LIKE '%xxxx%'") == 300
    assert number(live_tables, "SELECT max(seq) FROM sharding_event WHERE entity = 'e-000000007'") == 8
    assert bench(live_tables, "ask", "--seconds", "0.3", "--in-flight", "1")
    assert number(live_tables, LEFT) == 0


def test_a_large_database_is_measured_in_partitions_once(live_servers: Live) -> None:
    """Partitions stay, so no journal is partitioned that is not the measurement's own."""
    shape = ("--types", "3", "--shards", "7", "--entities", "40", "--journal", "300", "--bytes", "20")
    options = ("--seconds", "0.3", "--in-flight", "8", "--partitions")
    with live_servers.empty_database() as live:
        made = live.manage("migrate", "-v0")
        assert made.returncode == 0, made.stderr
        with_admin = {"DJANGO_SETTINGS_MODULE": "project.settings"}
        found = bench(live, "large", *shape, *options, "--keep", **with_admin)
        assert "in partitions by type, two of them in 8 parts" in found[4]["note"]
        assert [each["note"] for each in found[5:]] == [
            "filled: durable", "filled: recover, 10 events each", "filled: a look at the rows", "filled: a page of events",
        ]  # fmt: skip
        assert all(each["ratio"]["of empty"] > 0 for each in found[5:])
        layout = json.loads(live.manage("sharding_partition", "--json").stdout)
        tables = {each["type"]: each["tables"] for each in layout["types"]}
        assert set(tables.values()) == {1, 8}
        assert {name for name, parts in tables.items() if parts == 8} == {
            "sharding.BenchAccount",
            "sharding.BenchLarge1",
        }
        assert found[3]["count"] == found[8]["count"] == 90 * 50, "events on pages"
        spread = "SELECT count(DISTINCT tableoid) FROM sharding_event WHERE payload::text LIKE '%xxxx%'"
        assert number(live, spread) > 3
        again = live.manage("sharding_bench", "large", *shape, *options)
        assert again.returncode == 1
        assert "the journal is partitioned already" in again.stderr


def test_a_quiet_client_is_served_while_others_flood_the_node(live_tables: Live) -> None:
    def reaches() -> bool:
        """Whether the flood is seen in the node's figures. Other suites may take the processors
        away, in one of these moments more than in another.
        """
        return bool(
            meanwhile["node_rows_per_s"] > 2 * before["node_rows_per_s"]
            and meanwhile["cpu_percent"] > before["cpu_percent"]
        )

    flood = ("flood", "--seconds", "1.5", "--in-flight", "2000")
    before, meanwhile, afterwards = bench(live_tables, *flood)
    for _ in range(TRIES):
        if not reaches():
            before, meanwhile, afterwards = bench(live_tables, *flood)
    assert reaches(), (before, meanwhile)
    for each in (before, meanwhile, afterwards):
        assert each["failed"] == 0
        assert each["ops_per_s"] > 0
        assert each["node_mb_most"] < before["node_mb"] + 200, "the node's queues are bounded"
    assert number(live_tables, LEFT) == 0


def test_values_reach_browsers_through_a_web_process(live_tables: Live) -> None:
    one, some = bench(live_tables, "live", "--in-flight", "1,20")
    (streams,) = bench(live_tables, "live", "--in-flight", "20", "--over", "events", "--server", "daphne")
    assert [each["browsers"] for each in (one, some, streams)] == [1, 20, 20]
    assert "server-sent events" in streams["note"]
    for each in (one, some, streams):
        assert 0 < each["first_ms"] <= each["p50_ms"] <= each["last_ms"] <= each["max_ms"]
        assert each["web_cpu_us"] > 0
    assert number(live_tables, LEFT) == 0


def test_calls_beside_busy_processes(live_tables: Live) -> None:
    before, meanwhile, afterwards = bench(
        live_tables, "starved", "--seconds", "1.5", "--nodes", "1", TEST_SHARDING=json.dumps(STEADY)
    )
    for each in (before, afterwards):
        assert each["ops_per_s"] > 0
    assert "busy processes; 0 homes moved" in meanwhile["note"]
    assert meanwhile["ratio"]["of before"] > 0
    assert number(live_tables, LEFT) == 0


def test_a_soak_below_the_limit(live_tables: Live) -> None:
    (soak,) = bench(live_tables, "soak", "--seconds", "0.5", "--minutes", "0.02", "--journal", "2000")
    assert "2,000 older events in the journal" in soak["note"]
    assert soak["failed"] == 0
    assert soak["node_mb"] > 0
    assert 0 < soak["ratio"]["of the limit"] < 1
    assert number(live_tables, LEFT) == 0


def test_commands_and_decisions_are_counted(live_tables: Live) -> None:
    decision, command = bench(
        live_tables, "scale", "--nodes", "1", "--seconds", "0.5", "--in-flight", "8", "--entities", "100"
    )
    assert decision["count"] == 100
    assert decision["rows_per_op"] == pytest.approx(2, abs=1), "a row becomes a home's, and starts"
    assert command["rows_per_op"] == pytest.approx(1)
    assert number(live_tables, LEFT) == 0


def test_one_run_at_a_time(live_tables: Live) -> None:
    with psycopg.connect(live_tables.database_url) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        done = live_tables.manage("sharding_bench", "ask")
    assert done.returncode == 1
    assert done.stderr.strip() == "CommandError: Another sharding_bench runs on this database."


def test_ctrl_c_ends_a_run_and_leaves_nothing(live_tables: Live) -> None:
    with live_tables.program("sharding_bench", "durable", "--seconds", "60") as running:
        running.wait_line(r"in flight")
        assert running.stop(signal.SIGINT) == 130, running.text
        assert "Interrupted" in running.text
        assert "Traceback" not in running.text
    assert number(live_tables, LEFT) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["asks"], "Unknown workload 'asks'. Choose from ask, durable"),
        (["ask", "--in-flight", "none"], "must be a whole number of at least 1"),
        (["ask", "--seconds", "0"], "must be a number greater than 0"),
        (
            ["ask", "--in-flight", "1", "--seconds", "1e-9"],
            "No operation was done in the time of a measurement",
        ),
        (["hot", "--in-flight", "5000"], "A call of the benchmark has failed (BufferFull)"),
    ],
)
def test_wrong_options_are_told(live_tables: Live, arguments: list[str], text: str) -> None:
    done = live_tables.manage("sharding_bench", *arguments)
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
