"""A guest in the database: a cluster at rest holds up nothing there, and costs next to nothing
(promise 14).
"""

import time

import psycopg
import pytest

from sharding_app.torture.processes import until
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import REPORTS, SECONDS
from tests.support.slack import SLACK

pytestmark = pytest.mark.acceptance

COMMITS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
OURS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sharding/%%'"


def test_vacuum_and_concurrent_indexes_beside_a_cluster_at_rest(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c", entities=300)
    run.load.order("halt")
    run.load.end()
    names = list(cluster.nodes)
    time.sleep(2.0)  # statistics of busy sessions arrive within a second, timers of the load's end go off
    with psycopg.connect(cluster.database_url, autocommit=True) as watch:
        before_cpu = {name: cluster.nodes[name].cpu_seconds() for name in names}
        before = _number(watch, COMMITS)
        began = time.monotonic()
        time.sleep(max(5.0, SECONDS))
        passed = time.monotonic() - began
        # Our own look counts as one.
        commits = _number(watch, COMMITS) - before - 1
        cpu = [cluster.nodes[name].cpu_seconds() - before_cpu[name] for name in names]
        figures = run.report.figures
        figures["queries per second and node"] = commits / passed / len(names)
        figures["percent of a core, worst node"] = 100 * max(cpu) / passed
        figures["connections per node"] = _number(watch, OURS) / len(names)
        watch.execute(f"SET statement_timeout = '{20 * SLACK:.0f}s'".encode())
        watch.execute("CREATE TABLE acceptance_other AS SELECT n FROM generate_series(1, 1000) n")
        watch.execute("DELETE FROM acceptance_other")

        def is_empty() -> bool:
            watch.execute("VACUUM acceptance_other")
            return _number(watch, "SELECT pg_relation_size('acceptance_other')") == 0

        # One look of a node may be under way at that moment.
        until(is_empty, 10, "no session of ours keeps deleted rows alive")
        began = time.monotonic()
        watch.execute("CREATE INDEX CONCURRENTLY acceptance_index ON sharding_event (at)")
        watch.execute("VACUUM sharding_node, sharding_shard, sharding_event")
        figures["seconds for CREATE INDEX CONCURRENTLY and VACUUM"] = time.monotonic() - began
        # A node that gets no processor leaves one open for as long.
        until(
            lambda: not _number(
                watch,
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'sharding/%%' AND xact_start < now() - interval '1 s'",
            ),
            10, "no transaction of ours stays open",
        )  # fmt: skip
        until(
            lambda: not _number(watch, "SELECT count(*) FROM pg_locks WHERE NOT granted"),
            10, "nothing of ours waits inside Postgres",
        )  # fmt: skip
    run.passed = True
    REPORTS.append(run.report)
    assert figures["queries per second and node"] < 40, "generous: the aim is 10"
    assert figures["percent of a core, worst node"] < 20, "generous: the aim is 2"
    assert all(node.alive for node in cluster.nodes.values())


def _number(connection: psycopg.Connection[tuple[object, ...]], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]
