"""Numbered workers on real nodes: each number lives once, and soon again after a kill; a rescale
goes through kills, and no worker of the new set lives beside one of the old.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from sharding_app.torture.processes import until
from tests.acceptance.cluster import ROOT, Cluster
from tests.acceptance.conftest import NewScenario
from tests.acceptance.workers.entities import FIRST, LIVES
from tests.support.slack import SLACK

pytestmark = pytest.mark.acceptance

APP = "tests.acceptance.workers"
SECONDS = 20.0 * SLACK
WANTED = "SELECT workers_wanted FROM sharding_type WHERE workers > 0"


class Life(NamedTuple):
    """From the first to the last sign of life of one worker."""

    number: int
    total: int
    pid: int
    began: float
    last: float


class Watch:
    """What the workers have written."""

    def __init__(self, cluster: Cluster, file: Path) -> None:
        self.cluster = cluster
        self.file = file
        file.touch()
        cluster.more |= {"ACCEPTANCE_APPS": APP, LIVES: str(file)}

    def lives(self) -> list[Life]:
        found: dict[str, Life] = {}
        for line in self.file.read_bytes().splitlines():
            number, total, life, pid, at = json.loads(line)
            known = found.get(life)
            found[life] = Life(number, total, pid, at if known is None else known.began, at)
        return list(found.values())

    def alive(self, total: int) -> bool:
        """Whether each number has shown in living processes that it lives, since now."""
        size = self.file.stat().st_size
        pids = {each.pid for each in self.cluster.nodes.values() if each.alive}

        def seen() -> bool:
            with self.file.open("rb") as said:
                said.seek(size)
                lines = [json.loads(line) for line in said.read().splitlines()]
            return {number for number, of, _, pid, _ in lines if pid in pids and of == total} == set(
                range(total)
            )

        return bool(until(seen, SECONDS, f"each of {total} workers lives"))

    def rescaling(self, workers: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", "sharding_rescale", "watched", f"--workers={workers}", "--json"],
            cwd=ROOT, env=self.cluster.environment(), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def judge(self) -> None:
        lives = self.lives()
        for one, other in combinations(lives, 2):
            if one.number == other.number or one.total != other.total:
                apart = one.last < other.began or other.last < one.began
                assert apart, f"{one} lived beside {other}"


@pytest.fixture
def watch(scenario: NewScenario, tmp_path: Path) -> Iterator[Watch]:
    run = scenario()
    yield Watch(run.cluster, tmp_path / "lives")
    run.passed = True


def test_each_number_lives_once_through_kills_and_rescales(watch: Watch) -> None:
    cluster = watch.cluster
    cluster.start("a", "b", "c")
    assert watch.alive(FIRST)
    until(lambda: len({each.pid for each in watch.lives()}) == 3, SECONDS, "they are on all nodes")
    cluster.nodes["b"].end()
    assert watch.alive(FIRST)
    for workers, killed, began in ((9, "c", "b"), (3, "a", "c")):
        # The node dies while the old ones are stopped, or just after: both are to be survived.
        rescaling = watch.rescaling(workers)
        until(lambda workers=workers: cluster.sql(WANTED) == [(workers,)], SECONDS, "it is wished")  # type: ignore[misc]
        cluster.nodes[killed].end()
        cluster.start(began)
        out, _ = rescaling.communicate(timeout=60 * SLACK)
        assert json.loads(out)["workers"] == workers
        assert watch.alive(workers)
    for each in cluster.nodes.values():
        each.end()
    cluster.start("d")
    assert watch.alive(3)
    said = cluster.manage("sharding_status")
    assert "workers:watched" in said.stdout
    assert "3 workers" in said.stdout
    watch.judge()
