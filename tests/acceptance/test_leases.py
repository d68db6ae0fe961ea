"""Shards that need a lease each, on real nodes: a dead node's leases are waited for as long as it
might live.
"""

import signal
import time

import pytest

from sharding_app.torture.processes import until
from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance

HELD = (
    "SELECT count(*), count(DISTINCT owner) FROM sharding_lease l JOIN sharding_node ON incarnation = owner"
    " WHERE l.name LIKE '%%-shard-%%' AND expires_at IS NULL AND leases_until > now()"
)


def test_leases_go_with_their_shards(scenario: NewScenario) -> None:
    run = scenario({"USE_LEASE": "postgres"})
    cluster = run.cluster
    run.begin("a", "b")
    run.go_on(0.3)
    until(lambda: cluster.sql(HELD) == [(48, 2)], 15, "there is one for each shard")
    at = time.monotonic()
    shards = cluster.shards_of("a")
    cluster.nodes["a"].signal(signal.SIGKILL)
    run.fault("kill -9 of a", at, shards)
    run.wait_answers(at, shards)
    until(lambda: cluster.sql(HELD) == [(48, 1)], 15, "one node has all of them")
    cluster.start("c")
    cluster.nodes["b"].signal(signal.SIGTERM)
    until(lambda: not cluster.nodes["b"].alive, 20, "it has left")
    run.wait_answers(time.monotonic())
    until(lambda: cluster.sql(HELD) == [(48, 1)], 15, "one node has all of them")
    report = run.finish()
    assert not report.broken
