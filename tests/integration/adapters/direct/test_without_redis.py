"""A cluster of real processes that has PostgreSQL alone: nodes, a caller, and a node that is
killed. And a project that has neither a channel layer nor the packages for one.
"""

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sharding_app.embedded.ports import free_port
from tests.support.live import Live, look_again, until
from tests.support.scratch_project import ScratchProject

NOWHERE = "redis://127.0.0.1:1/0"
KEYS = ["a-key-for-these-tests-1", "an-older-key-of-the-tests-2"]
ASK = """
from project.shop.entities import Cart
print(sum(Cart.ref(f"c{number}", timeout=60).sync.add("book", 2) for number in range(50)))
"""
UNIX = {"LINKS": "direct", "KEYS": KEYS}


@pytest.mark.parametrize(
    ("sharding", "redis_url"),
    [
        (UNIX, NOWHERE),
        ({}, ""),
        ({**UNIX, "LINK_ADDRESS": "127.0.0.1", "ENCRYPT": True}, NOWHERE),
        ({"LINKS": "auto", "KEYS": KEYS}, NOWHERE),
    ],
    ids=["unix", "no keys and no layer", "tcp", "auto, while Redis is away"],
)
def test_nodes_and_callers_meet_without_redis(
    live_tables: Live, sharding: dict[str, object], redis_url: str
) -> None:
    settings = json.dumps({**sharding, "NUMBER_OF_SHARDS": 20})
    manage = partial(live_tables.manage, REDIS_URL=redis_url, TEST_SHARDING=settings)
    program = partial(live_tables.program, REDIS_URL=redis_url, TEST_SHARDING=settings)
    with (
        program("sharding_node", "--name", "one") as one,
        program("sharding_node", "--name", "two") as two,
    ):
        for name, node in (("one", one), ("two", two)):
            node.wait_line(f"^node {name} is up$")
        asked = manage("shell", "-v0", "-c", ASK)
        assert asked.stdout.strip() == "100", asked.stderr

        def both_host() -> bool:
            found = json.loads(manage("sharding_status", "--json").stdout)
            return [each["shards"] > 0 for each in found["nodes"]] == [True, True]

        until(both_host, 60.0, "both nodes have shards")
        one.process.send_signal(signal.SIGKILL)
        asked = manage("shell", "-v0", "-c", ASK)
        assert asked.stdout.strip() == "200", asked.stderr
        assert two.stop() == 0


POSTGRES_ALONE = """
import sys

INSTALLED_APPS += ["sharding_app", "shop"]
# As if they were not installed.
sys.modules["redis"] = sys.modules["channels_redis"] = None
"""
LAYER = """
CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}}
"""
COUNTER = """
from sharding_app import EventSourced, applies, command, event


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

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.n += happened.by
"""
COUNT = "from shop.entities import Counter; print(Counter.ref('all', timeout=60).sync.count())"


@pytest.fixture
def postgres_alone(live_servers: Live, tmp_path: Path) -> Iterator[ScratchProject]:
    with live_servers.empty_database() as live:
        project = ScratchProject(tmp_path / "alone", live)
        project.append("mysite/settings.py", POSTGRES_ALONE)
        project.write("shop/entities.py", COUNTER)
        yield project


def test_a_project_needs_neither_a_layer_nor_its_packages(postgres_alone: ScratchProject) -> None:
    checked = postgres_alone.manage("check", "--fail-level", "WARNING")
    assert checked.returncode == 0, checked.stderr
    with postgres_alone.program("runcluster", "--nodes", "2", "--port", str(free_port())) as cluster:
        cluster.wait_line("^The cluster is up")
        asked = postgres_alone.manage("shell", "-v0", "-c", COUNT)
        assert asked.stdout == "1\n", asked.stderr
        found = json.loads(look_again(postgres_alone.manage, "sharding_status", "--json").stdout)
        assert (found["healthy"], found["notes"]) == (True, [])
        doctor = json.loads(look_again(postgres_alone.manage, "sharding_doctor", "--json").stdout)
        assert {each["severity"] for each in doctor["findings"]} <= {"note"}, doctor["findings"]
        assert cluster.stop() == 0


def test_links_over_a_layer_say_which_package_is_missing(postgres_alone: ScratchProject) -> None:
    postgres_alone.append("mysite/settings.py", 'SHARDING = {"LINKS": "channel_layer"}\n' + LAYER)
    asked = postgres_alone.manage("sharding_status")
    assert asked.returncode != 0
    assert 'pip install "django-sharding-app[redis]"' in asked.stderr, asked.stderr
