"""The number of shards changes under load on real nodes, while the coordinator, a node and the
command that asked for it are killed. Every call takes effect once, in its order.
"""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from sharding_app.torture.history import given_up
from sharding_app.torture.processes import until
from sharding_app.torture.registry import Registry
from tests.acceptance.cluster import ROOT
from tests.acceptance.conftest import NewScenario
from tests.acceptance.scenario import Scenario
from tests.support.slack import SLACK

pytestmark = pytest.mark.acceptance

SECONDS = 60.0
TYPE = "SELECT name FROM sharding_type WHERE kind = 'event_sourced' ORDER BY name LIMIT 1"


def resizing(run: Scenario, name: str, shards: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "sharding_resize", name, f"--shards={shards}", "--json"],
        cwd=ROOT, env=run.cluster.environment(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(command: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = command.communicate(timeout=SECONDS * SLACK)
    return json.loads(said)  # type: ignore[no-any-return]


def numbers(run: Scenario, name: str) -> tuple[int, int]:
    ((shards, wanted),) = run.cluster.sql(
        f"SELECT number_of_shards, shards_wanted FROM sharding_type WHERE name = '{name}'"  # noqa: S608 - a test's own text
    )
    return shards, wanted


def counts(registry: Registry, *_: object) -> str:
    """Count what is handled. The registry judges it by the shard of an id, which changes here;
    calls and journal are judged as ever.
    """
    registry.handled += 1
    return ""


def test_shards_are_multiplied_and_merged_under_load(
    scenario: NewScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "_handles", counts)
    run = scenario({"HANDOFF_TIMEOUT_SECONDS": 1.0})
    cluster = run.cluster
    run.begin("a", "b", "c")
    run.go_on(0.5)
    ((name,),) = cluster.sql(TYPE)
    before, _ = numbers(run, name)
    assert ended(resizing(run, name, 3 * before)) == {
        "done": True, "type": name, "shards": 3 * before, "wanted": 0, "groups_done": 0, "groups": 3 * before,
    }  # fmt: skip
    run.go_on(0.5)
    with cluster.hold(f"SELECT FROM sharding_shard WHERE shard = {before // 2 - 1} FOR UPDATE"):
        command = resizing(run, name, before // 2)
        until(lambda: numbers(run, name)[1], 15 * SLACK, "the resize has begun")
        command.kill()
        command.communicate()
        coordinator = cluster.coordinator()
        other = next(each for each in "abc" if each != coordinator)
        run.fault("coordinator and a node are killed in a resize", time.monotonic(), cluster.epochs())
        for each in (coordinator, other):
            cluster.nodes[each].signal(signal.SIGKILL)
    cluster.start(coordinator, other)
    until(lambda: numbers(run, name) == (before // 2, 0), SECONDS, "the next coordinator goes on with it")
    run.go_on(0.5)
    report = run.finish()
    lost = [call for call in run.calls() if call.outcome == "unknown" and not given_up(call, run.patience)]
    assert len(lost) <= report.calls // 10
