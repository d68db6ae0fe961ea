"""Worlds whose processes talk over direct connections: no promise breaks, and broken connections do
happen.
"""

from contextlib import nullcontext

import pytest

from sharding_app.testing.simulation.faults import Fault
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.world import run_seed
from tests.simulation.mistakes import MISTAKES
from tests.simulation.planted import planted

PARTITIONS = [Fault(1.0 + 6.0 * node, "partition", 4.5, node) for node in range(3)]
"""Longer than a writer takes to learn that its connection is of no use."""


@pytest.mark.parametrize("seed", [0, 1])
def test_seeds_over_direct_connections_break_no_promise(seed: int) -> None:
    outcome = run_seed(seed, direct=True)
    assert outcome.broken is None
    happened = outcome.coverage.faults
    assert happened["connection_broken"]
    assert happened["connection_refused"]
    assert not happened["layer_down"]


def broken(direct: bool, mistake: str = "") -> PromiseBroken | None:
    with planted(mistake) if mistake else nullcontext():
        return run_seed(0, faults=PARTITIONS, direct=direct).broken


def test_a_refused_frame_that_counts_as_delivered_is_found() -> None:
    """A channel layer loses the frames of a partition without a word, so it refuses none."""
    mistake = "refused_is_delivered"
    assert broken(direct=False, mistake=mistake) is None
    assert broken(direct=True) is None
    found = broken(direct=True, mistake=mistake)
    assert found is not None
    assert found.promise in MISTAKES[mistake].promises
