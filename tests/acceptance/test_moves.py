"""Shards move on purpose under load: nodes join and leave, and leave while a handler will not end."""

import signal
import time

import pytest

from tests.acceptance import plots
from tests.acceptance.cluster import until
from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance


def test_nodes_join_and_leave(scenario: NewScenario) -> None:
    run = scenario({"REBALANCE_INTERVAL_SECONDS": 0.5, "HANDOFF_TIMEOUT_SECONDS": 1.0})
    cluster = run.cluster
    run.begin("a", "b")
    run.go_on(0.5)
    before = cluster.epochs()
    cluster.start("c", "d")
    until(lambda: min(len(cluster.shards_of(each)) for each in "abcd") > 0, 15, "the new ones get shards")
    at = time.monotonic()
    for name in ("a", "c"):
        cluster.nodes[name].signal(signal.SIGTERM)
    run.fault("two of four leave at once", at, cluster.epochs())
    for name in ("a", "c"):
        until(lambda name=name: not cluster.nodes[name].alive, 20, f"{name} has left")  # type: ignore[misc]
        assert cluster.nodes[name].child.returncode == 0
    cluster.start("a")
    until(lambda: cluster.shards_of("a"), 15, "it gets shards again")
    after = cluster.epochs()
    assert all(after[shard] >= epoch for shard, epoch in before.items())
    run.report.figures["shards moved"] = sum(after[shard] - epoch for shard, epoch in before.items())
    report = run.finish()
    assert report.outcomes.get("unknown", 0) <= report.calls // 100, "moves on purpose cost no answers"


def test_a_shard_is_moved_by_force_while_its_handler_runs(scenario: NewScenario) -> None:
    run = scenario({"HANDOFF_TIMEOUT_SECONDS": 1.0})
    run.begin("a", "b")
    run.go_on(0.5)
    plots.move_by_force(run)
    run.finish()
