"""A short sample of the mixed runs, with a new seed each time. `python -m tests.acceptance` makes
long ones.
"""

import os
import time

import pytest

from sharding_app.torture.mixed import NAMES
from sharding_app.torture.processes import until
from tests.acceptance import plots
from tests.acceptance.__main__ import SETTINGS
from tests.acceptance.conftest import NewScenario
from tests.acceptance.faults import FAULTS
from tests.acceptance.mixed import Mixed

pytestmark = pytest.mark.acceptance


@pytest.mark.alone
def test_mixed_faults(scenario: NewScenario) -> None:
    run = scenario(SETTINGS)
    # Under libfaketime, which takes one lock at each look at a clock, a process of a busy machine
    # stands still for seconds when it also waits for turns with Redis.
    left_out = {"clock"} if os.environ.get("ACCEPTANCE_LINKS") == "channel_layer" else set[str]()
    mixed = Mixed(run, print, faults=sorted(FAULTS.keys() - left_out))
    mixed.begin()
    report = mixed.round(stages=3)
    assert report.events > 1000
    assert run.projected > 0


@pytest.mark.alone
def test_k2_random_splits_never_make_two_of_one(scenario: NewScenario) -> None:
    """A node of three, by chance, is parted from Postgres for longer than its lease, three times,
    in ways by chance.

    The registry of living instances judges it: an entity or a singleton that goes on beside its
    successor is found.
    """
    run = scenario(SETTINGS)
    cluster = run.cluster
    proxies = {name: cluster.proxy(name, "postgres") for name in NAMES}
    run.begin(*NAMES, rate=200)
    run.go_on(0.5)
    for _ in range(3):
        name, way = cluster.chance.choice(NAMES), cluster.chance.choice(["hang", "mute"])
        plots.cut_off_from_postgres(run, name, proxies[name], way)
        run.wait_answers(time.monotonic())
        until(lambda name=name: cluster.shards_of(name), 30.0, f"{name} has shards again")  # type: ignore[misc]
    report = run.finish()
    assert len(report.faults) == 3
    assert report.figures["objects that took over, so far"] > 0
