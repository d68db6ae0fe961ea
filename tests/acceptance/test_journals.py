"""Shards in two journals, each on a server of its own, under faults of both."""

import pytest

from tests.acceptance.__main__ import SETTINGS
from tests.acceptance.conftest import NewScenario
from tests.acceptance.faults import FAULTS
from tests.acceptance.mixed import Mixed

pytestmark = pytest.mark.acceptance

COUNT = "SELECT count(*) FROM sharding_event"


@pytest.mark.alone
def test_mixed_faults_of_two_journals(scenario_with_journal: NewScenario) -> None:
    """Payments lead from accounts of one journal to those of the other."""
    run = scenario_with_journal(SETTINGS)
    mixed = Mixed(run, print, faults=sorted(FAULTS.keys() - {"clock"}))
    mixed.begin()
    report = mixed.round(stages=3)
    assert report.events > 1000
    there = [run.cluster.sql(COUNT, journal=name)[0][0] for name in run.cluster.journals]
    assert min(there) > 100
    assert run.projected > 0
