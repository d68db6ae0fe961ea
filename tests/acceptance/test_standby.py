"""A primary with a synchronous standby: each acknowledged event survives a promotion, whatever was
under way, and no durable message is lost or doubled.
"""

import signal
import time

import pytest

from sharding_app.torture.digest import EMPTY, after
from sharding_app.torture.judge import check_numbers
from tests.acceptance.cluster import with_port
from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance

PAYMENTS = 30.0
"""Orders to accounts each second: durable messages and timers, which are judged at the end."""
LONGER_THAN_AN_ANSWER = 12.0
"""The journal gives an append up after 10 seconds, and asks what became of it."""


def test_the_standby_is_promoted_again_and_again(scenario_with_standby: NewScenario) -> None:
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    run.begin("a", "b", "c", payments=PAYMENTS)
    run.go_on(1)
    for cut_seconds in (0.0, 1.0):
        if cut_seconds:
            pair.cut()
            run.go_on(cut_seconds)
        at = time.monotonic()
        pair.promote()
        run.fault(f"promoted, {cut_seconds:g} s after the standby was cut off", at, cluster.epochs())
        run.wait_answers(at)
        cluster.wait_members("a", "b", "c")
        pair.attach()
        run.go_on(1)
    run.finish()


def test_what_a_standby_has_not_confirmed_is_not_acknowledged(scenario_with_standby: NewScenario) -> None:
    """The standby is away for longer than the journal waits; then it is promoted, without all that
    it missed.
    """
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    run.patience = 40.0
    run.begin("a", "b", payments=PAYMENTS)
    run.go_on(1)
    pair.cut()
    at = time.monotonic()
    run.fault("the standby is cut off", at, cluster.epochs())
    run.go_on(LONGER_THAN_AN_ANSWER)
    pair.promote()
    back = time.monotonic()
    run.fault("the standby is promoted", back, cluster.epochs())
    run.wait_answers(back)
    report = run.finish()
    assert report.outcomes["unknown"] > 0, "callers waited in vain meanwhile"


def test_nodes_that_know_both_servers_find_the_primary(scenario_with_standby: NewScenario) -> None:
    """`DATABASES` with several hosts: over to the standby, and back again."""
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    cluster.ports = f"{pair.primary.port},{pair.standby.port}"
    run.begin("a", "b", payments=PAYMENTS)
    for way in ("over", "back"):
        run.go_on(1)
        at = time.monotonic()
        pair.promote_in_place()
        cluster.database_url = with_port(cluster.database_url, pair.primary.port)
        run.fault(f"{way} to the other server", at, cluster.epochs())
        run.wait_answers(at)
        pair.attach()
    run.finish()


def test_a_former_primary_that_comes_back_acknowledges_nothing(scenario_with_standby: NewScenario) -> None:
    """It is started by mistake where new connections find it first. Its standby is gone, so no
    commit of its is confirmed.
    """
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    cluster.ports = f"{pair.primary.port},{pair.standby.port}"
    run.begin("a", "b", "c")
    run.go_on(1)
    pair.promote_in_place()
    cluster.database_url = with_port(cluster.database_url, pair.primary.port)
    run.wait_answers(time.monotonic())
    pair.standby.start()
    at = time.monotonic()
    cluster.nodes["c"].signal(signal.SIGKILL)
    run.fault("the former primary is back, and c is killed and started again", at, cluster.shards_of("c"))
    cluster.launch("c")
    run.wait_answers(at)
    run.go_on(3)
    cluster.wait_members("a", "b")  # c finds the former primary, and can say nothing there
    pair.attach()
    if not cluster.nodes["c"].alive:
        cluster.launch("c")
    cluster.wait_members("a", "b", "c", seconds=30)
    pair.promote_in_place()
    cluster.database_url = with_port(cluster.database_url, pair.primary.port)
    pair.attach()
    run.finish()


def test_a_promotion_that_loses_the_tail_leaves_no_gap(scenario_with_standby: NewScenario) -> None:
    """An asynchronous standby takes over: acknowledged events are gone, and memory must not be
    ahead of the journal.
    """
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    run.begin("a", "b")
    run.go_on(1)
    pair.require(synchronous=False)
    pair.cut()
    run.go_on(2)
    last = {row[:2] for row in cluster.rows(0)}
    pair.promote()
    lost = last - {row[:2] for row in cluster.rows(0)}
    assert lost, "the standby had missed events"
    at = time.monotonic()
    run.wait_answers(at)
    run.go_on(1)
    run.load.order("halt")
    before = len(run.calls())
    run.load.order("sweep")
    final = run.calls()[before:]
    rows = cluster.rows(0)
    assert check_numbers(rows) == []
    folded: dict[str, tuple[int, int]] = dict.fromkeys(run.names(), EMPTY)
    for row in sorted(rows):
        folded[row.entity] = after(folded[row.entity], row.token)
    assert {call.entity: call.value for call in final} == folded
    run.passed = True
