"""Single kinds of faults: alone in a seed they break no promise, and a mistake that nothing else in
it meets is found.
"""

import os
from contextlib import nullcontext
from typing import Any

import pytest

from sharding_app.testing.simulation.faults import Fault, schedule, storm
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.runs import Job, is_direct, run_all
from sharding_app.testing.simulation.world import run_seed
from tests.simulation.mistakes import MISTAKES
from tests.simulation.planted import planted

FINDS = (
    ("slow_pings", 5.0, "lease_counts_from_the_answer"),
    ("full_channel", 1.0, "refused_is_delivered"),
    ("leave_slowly", 5.0, "hand_off_gives_up_on_the_slow"),
)
"""A kind of fault, how long it lasts, and the mistake that it finds."""
SEED = 0
STORMS = range(12)
ONCE_BROKEN = (63048, 64362, 66309, 70323)
"""Storms that have broken a promise before something was mended."""
SEEDS_ONCE_BROKEN = (3408513, 3409721)
"""The same of seeds without a storm."""


def broken(faults: list[Fault], mistake: str = "") -> PromiseBroken | None:
    with planted(mistake) if mistake else nullcontext():
        return run_seed(SEED, faults=faults).broken


@pytest.mark.parametrize(("kind", "lasts", "mistake"), FINDS)
def test_a_kind_of_fault_finds_a_mistake_that_nothing_else_in_the_seed_does(
    kind: str, lasts: float, mistake: str
) -> None:
    faults = [Fault(1.0 + 3.0 * node, kind, lasts, node) for node in range(3)]
    assert broken(faults) is None
    assert broken([], mistake) is None
    found = broken(faults, mistake)
    assert found is not None
    assert found.promise in MISTAKES[mistake].promises


def test_a_node_that_waits_for_late_answers_hears_no_sooner_that_its_lifelines_are_lost() -> None:
    faults = [Fault(0.3, "slow_pings", 9.0, node) for node in range(3)]
    faults += [Fault(1.0 + 1.1 * number, "lifelines_lost", 0.0, number % 3) for number in range(7)]
    assert [run_seed(seed, faults=faults).broken for seed in (3, 10)] == [None, None]


def test_a_storm_has_its_seeds_faults_and_kinds_that_come_again() -> None:
    again = 0
    for seed in range(50):
        named: dict[str, Any] = {
            "whole_protocol": seed % 2 == 0,
            "journals": ("second",) if seed % 4 == 0 else (),
        }
        plain, stormy = schedule(seed, 3, **named), storm(seed, 3, **named)
        assert stormy == storm(seed, 3, **named) == sorted(stormy)
        assert set(plain) < set(stormy)
        for number, each in enumerate(stormy):
            same = [other for other in stormy[number + 1 :] if other[1:2] + other[4:] == each[1:2] + each[4:]]
            assert all(each.at + each.lasts < other.at for other in same)
            again += bool(same)
    assert again > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS_ONCE_BROKEN)
def test_a_seed_that_has_broken_a_promise_breaks_none_any_more(seed: int) -> None:
    assert run_seed(seed, 3 + seed % 3, direct=is_direct(seed)).broken is None


@pytest.mark.slow
def test_storms_break_no_promise() -> None:
    jobs = [Job(seed, 3 + seed % 3, direct=is_direct(seed), stormy=True) for seed in (*STORMS, *ONCE_BROKEN)]
    for result in run_all(jobs, os.cpu_count() or 1):
        assert result.broken is None, "\n".join([f"storm {result.seed}: {result.broken}", *result.trace])
        assert result.faults > len(schedule(result.seed, result.nodes)) + 3
