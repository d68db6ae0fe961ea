"""SIGSTOP and SIGCONT under load: a process that wakes up after others have taken over answers and
writes nothing.
"""

import signal
import time

import pytest

from tests.acceptance import plots
from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance

SHORT_SECONDS = 2.6
"""After a freeze of this length there is time to renew the lease, which lasts for 3 seconds."""
SHORT_TRIES = 5


def test_freeze_for_less_and_for_longer_than_the_lease(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(1)
    # Shorter than the lease, longer than the node's own limit: it suspends itself, and resumes
    # where it was.
    for _ in range(SHORT_TRIES):
        cluster.wait_members("a", "b", "c")
        epochs = cluster.epochs()
        victim = cluster.busiest_but_the_coordinator()
        shards = cluster.shards_of(victim)
        at = time.monotonic()
        cluster.nodes[victim].signal(signal.SIGSTOP)
        run.fault("SIGSTOP for 2.3 s", at, shards)
        time.sleep(max(0.0, at + 2.3 - time.monotonic()))
        woken = time.monotonic()
        cluster.nodes[victim].signal(signal.SIGCONT)
        if time.monotonic() < at + SHORT_SECONDS:  # on a busy machine this process may sleep longer
            break
        run.go_on(plots.TTL_SECONDS)
    else:
        pytest.fail(f"no freeze of {SHORT_TRIES} was short")
    run.fault("SIGCONT after it", woken, shards)
    run.wait_answers(woken, shards)
    assert cluster.epochs() == epochs, "a short freeze moves nothing"
    for coordinates in (True, False):
        victim = cluster.coordinator() if coordinates else cluster.busiest_but_the_coordinator()
        shards = cluster.shards_of(victim)
        assert shards
        at = time.monotonic()
        cluster.nodes[victim].signal(signal.SIGSTOP)
        run.fault(f"SIGSTOP of {'the coordinator' if coordinates else 'another node'}", at, shards)
        cluster.wait_moved(victim, plots.TTL_SECONDS + 10)
        run.go_on(0.5)
        plots.wake(run, victim)
        run.go_on(0.5)
    run.finish()


def test_freeze_while_it_appends(scenario: NewScenario) -> None:
    run = scenario()
    run.begin("a", "b", "c", rate=400)
    run.go_on(1)
    plots.freeze_in_the_middle_of_an_append(run)
    run.cluster.wait_members("a", "b", "c")
    plots.freeze_while_the_append_commits(run)
    run.go_on(1)
    run.finish()
