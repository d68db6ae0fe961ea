"""`runcluster`: the newcomer's first minute, and what becomes of the cluster when things die or
code changes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import pytest

from sharding_app.embedded.ports import free_port
from sharding_app.management import local_cluster
from tests.support.live import Live, Program, children, look_again, running, until
from tests.support.scratch_project import ScratchProject
from tests.support.slack import PATIENT, SLACK

pytestmark = pytest.mark.usefixtures("real_starts")

UP = "The cluster is up. Ctrl-C ends it in order."


def get(url: str, data: dict[str, str] | None = None) -> str:
    body = None if data is None else urlencode(data).encode()
    with urllib.request.urlopen(url, body, timeout=20 * SLACK) as answer:  # noqa: S310 - our own site on the loopback
        text: str = answer.read().decode()
    return text


def node_pids(program: Program) -> list[int]:
    """The children that are nodes."""
    listed = [str(pid) for pid in children(program.pid)]
    command = ["ps", "-o", "pid=,command=", "-p", ",".join(listed)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(line.split()[0]) for line in lines if "sharding_node" in line]


def test_the_first_minute(live_servers: Live) -> None:
    """On an empty database: few, clear lines, a site that works, and one tidy end."""
    with live_servers.empty_database() as live:
        port = free_port()
        with live.program("runcluster", "--nodes", "2", "--port", str(port)) as cluster:
            cluster.wait_line(UP)
            site = f"http://127.0.0.1:{port}/"
            cluster.wait_line(r"^  Status: ")
            head, rest = "\n".join(cluster.said()).split(f"\n\n{UP}\n")
            # A busy machine may take more than half a minute.
            first, *others = [each for each in head.splitlines() if not each.startswith("Still waiting for ")]
            assert re.fullmatch(r"Applying \d+ migrations\.", first)
            assert others[0] == "Starting 2 nodes and the site."
            assert sorted(others[1:]) == ["node-1 is up.", "node-2 is up.", "site is up."]
            assert [line.split() for line in rest.splitlines()[:2]] == [
                ["Site:", site],
                ["Admin:", f"{site}admin/"],
            ]
            assert "Cart.ref('alice').sync.add('book', 2)" in rest

            assert json.loads(get(f"{site}carts/alice/", {"sku": "book", "quantity": "2"})) == {
                "customer": "alice",
                "count": 2,
            }
            assert "body" in get(f"{site}static/admin/css/base.css")
            status = look_again(live.manage, "sharding_status")
            assert status.returncode == 0, status.stdout + status.stderr
            pids = children(cluster.pid)
            assert len(pids) == 3

            said = len(cluster.lines)
            assert cluster.stop(signal.SIGINT) == 0
            assert cluster.said(said) == ["All processes have ended."]
            assert not any(running(pid) for pid in pids)
            assert live.status()["nodes"] == []


def test_nodes_that_die_are_started_again(live_tables: Live) -> None:
    port = free_port()
    with live_tables.program("runcluster", "--nodes", "2", "--port", str(port), "--noreload") as cluster:
        cluster.wait_line(UP)
        said = len(cluster.lines)
        before = node_pids(cluster)
        os.kill(before[0], signal.SIGKILL)
        cluster.wait_line(r"^node-\d ended by SIGKILL; it is started again in 0\.5 s\.$", after=said)
        until(lambda: len(live_tables.status()["nodes"]) == 2, 30, "two nodes again")
        until(lambda: live_tables.manage("sharding_status").returncode == 0, 30, "healthy again")
        assert json.loads(get(f"http://127.0.0.1:{port}/carts/bob/", {"sku": "pen"}))["count"] >= 1


def test_all_end_when_the_command_is_killed(live_tables: Live) -> None:
    with live_tables.program(
        "runcluster", "--nodes", "1", "--port", str(free_port()), "--noreload"
    ) as cluster:
        cluster.wait_line(UP)
        pids = children(cluster.pid)
        cluster.process.kill()
        until(lambda: not any(running(pid) for pid in pids), 30, "site and node have ended")
        assert live_tables.status()["nodes"] == []


def test_a_taken_port_is_said_and_the_next_one_used(live_tables: Live) -> None:
    # The kernel may give the port after one of its own to any connection of the tests beside this.
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        with live_tables.program("runcluster", "--nodes", "1", "--port", str(port), "--noreload") as cluster:
            chosen = cluster.wait_line(rf"^Port {port} is in use. The site uses (\d+)\.$")[1]
            cluster.wait_line(UP)
            assert "body" in get(f"http://127.0.0.1:{chosen}/static/admin/css/base.css")
            assert cluster.stop() == 0


def test_a_cluster_of_no_nodes_is_refused(live_tables: Live) -> None:
    answer = live_tables.manage("runcluster", "--nodes", "0")
    assert answer.returncode == 1
    assert answer.stderr.strip() == "CommandError: --nodes must be at least 1."


ENTITIES = """
from sharding_app import EventSourced, applies, command, event, query

@event
class Counted:
    by: int

class Counter(EventSourced):
    n: int

    def __init__(self) -> None:
        self.n = 0

    @command
    def count(self) -> int:
        self.persist(Counted(1))
        return self.n

    @query
    def edition(self) -> str:
        return "first"

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.n += happened.by
"""
MORE_SETTINGS = f"""
SHARDING = {PATIENT!r}
INSTALLED_APPS += ["sharding_app", "shop"]
CHANNEL_LAYERS = {{"sharding": {{
    "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
    "CONFIG": {{"hosts": [{{"address": os.environ["REDIS_URL"], "socket_timeout": None}}]}},
}}}}

from sharding_app.management import local_cluster
local_cluster.UP_SECONDS = {local_cluster.UP_SECONDS * SLACK}
"""
CLIENT = """
import time
from shop.entities import Counter
seen, calls = "", 0
while seen != "second":
    calls += 1
    assert Counter.ref("all").sync.count() == calls, "a call was lost"
    edition = Counter.ref("all").sync.edition()
    if edition != seen:
        seen = edition
        print("sees", seen, flush=True)
    time.sleep(0.02)
print("done", calls, flush=True)
"""


def test_new_code_is_taken_over_one_by_one_while_calls_go_on(live_servers: Live, tmp_path: Path) -> None:
    """No call fails meanwhile; code that does not load stays out of the cluster."""
    folder = tmp_path / "stranger"
    with live_servers.empty_database() as live:
        project = ScratchProject(folder, live)
        project.append("mysite/settings.py", MORE_SETTINGS)
        project.write("shop/entities.py", ENTITIES)
        command = ["runcluster", "--nodes", "2", "--port", str(free_port())]
        with project.program(*command) as cluster:
            cluster.wait_line(UP)
            with project.program("shell", "-v0", "-c", CLIENT) as client:
                client.wait_line("^sees first$")
                said = len(cluster.lines)
                project.write("shop/entities.py", ENTITIES.replace('"first"', "first("))
                cluster.wait_line(r"^entities\.py changed\.$", after=said)
                cluster.wait_line("SyntaxError", after=said)
                cluster.wait_line(
                    "^The new code does not load. The cluster continues with the old code.$", after=said
                )

                said = len(cluster.lines)
                project.write("shop/entities.py", ENTITIES.replace('"first"', '"second"'))
                client.wait_line("^sees second$")
                client.wait_line("^done")
                cluster.wait_line("^node-2 runs the new code.$", after=said)
                assert client.ended() == 0
            cluster.wait_line("^site runs the new code.$", after=said)
            assert cluster.said(said) == [
                "entities.py changed.",
                *(f"{name} runs the new code." for name in ("node-1", "node-2", "site")),
            ]
            assert cluster.stop() == 0
