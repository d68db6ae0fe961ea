"""Nodes with several connections for appends: half of the seeds, and appends do overlap there."""

from typing import Any

import pytest

from sharding_app.runtime.journal.backlog import Backlog
from sharding_app.testing.simulation.virtual_node import connections_of
from sharding_app.testing.simulation.world import run_seed


def test_half_of_the_odd_seeds_and_of_the_even_ones_have_several() -> None:
    several = [seed for seed in range(40) if connections_of(seed) > 1]
    assert len(several) == 20
    assert sum(seed % 2 for seed in several) == 10


@pytest.mark.parametrize(("seed", "most"), [(0, 1), (1, 3)])
def test_appends_overlap_as_far_as_there_are_connections(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = [0]
    real = Backlog._hold

    def hold(self: Backlog, connection: int, batch: list[Any]) -> None:
        real(self, connection, batch)
        at_once[0] = max(at_once[0], self.under_way)

    monkeypatch.setattr(Backlog, "_hold", hold)
    assert run_seed(seed).broken is None
    assert at_once == [most]
