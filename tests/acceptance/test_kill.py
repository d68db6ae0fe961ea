"""kill -9 of nodes under load: the coordinator's, then another."""

import signal
import time

import pytest

from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance


def test_kill_the_coordinator_then_another(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(2)
    for round_number in range(2):
        names = set(cluster.members())
        victim = cluster.coordinator() if round_number == 0 else cluster.busiest_but_the_coordinator()
        shards = cluster.shards_of(victim)
        assert shards
        at = time.monotonic()
        cluster.nodes[victim].signal(signal.SIGKILL)
        run.fault(f"kill -9 of {'the coordinator' if round_number == 0 else 'another node'}", at, shards)
        cluster.wait_moved(victim)
        cluster.wait_members(*(names - {victim}))
        run.go_on(2)
        cluster.start(victim)
        cluster.wait_members(*names)
    run.finish()
