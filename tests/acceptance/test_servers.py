"""The servers stop and come back under load: nothing acknowledged is lost, all answer again, and nothing moves for it."""

import signal
import time

import pytest

from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance


def test_postgres_is_stopped_hard_and_started(scenario: NewScenario) -> None:
    """SIGQUIT: every session ends at once, as in a crash; on the way back it recovers from its log."""
    run = scenario()
    cluster = run.cluster
    postgres = cluster.servers.postgres
    run.begin("a", "b", "c")
    run.go_on(1)
    epochs, incarnations = cluster.epochs(), cluster.members()
    at = time.monotonic()
    postgres.end_with(signal.SIGQUIT)
    run.fault("Postgres stopped hard", at, epochs)
    run.go_on(0.3)
    postgres.start()
    back = time.monotonic()
    run.fault(f"Postgres back after {back - at:.1f} s", back, epochs)
    run.wait_answers(back)
    run.go_on(1)
    assert cluster.members() == incarnations, "every node has kept its incarnation"
    assert cluster.epochs() == epochs, "a restart that is shorter than the grace moves nothing"
    run.finish()


def test_postgres_is_away_for_longer_than_the_lease(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    postgres = cluster.servers.postgres
    run.begin("a", "b", "c", rate=100)
    run.go_on(1)
    epochs = cluster.epochs()
    at = time.monotonic()
    postgres.kill()
    run.fault("Postgres killed -9", at, epochs)
    run.go_on(5)
    postgres.start()
    back = time.monotonic()
    run.fault(f"Postgres back after {back - at:.1f} s", back, epochs)
    run.wait_answers(back)
    cluster.wait_members("a", "b", "c")
    assert cluster.epochs() == epochs, "all of them came back at once: there was nobody who was dead"
    run.finish()


def test_the_connections_to_postgres_are_cut(scenario: NewScenario) -> None:
    """Every session of every node is ended, again and again, while the server goes on."""
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(1)
    epochs = cluster.epochs()
    for purpose in ("journal", "control", "reads", ""):
        at = time.monotonic()
        cluster.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'sharding/%%' AND application_name LIKE '%%' || %s",
            purpose,
        )
        run.fault(f"sessions for {purpose or 'everything'} ended", at, epochs)
        run.wait_answers(at)
        run.go_on(0.5)
    run.finish()


def test_redis_is_killed_and_started(scenario: NewScenario) -> None:
    run = scenario()
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
        redis.start()
        back = time.monotonic()
        run.fault(f"Redis back after {back - at:.1f} s", back, epochs)
        run.wait_answers(back)
        run.go_on(1)
    assert cluster.members() == incarnations
    assert cluster.epochs() == epochs, "when nobody hears, nothing moves"
    run.finish()
