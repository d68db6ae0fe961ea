"""One node's network fails, in front of one server only: it steps aside, or waits, and the others go on."""

import random
import time

import pytest

from tests.acceptance.cluster import until
from tests.acceptance.conftest import NewScenario
from tests.acceptance.proxy import Proxy
from tests.acceptance.scenario import SECONDS, Scenario

pytestmark = pytest.mark.acceptance

TTL_SECONDS = 3.0


def begin_behind_a_proxy(run: Scenario, server: str) -> Proxy:
    """Start three nodes; b reaches that server through a proxy."""
    proxy = run.cluster.proxy("b", server)
    run.begin("a", "b", "c")
    run.go_on(1)
    return proxy


def wait_back(run: Scenario, incarnation: str) -> None:
    """Wait until b is up under another incarnation than before."""
    until(lambda: run.cluster.members().get("b", incarnation) != incarnation, 20, "b has joined again")


def ways(*known: str) -> pytest.MarkDecorator:
    """All ways in a long run; in a short one, one of them, by chance."""
    chosen = known if SECONDS else (random.choice(known),)
    return pytest.mark.parametrize("way", chosen)


@ways("refuse", "hang", "deaf", "mute")
def test_one_node_is_cut_off_from_redis_alone(scenario: NewScenario, way: str) -> None:
    """It does not hear itself while others do: it gives its shards up through Postgres, and comes back later."""
    run = scenario()
    cluster = run.cluster
    proxy = begin_behind_a_proxy(run, "redis")
    shards, incarnation = cluster.shards_of("b"), cluster.members()["b"]
    assert shards
    at = time.monotonic()
    match way:
        case "refuse":
            proxy.refuse()
        case "hang":
            proxy.hang()
        case "deaf":
            proxy.one_way("down")
        case "mute":
            proxy.one_way("up")
    run.fault(f"b cut off from Redis ({way})", at, shards)
    cluster.wait_moved("b", 20)
    run.wait_answers(at, shards)
    run.go_on(0.5)
    proxy.forward()
    wait_back(run, incarnation)
    run.finish()


def test_one_node_hears_redis_late_and_in_pieces(scenario: NewScenario) -> None:
    """A slow network, then one that cuts connections half-way, again and again: delay, not loss."""
    run = scenario()
    cluster = run.cluster
    proxy = begin_behind_a_proxy(run, "redis")
    shards = cluster.shards_of("b")
    at = time.monotonic()
    proxy.slow(0.05)
    run.fault("b hears Redis 0.1 s late", at, shards)
    run.go_on(1)
    at = time.monotonic()
    proxy.cut(20_000)
    run.fault("b's connections to Redis are cut half-way", at, shards)
    for _ in range(10):
        time.sleep(0.2)
        proxy.cut(cluster.chance.randrange(1_000, 60_000))
    proxy.forward()
    run.wait_answers(time.monotonic())
    run.finish()


@ways("hang", "mute")
def test_one_node_is_cut_off_from_postgres_alone(scenario: NewScenario, way: str) -> None:
    """Its lease lapses by its own clock before the server frees its locks: it answers nothing in between."""
    run = scenario()
    cluster = run.cluster
    proxy = begin_behind_a_proxy(run, "postgres")
    shards, incarnation = cluster.shards_of("b"), cluster.members()["b"]
    assert shards
    at = time.monotonic()
    if way == "hang":
        proxy.hang()
    else:
        proxy.one_way("up")
    run.fault(f"b cut off from Postgres ({way})", at, shards)
    cluster.wait_moved("b", TTL_SECONDS + 10)
    run.wait_answers(at, shards)
    proxy.forward()
    wait_back(run, incarnation)
    run.finish()


def test_one_nodes_connections_to_postgres_are_cut_half_way(scenario: NewScenario) -> None:
    """A statement may be executed whose answer never comes: each is looked up before anything else is said."""
    run = scenario()
    cluster = run.cluster
    proxy = begin_behind_a_proxy(run, "postgres")
    shards = cluster.shards_of("b")
    at = time.monotonic()
    run.fault("b's connections to Postgres are cut half-way", at, shards)
    for _ in range(12):
        proxy.cut(cluster.chance.randrange(200, 30_000))
        time.sleep(cluster.chance.uniform(0.05, 0.4))
        proxy.forward()
        time.sleep(cluster.chance.uniform(0.0, 0.1))
    run.wait_answers(time.monotonic())
    run.finish()
