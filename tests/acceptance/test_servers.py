"""The servers stop and come back under load: nothing acknowledged is lost, all answer again, and
nothing moves for it.
"""

import signal
import time

import pytest

from tests.acceptance.conftest import NewScenario
from tests.support.slack import STEADY

pytestmark = pytest.mark.acceptance


def test_postgres_ends_sessions_and_stops_and_is_killed(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    postgres = cluster.servers.postgres
    run.begin("a", "b", "c")
    run.go_on(1)
    epochs, incarnations = cluster.epochs(), cluster.members()
    for purpose in ("journal", "control", "recovery", "reads"):
        at = time.monotonic()
        cluster.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'sharding/%%' AND application_name LIKE '%%' || %s", purpose,
        )  # fmt: skip
        run.fault(f"sessions for {purpose} ended", at, epochs)
        run.wait_answers(at)
    assert cluster.epochs() == epochs
    # SIGQUIT ends every session at once, as a crash does; on the way back the server recovers from
    # its log. The last one is longer than the lease.
    for number, down_seconds in ((signal.SIGQUIT, 0.3), (signal.SIGKILL, 4.0)):
        at = time.monotonic()
        postgres.end_with(number)
        run.fault(f"Postgres ended by {number.name}", at, epochs)
        run.go_on(down_seconds)
        postgres.start()
        back = time.monotonic()
        run.fault(f"Postgres back after {back - at:.1f} s", back, epochs)
        run.wait_answers(back)
        run.go_on(1)
        assert cluster.members() == incarnations, "every node has kept its incarnation"
        assert cluster.epochs() == epochs, "who comes back within the grace moves nothing"
    # All sessions of all nodes at once, on a server that goes on: this is what dead nodes look
    # like.
    at = time.monotonic()
    cluster.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'sharding/%%'"
    )
    run.fault("all sessions ended", at, epochs)
    run.wait_answers(at)
    cluster.wait_members("a", "b", "c")
    run.finish()


@pytest.mark.parametrize("links", ["auto", "channel_layer"])
def test_redis_is_killed_and_started(scenario: NewScenario, links: str) -> None:
    """Direct links go on meanwhile."""
    run = scenario({"LINKS": links, **STEADY})
    cluster = run.cluster
    redis = cluster.servers.redis
    run.begin("a", "b", "c")
    run.go_on(1)
    epochs, incarnations = cluster.epochs(), cluster.members()
    for down_seconds in (0.0, 4.0):
        at = time.monotonic()
        redis.kill()
        run.fault("Redis killed -9", at, epochs)
        run.go_on(down_seconds)
        if links == "auto":
            run.wait_answers(at)
        redis.start()
        back = time.monotonic()
        run.fault(f"Redis back after {back - at:.1f} s", back, epochs)
        run.wait_answers(back)
        run.go_on(1)
    assert cluster.members() == incarnations
    assert cluster.epochs() == epochs, "when no node hears, nothing moves"
    run.finish()
