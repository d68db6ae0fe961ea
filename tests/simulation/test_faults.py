"""Single kinds of faults: alone in a seed they break no promise, and a mistake that nothing else in
it meets is found.
"""

from contextlib import nullcontext

import pytest

from sharding_app.testing.simulation.faults import Fault
from sharding_app.testing.simulation.promises import PromiseBroken
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
