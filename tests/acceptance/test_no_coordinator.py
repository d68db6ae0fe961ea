"""While no node coordinates, commands to known homes go on, and those to unknown ones wait (promise
6).
"""

import signal
import time

import pytest

from sharding_app.torture.processes import until
from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance


def test_known_homes_go_on_without_a_coordinator(scenario: NewScenario) -> None:
    """Only a node without entities may coordinate, and it is frozen until the server has long given
    up on it.
    """
    run = scenario({"COORDINATOR": "boss"})
    cluster = run.cluster
    cluster.role = "host"
    run.begin("a", "b", "c", roles={"a": "host", "b": "host", "c": "boss"})
    assert cluster.coordinator() == "c"
    assert not cluster.shards_of("c")
    run.go_on(1)
    at = time.monotonic()
    cluster.nodes["c"].signal(signal.SIGSTOP)
    run.fault("SIGSTOP of the only candidate", at, cluster.epochs())
    until(lambda: not cluster.coordinator(), 10, "no node holds the coordinator's lock")
    since = time.monotonic()
    run.go_on(2)
    answered = until(lambda: (found := run.answered_since(since)) > 100 and found, 30, "calls are answered")
    run.report.figures["answered while no node coordinated"] = answered
    run.report.figures["seconds without a coordinator"] = time.monotonic() - since
    # A process that has not asked yet learns the homes from the rows.
    stranger = cluster.start_load(rate=1, entities=200)
    assert stranger.order("warm").startswith("warm 0")
    assert not cluster.coordinator()
    # A home that dies now stays away until a node coordinates; commands to it wait.
    victim = "a"
    shards = cluster.shards_of(victim)
    at = time.monotonic()
    cluster.nodes[victim].signal(signal.SIGKILL)
    run.fault("kill -9 of a host while no node coordinates", at, shards)
    run.go_on(0.5)
    assert cluster.sql("SELECT count(*) FROM sharding_node WHERE name = %s", victim)[0][0] == 1
    woken = time.monotonic()
    cluster.nodes["c"].signal(signal.SIGCONT)
    run.fault("SIGCONT of the candidate", woken, shards)
    run.wait_answers(woken, shards)
    run.finish()
