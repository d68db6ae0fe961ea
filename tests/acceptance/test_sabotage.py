"""The fault tests notice builds from which a safeguard was removed. One by chance; all of them in a
long run.
"""

import time

import pytest

from tests.acceptance import plots
from tests.acceptance.app.sabotage import SABOTAGES
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import SECONDS, Scenario, drawn

pytestmark = pytest.mark.acceptance

SECOND_INSTANCE = "second instance"
BUILDS = ["fence", SECOND_INSTANCE, *SABOTAGES]


@pytest.mark.parametrize("missing", BUILDS if SECONDS else [drawn(BUILDS)])
def test_a_build_without_a_safeguard_is_caught(scenario: NewScenario, missing: str) -> None:
    # Some of the faults are those of a channel layer: it loses frames, and is late with them.
    run = scenario({"LINKS": "channel_layer"})
    run.counts = False
    run.cluster.sabotage = "lease" if missing == SECOND_INSTANCE else missing if missing in SABOTAGES else ""
    with pytest.raises(AssertionError, match=_caught(run, missing)):
        run.finish()


def _caught(run: Scenario, missing: str) -> str:
    """Make the faults that this build does not survive; return what has to be said about it."""
    match missing:
        case "fence":
            run.cluster.without_the_fence()
            run.begin("a", "b", rate=100)
            plots.kill(run, "b")
            return r"epochs decrease"
        case "second instance":
            # No caller reaches it any more: only its own timers show that it lives on. An entity
            # whose append is in doubt takes in no timer, so the load ends before the cut.
            proxy = run.cluster.proxy("b", "postgres")
            run.begin("a", "b", "c", rate=300)
            run.load.order("halt")
            plots.cut_off_from_postgres(run, "b", proxy, "hang")
            return r"handles a message, the home of shard"
        case "lease":
            plots.begin_with_a_deaf_caller(run)
            plots.replaced_before_a_deaf_caller(run)
            # On a busy machine that caller asks late: then the instances tell of two homes.
            return r"not linearizable|handles a message, the home of shard"
        case "outcomes":
            run.begin("a", "b", "c", rate=400)
            plots.freeze_while_the_append_commits(run)
            return r"twice"
        case "repetitions":
            proxy = run.cluster.proxy("b", "redis")
            run.begin("a", "b", "c", rate=300)
            plots.late_and_in_pieces(run, "b", proxy)
            return r"twice"
        case _:
            run.patience = 4.0
            run.begin("a", "b", "c", rate=150, entities=200)
            time.sleep(0.5)
            run.cluster.servers.redis.kill()
            run.cluster.servers.redis.start()
            run.go_on(1)
            return r"was not answered"
