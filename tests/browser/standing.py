"""The browser's cluster on servers of its own, for scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")

from sharding_app.embedded import OwnPostgres, OwnRedis
from tests.browser.site import SETTINGS, Cluster, cluster
from tests.support.live import ROOT, Live, Program


@contextmanager
def servers() -> Iterator[Live]:
    """Servers with a database that has no tables yet."""
    with (
        tempfile.TemporaryDirectory() as folder,
        OwnPostgres(Path(folder)) as postgres,
        OwnRedis(Path(folder)) as redis,
        Live(postgres.url, redis.url).empty_database() as live,
    ):
        yield live


@contextmanager
def standing(carts: int) -> Iterator[Cluster]:
    """Everything up, with that number of carts."""
    with servers() as live, cluster(live, carts) as found:
        yield found


def traffic(found: Cluster, rate: int) -> Program:
    """That number of commands a second, until the block ends."""
    return Program(
        [sys.executable, "-m", "tests.browser.traffic", str(rate)], found.live.environment(**SETTINGS)
    )


def full_rate(found: Cluster, seconds: float) -> float:
    """How many commands a second the cluster takes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.browser.traffic", "0", str(seconds)], cwd=ROOT, text=True, check=True,
        env=found.live.environment(**SETTINGS), stdout=subprocess.PIPE, timeout=seconds + 120,
    )  # fmt: skip
    return float(done.stdout)
