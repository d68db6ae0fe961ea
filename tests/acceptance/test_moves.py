"""Shards move on purpose under load: nodes join and leave, and leave while a handler will not
end.
"""

import signal
import time

import pytest

from sharding_app.torture.faults import CROWD
from sharding_app.torture.history import given_up
from sharding_app.torture.processes import until
from tests.acceptance import plots
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import SECONDS

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
    unknown = [call for call in run.calls() if call.outcome == "unknown" and not given_up(call)]
    assert len(unknown) <= report.calls // 100, "moves on purpose cost no answers"


def test_a_node_joins_a_loaded_cluster_and_another_leaves(scenario: NewScenario) -> None:
    """Moves on purpose cost no caller anything: every command takes effect once, in its order, and
    has one reply.
    """
    run = scenario({"REBALANCE_INTERVAL_SECONDS": 0.5})
    cluster = run.cluster
    run.begin("a", "b", "c", entities=48 * 20)
    run.go_on(0.5)
    before = cluster.epochs()
    cluster.start("d")
    until(lambda: len(cluster.shards_of("d")) >= 8, 20, "the new one gets its part")
    run.fault("one joins, one leaves", time.monotonic(), before)
    cluster.nodes["b"].signal(signal.SIGTERM)
    until(lambda: not cluster.nodes["b"].alive, 20, "it has left")
    assert cluster.nodes["b"].child.returncode == 0
    run.go_on(0.5)
    report = run.finish()
    calls = run.calls()
    outcomes = {call.outcome for call in calls if not given_up(call, run.patience)}
    assert outcomes <= {"ok", "rejected", "told"}, "no ask failed"
    stored = {row.token for row in cluster.rows(run.round_number)}
    assert {call.token for call in calls if call.op == "tell"} <= stored, "no command is lost, a tell neither"
    assert run.load.order("unexpected") == "unexpected 0", "no reply came twice"
    moved = {shard for shard, epoch in cluster.epochs().items() if epoch > before[shard]}
    report.figures["shards moved"] = len(moved)
    assert len(moved) >= 16


def test_a_shard_is_moved_by_force_while_its_handler_runs(scenario: NewScenario) -> None:
    run = scenario({"HANDOFF_TIMEOUT_SECONDS": 1.0})
    run.begin("a", "b")
    run.go_on(0.5)
    plots.move_by_force(run)
    run.finish()


def test_a_new_version_rolls_in_and_a_crowd_comes_and_goes(scenario: NewScenario) -> None:
    """Each node is replaced while the others work; then many join at once, and leave at once."""
    run = scenario({"REBALANCE_INTERVAL_SECONDS": 0.5, "HANDOFF_TIMEOUT_SECONDS": 1.0})
    cluster = run.cluster
    run.begin("a", "b", "c", rate=200)
    for name in ("a", "b", "c"):
        node = cluster.nodes[name]
        run.fault(f"{name} makes room for the new version", time.monotonic(), cluster.shards_of(name))
        node.signal(signal.SIGTERM)
        until(lambda node=node: not node.alive, 20, f"{name} has left")  # type: ignore[misc]
        assert node.child.returncode == 0
        cluster.launch(name, "--app-version=2.0.0").wait_up()
    versions = cluster.sql("SELECT name, app_version FROM sharding_node WHERE state = 'up'")
    assert dict(versions) == dict.fromkeys("abc", "2.0.0")
    until(lambda: min(len(cluster.shards_of(each)) for each in "abc") > 0, 15, "all have shards again")
    crowd = [f"guest{number}" for number in range(CROWD if SECONDS else 4)]
    for name in crowd:
        cluster.launch(name, "--app-version=2.0.0")
    until(lambda: set(crowd) <= set(cluster.members()), 60, "the crowd has joined")
    until(lambda: min(len(cluster.shards_of(each)) for each in crowd) > 0, 30, "each of them has shards")
    run.fault(f"{len(crowd)} leave at once", time.monotonic(), cluster.epochs())
    for name in crowd:
        cluster.nodes[name].signal(signal.SIGTERM)
    until(lambda: not any(cluster.nodes[name].alive for name in crowd), 30, "the crowd has left")
    assert {cluster.nodes[name].child.returncode for name in crowd} == {0}
    cluster.wait_members("a", "b", "c")
    report = run.finish()
    unknown = [call for call in run.calls() if call.outcome == "unknown" and not given_up(call)]
    assert len(unknown) <= report.calls // 100, "moves on purpose cost no answers"
