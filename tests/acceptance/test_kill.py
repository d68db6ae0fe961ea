"""kill -9 of nodes under load: the coordinator's, then another."""

import pytest

from tests.acceptance import plots
from tests.acceptance.conftest import NewScenario

pytestmark = [pytest.mark.acceptance, pytest.mark.usefixtures("real_starts")]


def test_kill_the_coordinator_then_another(scenario: NewScenario) -> None:
    run = scenario()
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(1)
    for what in ("the coordinator", "another node"):
        names = set(cluster.members())
        victim = cluster.coordinator() if what == "the coordinator" else cluster.busiest_but_the_coordinator()
        plots.kill(run, victim, what)
        assert run.report.figures["stale writes refused"] == len(run.report.faults[-1].shards)
        cluster.wait_members(*(names - {victim}))
        run.go_on(1)
        cluster.start(victim)
        cluster.wait_members(*names)
    run.finish()
