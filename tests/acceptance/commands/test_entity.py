"""`sharding_entity`: one entity from the command line, on a real node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.live import Live

BUY = """
from project.shop.entities import Cart
for n in range(3): Cart.ref('alice').sync.add('book')
Cart.ref('alice', command_id='night-7').sync.add('pen', 2)
"""


def asked(live: Live, *arguments: str) -> dict[str, Any]:
    done = live.manage("sharding_entity", *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_an_entity_is_shown_restarted_and_found_by_a_command(live_tables: Live) -> None:
    live = live_tables
    with live.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        assert live.manage("shell", "-v0", "-c", BUY).returncode == 0
        shown = asked(live, "shop.Cart", "alice", "--content", "--events", "2")
        assert (shown["node"], shown["step"], shown["last_event"]) == ("one", "home", 4)
        assert shown["in_memory"]["event"] == 4
        assert [each["seq"] for each in shown["events"]] == [4, 3]
        assert shown["events"][0]["command_id"] == "night-7"
        assert json.loads(shown["events"][0]["content"])["sku"] == "pen"
        assert json.loads(shown["state"]["items"]) == {"book": 3, "pen": 2}

        assert "recovered anew" in asked(live, "shop.Cart", "alice", "--restart")["answer"]
        text = live.manage("sharding_entity", "shop.Cart", "alice")
        assert text.stdout.startswith("shop.Cart 'alice', shard ")
        assert "at one, epoch 1; in memory" in text.stdout
        assert "pen" not in text.stdout

        (found,) = asked(live, "shop.Cart", "alice", "--command-id", "night-7")["events"]
        assert (found["entity"], found["seq"]) == ("alice", 4)
        assert asked(live, "--command-id", "night-7", "--hours", "2")["events"] == [found]
        assert one.stop() == 0

    gone = asked(live, "shop.Cart", "alice")
    assert (gone["node"], gone["in_memory"], gone["last_event"]) == (None, None, 4)
    for arguments, told in (
        (("shop.Cart", "alice", "--restart"), "its shard has no home now"),
        (
            ("shop.Cart", "bob", "--command-id", "night-7"),
            "No event of shop.Cart 'bob' carries the command id",
        ),
        (("shop.None", "alice"), "The cluster knows no type 'shop.None'"),
        (("shop.Cart",), "Name a TYPE and an ID"),
    ):
        answer = live.manage("sharding_entity", *arguments)
        assert answer.returncode == 1
        assert told in answer.stderr
