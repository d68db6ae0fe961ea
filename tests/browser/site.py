"""Three nodes and the demo site as processes, with something in them to look at."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sharding_app.embedded.ports import free_port
from sharding_app.management.web import listens
from tests.browser.seed import CARTS
from tests.support.live import ROOT, Live, Program, until
from tests.support.slack import SLACK

NAMES = ("ada", "bob", "cyd")
SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.browser.settings", "SECRET_KEY": secrets.token_urlsafe(48)}
"""The key is shared, so that sessions made by one process count in another."""

FAILS = """
from sharding_app import EntityFailed
from tests.browser.app.entities import Station
try:
    Station.ref("bergen").sync.calibrate()
except EntityFailed:
    pass
"""


class Cluster:
    """`root` is the dashboard's address; `types` are numbers, `sessions` are keys, both by name."""

    def __init__(self, live: Live, port: int) -> None:
        self.live = live
        self.site = f"http://127.0.0.1:{port}/"
        self.root = f"{self.site}admin/sharding/cluster/"
        self.nodes: dict[str, Program] = {}
        self.types: dict[str, int] = {}
        self.sessions: dict[str, str] = {}
        self.garbled = ""
        "A weather station whose event its code cannot read."

    def fails(self) -> None:
        """Let a command fail. Nodes keep failures in memory: an earlier one may be gone."""
        done = self.live.manage("shell", "-v0", "-c", FAILS, seconds=60.0, **SETTINGS)
        assert done.returncode == 0, done.stderr

    def kill(self, name: str) -> None:
        node = self.nodes.pop(name)
        os.kill(node.pid, signal.SIGKILL)
        node.ended()


@contextmanager
def cluster(live: Live, carts: int = CARTS) -> Iterator[Cluster]:
    """Everything up and filled. `live` has a database without tables."""
    made = live.manage("migrate", "-v0", seconds=60.0, **SETTINGS)
    assert made.returncode == 0, made.stderr
    port = free_port()
    found = Cluster(live, port)
    with ExitStack() as stack:
        for name in NAMES:
            node = live.program("sharding_node", "--name", name, **SETTINGS)
            found.nodes[name] = stack.enter_context(node)
        site = live.program("runcluster", "--serve-site", "--skip-checks", f"--port={port}", **SETTINGS)
        stack.enter_context(site)
        for name, node in found.nodes.items():
            node.wait_line(f"^node {name} is up$")
        seeded = subprocess.run(
            [sys.executable, "-m", "tests.browser.seed", str(carts)], cwd=ROOT, env=live.environment(**SETTINGS),
            capture_output=True, text=True, check=False, timeout=300 * SLACK,
        )  # fmt: skip
        assert seeded.returncode == 0, seeded.stderr
        told = json.loads(seeded.stdout)
        found.types, found.sessions, found.garbled = told["types"], told["sessions"], told["garbled"]
        until(lambda: listens("127.0.0.1", port), 30, "the site listens")
        yield found
        # Their shards are needed no more: there is nothing to hand over.
        for left in list(found.nodes.values()):
            left.process.kill()


def again(found: Cluster, stack: ExitStack) -> None:
    """Start the nodes that are missing."""
    missing = [
        name for name in NAMES if name not in found.nodes or found.nodes[name].process.poll() is not None
    ]
    for name in missing:
        found.nodes[name] = stack.enter_context(
            found.live.program("sharding_node", "--name", name, **SETTINGS)
        )
    for name in missing:
        found.nodes[name].wait_line(f"^node {name} is up$")
