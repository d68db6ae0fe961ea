"""One process's network fails, in front of one server only: it steps aside, or waits, and the
others go on.
"""

import time

import pytest

from sharding_app.processes.proxy import Proxy
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.torture.processes import until
from tests.acceptance import plots
from tests.acceptance.app.entities import TICKER
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import SECONDS, Scenario, drawn
from tests.support.slack import STEADY

pytestmark = pytest.mark.acceptance

TURNS = 6
TURNS_AT_MOST = 60
LONGER_THAN_DEAF_SECONDS = 8.0
HOME_OF_THE_SINGLETON = (
    "SELECT n.incarnation, n.name FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id"
    " JOIN sharding_node n ON n.incarnation = s.home WHERE t.name = %s AND s.step = 'home' AND n.state = 'up'"
)
END_LIFELINES = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE starts_with(application_name, 'sharding/' || %s || '/lifeline')"
)


def ways(*known: str) -> pytest.MarkDecorator:
    """All ways in a long run; in a short one, one of them, by chance."""
    chosen = known if SECONDS else (drawn(known),)
    return pytest.mark.parametrize("way", chosen)


def begin_behind_a_proxy(run: Scenario, server: str) -> Proxy:
    """Start three nodes; b reaches that server through a proxy."""
    proxy = run.cluster.proxy("b", server)
    run.begin("a", "b", "c")
    run.go_on(1)
    return proxy


@ways("refuse", "hang", "deaf", "mute")
def test_one_node_is_cut_off_from_redis_alone(scenario: NewScenario, way: str) -> None:
    """It does not hear itself while others do: it gives its shards up through Postgres, and comes
    back later.
    """
    run, proxy, shards, age = _late_from_redis(scenario, {"LINKS": "channel_layer"})
    cluster = run.cluster
    at = time.monotonic()
    _cut(proxy, way)
    run.fault(f"b cut off from Redis ({way})", at, shards)
    cluster.wait_moved("b", 20)
    run.wait_answers(at, shards)
    run.go_on(0.5)
    proxy.forward()
    plots.wait_again(run, "b", age)
    run.finish()


@ways("refuse", "hang", "deaf", "mute")
def test_beside_direct_links_a_node_that_is_cut_off_from_redis_goes_on(
    scenario: NewScenario, way: str
) -> None:
    run, proxy, shards, age = _late_from_redis(scenario, {"LINKS": "auto", **STEADY})
    at = time.monotonic()
    _cut(proxy, way)
    run.fault(f"b cut off from Redis ({way})", at, shards)
    run.go_on(LONGER_THAN_DEAF_SECONDS)
    run.wait_answers(at, shards)
    assert run.cluster.sql("SELECT max(age) FROM sharding_node")[0][0] == age, "b has not begun anew"
    proxy.forward()
    run.finish()


def _late_from_redis(
    scenario: NewScenario, sharding: dict[str, object]
) -> tuple[Scenario, Proxy, set[int], int]:
    """Begin with a b that hears Redis late and in pieces; return its proxy, its shards and the
    newest age of a node.
    """
    run = scenario(sharding)
    cluster = run.cluster
    proxy = begin_behind_a_proxy(run, "redis")
    plots.late_and_in_pieces(run, "b", proxy)
    # On a busy machine the node may have been deaf for longer than its limit: its next incarnation
    # gets the share then.
    cluster.wait_members("a", "b", "c")
    until(lambda: cluster.shards_of("b"), 30.0, "b has shards")
    return run, proxy, cluster.shards_of("b"), cluster.sql("SELECT max(age) FROM sharding_node")[0][0]


def _cut(proxy: Proxy, way: str) -> None:
    match way:
        case "refuse":
            proxy.refuse()
        case "hang":
            proxy.hang()
        case "deaf":
            proxy.one_way("down")
        case "mute":
            proxy.one_way("up")


@ways("hang", "mute")
def test_one_node_is_cut_off_from_postgres_alone(scenario: NewScenario, way: str) -> None:
    """A statement may be executed whose answer never comes: each is looked up before anything else
    is said.
    """
    run = scenario()
    cluster = run.cluster
    proxy = begin_behind_a_proxy(run, "postgres")
    run.fault("b's connections to Postgres are cut half-way", time.monotonic(), cluster.shards_of("b"))
    for _ in range(12):
        proxy.cut(cluster.chance.randrange(200, 30_000))
        time.sleep(cluster.chance.uniform(0.05, 0.4))
        proxy.forward()
        time.sleep(cluster.chance.uniform(0.0, 0.1))
    run.wait_answers(time.monotonic())
    cluster.wait_members("a", "b", "c")
    # Cut on all its connections at once it may have been taken for dead; then it is another
    # incarnation, and gets its share.
    until(lambda: cluster.shards_of("b"), 30.0, "b has shards")
    plots.cut_off_from_postgres(run, "b", proxy, way)
    run.finish()


def test_both_lifelines_of_a_living_node_are_ended(scenario: NewScenario) -> None:
    """It looks dead to the others at once: it must know that before its successors begin.

    The node is the one with the singleton, which ticks by itself: it would show itself beside the
    next one.
    """
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    moved = turns = 0
    # Whether it looks dead is decided by the moment of the coordinator's next look: on a quiet
    # machine it may know before.
    while turns < TURNS or (not moved and turns < TURNS_AT_MOST):
        turns += 1
        home = until(lambda: cluster.sql(HOME_OF_THE_SINGLETON, f"{SINGLETON}{TICKER}"), 15, "it has a home")
        incarnation, name = home[0]
        shards, age = cluster.shards_of(name), cluster.sql("SELECT max(age) FROM sharding_node")[0][0]
        at = time.monotonic()
        cluster.sql(END_LIFELINES, incarnation)
        run.fault(f"both lifelines of {name} ended", at, shards)
        run.wait_answers(at)
        until(
            lambda: len(cluster.members()) == 3, 15, "all are there"
        )  # the same incarnation, or another one
        moved += cluster.sql("SELECT max(age) FROM sharding_node")[0][0] > age
    run.report.figures["taken for dead"] = moved
    run.report.figures["lost both lifelines"] = turns
    run.finish()
    assert moved, "it has looked dead"


def test_a_caller_who_is_not_told_of_the_move_is_not_told_the_past(scenario: NewScenario) -> None:
    # Its way to the nodes has to pass a proxy.
    run = scenario({"LINKS": "channel_layer"})
    plots.begin_with_a_deaf_caller(run)
    plots.replaced_before_a_deaf_caller(run)
    run.finish()
