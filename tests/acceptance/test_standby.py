"""A primary with a synchronous standby: each acknowledged event survives a promotion, whatever was under way."""

import time

import pytest

from tests.acceptance.conftest import NewScenario

pytestmark = pytest.mark.acceptance

LONGER_THAN_AN_ANSWER = 12.0
"""The journal gives an append up after 10 seconds, and asks what became of it."""


def test_the_standby_is_promoted_again_and_again(scenario_with_standby: NewScenario) -> None:
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    run.begin("a", "b", "c")
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
    """The standby is away for longer than the journal waits; then it is promoted, without all that it missed."""
    run = scenario_with_standby()
    cluster = run.cluster
    pair = cluster.servers.pair
    assert pair is not None
    run.patience = 40.0
    run.begin("a", "b")
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
