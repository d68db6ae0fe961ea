"""A cluster of real processes that has PostgreSQL alone: nodes, a caller, and a node that is
killed.
"""

import json
import signal
from functools import partial

import pytest

from tests.support.live import Live, until

NOWHERE = "redis://127.0.0.1:1/0"
KEYS = ["a-key-for-these-tests-1", "an-older-key-of-the-tests-2"]
ASK = """
from project.shop.entities import Cart
print(sum(Cart.ref(f"c{number}", timeout=20).sync.add("book", 2) for number in range(50)))
"""
UNIX = {"LINKS": "direct", "KEYS": KEYS}


@pytest.mark.parametrize(
    "sharding",
    [
        UNIX,
        {"LINKS": "direct"},
        {**UNIX, "LINK_ADDRESS": "127.0.0.1", "ENCRYPT": True},
        {"LINKS": "auto", "KEYS": KEYS},
    ],
    ids=["unix", "no keys", "tcp", "auto, while Redis is away"],
)
def test_nodes_and_callers_meet_without_redis(live_tables: Live, sharding: dict[str, object]) -> None:
    settings = json.dumps({**sharding, "NUMBER_OF_SHARDS": 20})
    manage = partial(live_tables.manage, REDIS_URL=NOWHERE, TEST_SHARDING=settings)
    program = partial(live_tables.program, REDIS_URL=NOWHERE, TEST_SHARDING=settings)
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
