"""Real nodes whose direct connections run over cables that fail: no call is lost or done twice, and
a node that no other answers gives its shards up.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sharding_app.processes.proxy import Proxy
from tests.support.live import Live, Program, until

NOWHERE = "redis://127.0.0.1:1/0"
ASK = """
from concurrent.futures import ThreadPoolExecutor
from project.shop.entities import Cart
print("asking", flush=True)
with ThreadPoolExecutor(20) as pool:
    found = pool.map(lambda number: Cart.ref(f"c{number}", timeout=90).sync.add("book", 2), range(40))
    print("sum", sum(found), flush=True)
"""
FAULTS: dict[str, Callable[[Proxy], None]] = {
    "reset": Proxy.reset,
    "refused": Proxy.refuse,
    "cable cut": Proxy.hang,
    "breaks within a frame": lambda cable: cable.cut(700),
    "nothing arrives": lambda cable: cable.one_way("up"),
    "half-open": lambda cable: cable.one_way("down"),
}


class Cables:
    """Two nodes, `one` the older, each reached through its own proxy and in no other way."""

    def __init__(self, live: Live, cables: list[Proxy]) -> None:
        self.live = live
        self.cables = cables
        self.nodes: list[Program] = []

    def settings(self, number: int) -> dict[str, Any]:
        port = self.cables[number].port
        sharding = {
            "LINKS": "direct",
            "KEYS": ["a-key-for-these-tests-1"],
            "LINK_ADDRESS": f"127.0.0.1:{port}",
            "LINK_BIND": "127.0.0.2",
            "LINK_SOCKET_FOLDER": "/dev/null/none",
            "NUMBER_OF_SHARDS": 10,
        }
        return {"REDIS_URL": NOWHERE, "TEST_SHARDING": json.dumps(sharding)}

    def asked(self) -> int:
        """Let a new process call all entities, and then mend the cables; return the sum."""
        with self.live.program("shell", "-v0", "-c", ASK, **self.settings(0)) as asking:
            asking.wait_line("^asking$")
            for cable in self.cables:
                cable.forward()
            return int(asking.wait_line(r"^sum (\d+)$", seconds=120.0)[1])

    def shards(self) -> dict[str, int]:
        found = self.live.manage("sharding_status", "--json", **self.settings(0))
        return {each["name"]: each["shards"] for each in json.loads(found.stdout)["nodes"]}


@pytest.fixture
def two(live_tables: Live) -> Iterator[Cables]:
    with joined_by_cables(live_tables) as cables:
        yield cables


@contextmanager
def joined_by_cables(live: Live) -> Iterator[Cables]:
    with _cable() as first, _cable() as second:
        found = Cables(live, [first, second])
        with live.program("sharding_node", "--name", "one", **found.settings(0)) as one:
            one.wait_line("^node one is up$")
            with live.program("sharding_node", "--name", "two", **found.settings(1)) as two:
                two.wait_line("^node two is up$")
                found.nodes = [one, two]
                yield found


@contextmanager
def _cable() -> Iterator[Proxy]:
    """A proxy to the same port of another address of this machine."""
    with Proxy(1, "127.0.0.2") as cable:
        cable.target_port = cable.port
        yield cable


@pytest.mark.slow
def test_no_call_is_lost_or_done_twice_while_cables_fail(two: Cables) -> None:
    for number, (name, fail) in enumerate(FAULTS.items(), start=1):
        for cable in two.cables:
            fail(cable)
        assert (name, two.asked()) == (name, 80 * number)


@pytest.mark.slow
def test_a_node_that_the_other_does_not_answer_gives_up_its_shards(two: Cables) -> None:
    """Both reach PostgreSQL, and neither the other: the younger one steps aside."""
    assert two.asked() == 80
    until(lambda: min(two.shards().values()) > 0, 60.0, "both have shards")
    for cable in two.cables:
        cable.hang()
    until(lambda: two.shards().get("one") == 10, 120.0, "the older one has all shards")
    assert two.asked() == 160
    until(lambda: sum(two.shards().values()) == 10, 60.0, "no shard is without a home")
