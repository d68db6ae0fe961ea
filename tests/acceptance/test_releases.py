"""Releases N-1 and N serve in one cluster while it is rolled under load; N-2 is kept out, and told
why.
"""

import json
import re
import signal
import time

import pytest

from sharding_app.torture.history import given_up, read_history
from sharding_app.torture.processes import Load, until
from tests.acceptance.app.entities import TYPE
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import Scenario
from tests.support.slack import SLACK

pytestmark = pytest.mark.acceptance

NAMES = ("a", "b", "c")
WRITERS = "SELECT DISTINCT (payload->>'writer')::int FROM sharding_event WHERE at >= %s"
TOO_FAR = (
    "it writes wire version 1 and reads 1, node [abc] writes wire version 2 and reads 1 to 2:"
    " their releases are too far apart"
)


def test_f7_a_new_release_rolls_in_and_one_that_is_too_old_stays_outside(scenario: NewScenario) -> None:
    run = scenario({"REBALANCE_INTERVAL_SECONDS": 0.5})
    cluster = run.cluster
    cluster.release = "present"
    run.begin(*NAMES, rate=250, entities=48 * 10)
    before = cluster.epochs()
    cluster.release = "next"
    # A web process that was updated before any node.
    newer = cluster.start_load(rate=60, share=run.share, entities=48 * 10, patience=run.patience)
    # A call with a short timeout fails while its process joins.
    assert newer.order("sweep") == "swept 0"
    newer.order("go")
    _all_serve(run, newer)
    for name in NAMES:
        node = cluster.nodes[name]
        assert "release present sends frames of wire version 1" in node.recent()
        run.fault(f"{name} goes from N-1 to N", time.monotonic(), cluster.shards_of(name))
        node.signal(signal.SIGTERM)
        until(lambda node=node: not node.alive, 20, f"{name} has left")  # type: ignore[misc]
        assert node.child.returncode == 0
        replaced = cluster.launch(name).wait_up()
        _all_serve(run, newer)
        assert "release next sends frames of wire version 2" in replaced.recent()
    _the_stranger_stays_outside(run)
    report = run.finish()
    _no_caller_noticed(run)
    after = cluster.epochs()
    report.figures["shards moved"] = sum(after[shard] > epoch for shard, epoch in before.items())


def _all_serve(run: Scenario, newer: Load) -> None:
    """Wait until each node has shards, has written since, and has answered a caller of either
    release.
    """
    cluster = run.cluster
    until(lambda: all(cluster.shards_of(each) for each in NAMES), 15, "each node has shards")
    since = cluster.sql("SELECT clock_timestamp()")[0][0]
    at = time.monotonic()
    pids = {cluster.nodes[each].pid for each in NAMES}
    until(lambda: pids <= {each[0] for each in cluster.sql(WRITERS, since)}, 10, "each node has written", 0.1)
    for load in (run.load, newer):
        run.probe(cluster.epochs())

        def answered(load: Load = load) -> bool:
            calls = (call for call in read_history([load.out]) if call.outcome == "ok" and call.start >= at)
            shards = {run.shard(call.entity) for call in calls}
            return all(shards & cluster.shards_of(each) for each in NAMES)

        until(answered, 10, f"{load.log.stem} has an answer of each node", 0.1)


def _the_stranger_stays_outside(run: Scenario) -> None:
    """A node of release N-2, and a process of it that only asks."""
    cluster = run.cluster
    cluster.release = "former"
    stranger = cluster.launch("stranger")
    until(lambda: "is refused" in stranger.recent(), 20 * SLACK, "it says so")
    assert re.search(f"node stranger is refused: {TOO_FAR}. It joins when they are gone", stranger.recent())
    asking = cluster.manage("sharding_status")
    assert asking.returncode == 1
    assert re.search(f"This process is refused: {TOO_FAR}. Update the older one", asking.stderr)
    cluster.release = "next"
    status = cluster.manage("sharding_status", "--json")
    assert status.returncode == 1
    problems = [each["what"] for each in json.loads(status.stdout)["problems"]]
    assert any(re.search(f"Node stranger is refused: {TOO_FAR}", each) for each in problems), problems
    # The others go on: shards move between them, and none has ever gone to the stranger.
    paused = cluster.manage("sharding_rebalance", "--pause")
    assert paused.returncode == 0, paused.stdout + paused.stderr
    shard = min(cluster.shards_of("a"))
    moved = cluster.manage("sharding_rebalance", TYPE, "--shard", str(shard), "--to", "b", "--wait")
    assert moved.returncode == 0, moved.stdout + moved.stderr
    cluster.wait_members(*NAMES)
    refused = {
        each[0] for each in cluster.sql("SELECT incarnation FROM sharding_node WHERE name = 'stranger'")
    }
    assert refused, "it has a row, so a coordinator could have chosen it"
    assert refused.isdisjoint(each.home for each in cluster.homes())
    stranger.signal(signal.SIGTERM)
    until(lambda: not stranger.alive, 10, "it can be ended while it waits")


def _no_caller_noticed(run: Scenario) -> None:
    calls = run.calls()
    others = [call for call in calls if not given_up(call, run.patience)]
    assert {call.outcome for call in others} <= {"ok", "rejected", "told"}, "no call failed"
    stored = {row.token for row in run.cluster.rows(run.round_number)}
    assert {call.token for call in calls if call.op == "tell"} <= stored, "no command is lost, a tell neither"
    for load in run.cluster.loads:
        assert load.order("unexpected") == "unexpected 0", "no reply came twice"
    processes = [*run.cluster.loads, *(run.cluster.nodes[name] for name in NAMES)]
    for log in [each.log for each in processes]:
        said = log.read_text()
        assert not re.search(r"unreadable|another wire|a bug:", said), f"{log.name}: {said[-2000:]}"
