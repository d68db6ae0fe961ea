"""SIGSTOP and SIGCONT under load: a process that wakes up after others have taken over answers and writes nothing."""

import signal
import time

import psycopg
import pytest

from tests.acceptance.cluster import until
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import Scenario

pytestmark = pytest.mark.acceptance

TTL_SECONDS = 3.0
TRIES = 300


def wake(run: Scenario, name: str) -> None:
    """Let a frozen node go on, and wait until it is a member again, under a new incarnation."""
    cluster = run.cluster
    before = cluster.sql("SELECT max(age) FROM sharding_node")[0][0]
    cluster.nodes[name].signal(signal.SIGCONT)
    until(
        lambda: cluster.sql(
            "SELECT 1 FROM sharding_node WHERE name = %s AND state = 'up' AND age > %s", name, before
        ),
        15, f"{name} has begun again",
    )  # fmt: skip


def test_freeze_for_longer_than_the_lease(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(1)
    for coordinates in (True, False):
        victim = cluster.coordinator() if coordinates else cluster.busiest_but_the_coordinator()
        shards = cluster.shards_of(victim)
        assert shards
        at = time.monotonic()
        cluster.nodes[victim].signal(signal.SIGSTOP)
        run.fault(f"SIGSTOP of {'the coordinator' if coordinates else 'another node'}", at, shards)
        cluster.wait_moved(victim, TTL_SECONDS + 10)
        run.go_on(1)
        wake(run, victim)
        run.go_on(1)
    run.finish()


def test_a_short_freeze_moves_nothing(scenario: NewScenario) -> None:
    """Shorter than the lease, longer than the node's own limit: it suspends itself, and resumes where it was."""
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(1)
    epochs = cluster.epochs()
    victim = cluster.busiest_but_the_coordinator()
    at = time.monotonic()
    cluster.nodes[victim].signal(signal.SIGSTOP)
    shards = cluster.shards_of(victim)
    run.fault("SIGSTOP for 2.3 s", at, shards)
    time.sleep(max(0.0, at + 2.3 - time.monotonic()))
    woken = time.monotonic()
    cluster.nodes[victim].signal(signal.SIGCONT)
    run.fault("SIGCONT after it", woken, shards)
    run.wait_answers(woken, shards)
    assert cluster.epochs() == epochs
    run.finish()


COPYING = (
    "SELECT 1 FROM pg_stat_activity WHERE starts_with(application_name, 'sharding/' || %s || '/')"
    " AND state = 'active' AND query LIKE 'COPY sharding_event%%'"
)


def test_freeze_in_the_middle_of_an_append(scenario: NewScenario) -> None:
    """The process stands still while the server waits for the rest of its COPY: it must not hold the others up."""
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c", rate=400)
    run.go_on(1)
    incarnations = cluster.members()
    victim = cluster.busiest_but_the_coordinator()
    node, incarnation = cluster.nodes[victim], incarnations[victim]
    for _ in range(TRIES):
        node.signal(signal.SIGSTOP)
        at = time.monotonic()
        time.sleep(0.002)  # what it has already sent arrives
        if cluster.sql(f"{COPYING} AND wait_event = 'ClientRead'", incarnation):
            break
        node.signal(signal.SIGCONT)
        time.sleep(cluster.chance.uniform(0.001, 0.03))
    else:
        pytest.fail(f"not caught in the middle of an append in {TRIES} tries")
    run.fault("SIGSTOP in the middle of an append", at, cluster.shards_of(victim))
    cluster.wait_moved(victim, TTL_SECONDS + 10)
    assert not cluster.sql(COPYING, incarnation), "its server process has been ended"
    run.go_on(1)
    wake(run, victim)
    run.go_on(1)
    run.finish()


def test_freeze_while_the_append_commits(scenario: NewScenario) -> None:
    """All of the COPY has arrived and waits for a shard's row; it commits while its process stands still.

    The callers' commands are then in the journal and not answered: the next home must find them, not do them again.
    """
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c", rate=400)
    run.go_on(1)
    incarnations = cluster.members()
    victim = cluster.busiest_but_the_coordinator()
    incarnation = incarnations[victim]
    shards = cluster.shards_of(victim)
    shard = min(shards)
    with psycopg.connect(cluster.database_url) as blocker:
        blocker.execute("SELECT FROM sharding_shard WHERE shard = %s FOR UPDATE", (shard,))
        run.probe([shard])
        until(
            lambda: cluster.sql(f"{COPYING} AND wait_event_type = 'Lock'", incarnation),
            5,
            "an append waits for the row",
        )
        at = time.monotonic()
        cluster.nodes[victim].signal(signal.SIGSTOP)
        written = cluster.sql("SELECT count(*) FROM sharding_event WHERE shard = %s", shard)[0][0]
        blocker.rollback()
    run.fault("SIGSTOP while an append waits for the server", at, shards)
    until(
        lambda: cluster.sql("SELECT count(*) FROM sharding_event WHERE shard = %s", shard)[0][0] > written,
        2, "it commits while its process stands still",
    )  # fmt: skip
    cluster.wait_moved(victim, TTL_SECONDS + 10)
    run.go_on(1)
    wake(run, victim)
    run.go_on(1)
    run.finish()
