"""`sharding_rebalance`: what it asks of the coordinator, on real nodes, and what it says when that
cannot be.
"""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.acceptance.commands.test_operating import BUY, homes, rows, two_nodes
from tests.support.live import Live, until

__all__ = ["two_nodes"]


def home_of(live: Live, shard: int) -> str:
    query = (
        "SELECT s.shard, n.name FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id"
        " LEFT JOIN sharding_node n ON n.incarnation = s.home WHERE t.name = 'shop.Cart'"
    )
    return str(dict(rows(live, query))[shard])


@pytest.mark.slow
def test_a_shard_is_moved_and_balance_paused_and_resumed(two_nodes: Live) -> None:
    live = two_nodes
    for _ in range(2):
        paused = live.manage("sharding_rebalance", "--pause", "--json")
        assert (paused.returncode, json.loads(paused.stdout)["rebalancing"]) == (0, False), paused.stdout
    until(lambda: not rows(live, "SELECT FROM sharding_shard WHERE step <> 'home'"), 20, "nothing moves")
    (shard,) = rows(live, "SELECT min(shard) FROM sharding_shard WHERE step = 'home'")[0]
    other = {"one": "two", "two": "one"}[home_of(live, shard)]
    moved = live.manage(
        "sharding_rebalance", "shop.Cart", f"--shard={shard}", f"--to={other}", "--wait", "--json"
    )
    assert json.loads(moved.stdout) == {"done": True, "moved": 1, "home": other}, moved.stderr
    assert home_of(live, shard) == other
    again = live.manage("sharding_rebalance", "shop.Cart", f"--shard={shard}", f"--to={other}", "--wait")
    assert (again.returncode, again.stdout) == (0, f"Shard {shard} of shop.Cart is already on {other}.\n")
    by = rows(live, "SELECT detail FROM sharding_decision WHERE action = 'move_asked'")
    assert len(by) == 1
    assert by[0][0].endswith("(sharding_rebalance)")

    refused = live.manage("sharding_rebalance", "--json")
    assert refused.returncode == 1
    assert json.loads(refused.stdout) == {
        "done": False,
        "error": "Rebalancing is paused: resume it first.",
    }
    resumed = live.manage("sharding_rebalance", "--resume")
    assert (resumed.returncode, resumed.stdout) == (0, "Rebalancing is resumed.\n")
    assert rows(
        live, "SELECT action FROM sharding_decision WHERE action LIKE 'rebalancing_%' ORDER BY id"
    ) == [
        ("rebalancing_paused",),
        ("rebalancing_resumed",),
    ]

    everything = live.manage("sharding_rebalance", "shop.Cart", "--wait")
    assert everything.returncode == 0, everything.stderr
    assert everything.stdout.splitlines()[-1].endswith("moved.")
    assert rows(live, "SELECT FROM sharding_shard WHERE step <> 'home'") == []
    assert homes(live) == {"one", "two"}

    for arguments, told in (
        (("shop.Nothing",), "The cluster knows no type 'shop.Nothing'."),
        (("shop.Cart", f"--shard={shard}", "--to=three"), "There is no node three (nodes: one, two)."),
        (("shop.Cart", "--shard=99999", "--to=one"), "Shard 99999 of shop.Cart has no home yet"),
    ):
        answer = live.manage("sharding_rebalance", *arguments)
        assert answer.returncode == 1
        assert told in answer.stderr


def test_a_joining_node_gets_its_share_at_once(live_tables: Live) -> None:
    live = live_tables
    with live.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        assert live.manage("shell", "-v0", "-c", BUY).returncode == 0
        with live.program("sharding_node", "--name", "two") as two:
            two.wait_line("^node two is up$")
            until(
                lambda: rows(live, "SELECT FROM sharding_node WHERE state = 'up' OFFSET 1"), 20, "both are up"
            )

            def is_known() -> bool:
                """The coordinator may take the new node for a joining one for a moment more."""
                answer = live.manage("sharding_rebalance", "--wait")
                assert answer.returncode == 0, answer.stderr
                return "a node is joining" not in answer.stdout

            until(is_known, 30, "the coordinator knows that the node is up")
            assert homes(live) == {"one", "two"}


def test_without_a_node_it_says_what_to_start(live_tables: Live) -> None:
    answer = live_tables.manage("sharding_rebalance", "--json")
    assert answer.returncode == 1
    assert json.loads(answer.stdout)["error"] == "No node is running: start `manage.py sharding_node`."


def test_without_servers_the_exit_code_is_2(live_tables: Live) -> None:
    for away in (
        Live("postgresql://u:p@127.0.0.1:1/x", live_tables.redis_url),
        Live(live_tables.database_url, "redis://127.0.0.1:1"),
    ):
        answer = away.manage("sharding_rebalance", "--json", TEST_SHARDING='{"LINKS": "channel_layer"}')
        assert answer.returncode == 2
        assert json.loads(answer.stdout)["done"] is False


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop.Cart", "--shard", "1"], "give TYPE, --shard and --to"),
        (["--shard", "1", "--to", "x"], "give TYPE, --shard and --to"),
        (["shop.Cart", "--to", "x"], "give TYPE, --shard and --to"),
        (["shop.Cart", "--pause"], "apply to all types"),
        (["--resume", "--wait"], "no --wait"),
        (["--timeout", "0"], "greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], told: str) -> None:
    with pytest.raises(CommandError, match=told) as refused:
        call_command("sharding_rebalance", *arguments)
    assert refused.value.returncode == 1
