"""The commands that change a cluster, on real nodes: shutting down, removing internal data, erasing
an entity.
"""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from psycopg.conninfo import conninfo_to_dict

from tests.support.live import Live, until

BUY = "from project.shop.entities import Cart\nfor n in range(20): Cart.ref(f'c{n}').sync.add('book')\n"
TOTAL = "from project.shop.entities import Cart\nprint(Cart.ref('c2').sync.total())"
OPERATED = """
WITH operator AS (
    INSERT INTO auth_user (username, password, first_name, last_name, email, is_superuser, is_staff, is_active, date_joined)
    VALUES ('night operator', '', '', '', '', false, true, true, now()) RETURNING id
)
INSERT INTO django_admin_log (action_time, object_repr, action_flag, change_message, user_id)
SELECT now(), 'cluster', 2, message, operator.id
FROM operator, unnest(ARRAY[
    'Passivate shop.Cart c1: done', 'Passivate shop.Cart c11: done', 'Passivate shop.Cart c1:2: done',
    'Passivate workshop.Cart c1: done'
]) message RETURNING 1
"""
BUY_AGAIN = "from project.shop.entities import Cart\nprint(Cart.ref('c2').sync.add('pen'))"


def rows(live: Live, query: str) -> list[tuple[Any, ...]]:
    params: dict[str, Any] = conninfo_to_dict(live.database_url)
    with psycopg.connect(**params, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def homes(live: Live) -> set[str]:
    query = "SELECT DISTINCT n.name FROM sharding_shard s JOIN sharding_node n ON n.incarnation = s.home"
    return {name for (name,) in rows(live, query)}


@pytest.fixture
def two_nodes(live_tables: Live) -> Iterator[Live]:
    with live_tables.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        with live_tables.program("sharding_node", "--name", "two") as two:
            two.wait_line("^node two is up$")
            bought = live_tables.manage("shell", "-v0", "-c", BUY)
            assert bought.returncode == 0, bought.stderr
            until(lambda: homes(live_tables) == {"one", "two"}, 20, "both have shards")
            yield live_tables


@pytest.mark.slow
def test_a_cluster_is_shut_down_cleared_and_erased_from(two_nodes: Live) -> None:
    live = two_nodes
    tried = live.manage("sharding_remove_data", "--dry-run", "--json")
    assert json.loads(tried.stdout)["refused_by"] == ["one", "two"]
    alive = live.manage("sharding_remove_data", "--yes")
    assert alive.returncode == 1
    assert "Nodes are running: one, two. Stop them first" in alive.stderr
    assert len(rows(live, "SELECT FROM sharding_node")) == 2
    # Its home is alive and holds it in memory: the home erases it, and what comes next finds no
    # past.
    erase = live.manage("sharding_erase", "shop.Cart", "c2", "--yes", "--json")
    assert erase.returncode == 0, erase.stderr
    assert json.loads(erase.stdout)["erased"] == {"events": 1, "snapshots": 0, "remembered": 0, "messages": 0}
    assert rows(live, "SELECT FROM sharding_event WHERE entity = 'c2'") == []
    assert live.manage("shell", "-v0", "-c", TOTAL).stdout.strip() == "0"
    assert live.manage("shell", "-v0", "-c", BUY_AGAIN).stdout.strip() == "1"
    assert rows(live, "SELECT seq FROM sharding_event WHERE entity = 'c2'") == [(1,)]

    left = live.manage("sharding_shutdown", "two", "--timeout", "30")
    assert left.returncode == 0, left.stdout + left.stderr
    assert "two: gone" in left.stdout
    assert homes(live) == {"one"}
    again = live.manage("sharding_shutdown", "two")
    assert again.returncode == 1
    assert "There is no node two (nodes: one)." in again.stderr

    prepared = live.manage("sharding_shutdown", "--all", "--prepare")
    assert prepared.returncode == 0, prepared.stderr
    assert rows(live, "SELECT asked FROM sharding_node") == [("prepare",)]
    assert live.manage("sharding_shutdown", "--all", "--cancel").returncode == 0
    assert rows(live, "SELECT asked FROM sharding_node") == [(None,)]

    all_left = live.manage("sharding_shutdown", "--all", "--json")
    assert json.loads(all_left.stdout) == {"done": True, "left": ["one"]}
    assert rows(live, "SELECT FROM sharding_node") == []

    noticed = dict(rows(live, "SELECT action, subject FROM sharding_decision WHERE action LIKE 'ask%'"))
    assert noticed == {
        "asked_to_leave": "two", "asked_to_prepare": "one", "asking_cancelled": "one", "asked_to_stop": "one",
    }  # fmt: skip
    before = rows(live, "SELECT count(*) FROM sharding_event")
    tried = live.manage("sharding_remove_data", "--dry-run", "--json")
    asked = live.manage("sharding_remove_data")
    assert (asked.returncode, "Add --yes" in asked.stderr) == (1, True)
    done = live.manage("sharding_remove_data", "--yes", "--json")
    assert json.loads(done.stdout)["removed"] == json.loads(tried.stdout)["removed"]
    assert rows(live, "SELECT count(*) FROM sharding_event") == before
    assert rows(live, "SELECT FROM sharding_shard WHERE home IS NOT NULL") == []
    ((subject, detail),) = rows(
        live, "SELECT subject, detail FROM sharding_decision WHERE action = 'data_removed'"
    )
    assert subject == "all types"
    assert detail.endswith("(sharding_remove_data)")

    would = live.manage("sharding_erase", "shop.Cart", "c1", "--dry-run")
    assert would.stdout == "Would be erased: 1 event, 0 snapshots, 0 remembered ids, 0 messages.\n"
    rows(live, OPERATED)
    erased = live.manage("sharding_erase", "shop.Cart", "c1", "--yes", "--scrub")
    assert (erased.returncode, erased.stdout.splitlines()[:2]) == (
        0,
        [
            "Erased: 1 event, 0 snapshots, 0 remembered ids, 0 messages.",
            "Scrubbed: 1 line of the admin's history.",
        ],
    )
    told = rows(live, "SELECT change_message FROM django_admin_log ORDER BY 1")
    assert {message for (message,) in told} == {
        "Passivate shop.Cart (erased): done", "Passivate shop.Cart c11: done", "Passivate shop.Cart c1:2: done",
        "Passivate workshop.Cart c1: done",
    }  # fmt: skip
    known = "SELECT FROM pg_stats WHERE attname = 'entity' AND most_common_vals::text LIKE '%c1,%'"
    assert rows(live, known) == []
    assert rows(live, "SELECT FROM sharding_event WHERE entity = 'c1'") == []
    assert rows(live, "SELECT count(*) + 1 FROM sharding_event") == before
    noted = rows(live, "SELECT subject, detail FROM sharding_decision WHERE action = 'entity_erased'")
    assert [subject for subject, _ in noted] == ["shop.Cart"] * 2
    assert all(detail.startswith("1 events, 0 snapshots, by ") for _, detail in noted)
    assert all(detail.endswith("(sharding_erase)") for _, detail in noted)
    # A former run may have ended before it has scrubbed.
    again = live.manage("sharding_erase", "shop.Cart", "c1", "--yes", "--scrub")
    assert (again.returncode, again.stdout.splitlines()[1:2]) == (
        0,
        ["Scrubbed: 0 lines of the admin's history."],
    )
    nothing = live.manage("sharding_erase", "shop.Cart", "c1", "--yes", "--json")
    assert nothing.returncode == 1
    assert json.loads(nothing.stdout)["done"] is False


@pytest.mark.slow
def test_a_frozen_node_that_is_declared_dead_has_not_left(live_tables: Live) -> None:
    """The request lies in its row, which is gone: it joins again when it goes on."""
    with live_tables.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        with live_tables.program("sharding_node", "--name", "two") as two:
            two.wait_line("^node two is up$")
            two.process.send_signal(signal.SIGSTOP)
            try:
                asked = live_tables.manage("sharding_shutdown", "two", "--timeout", "30")
                assert asked.returncode == 1, asked.stdout
                assert "Declared dead before they heard of this: two." in asked.stderr
                assert rows(live_tables, "SELECT name FROM sharding_node") == [("one",)]
            finally:
                two.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "Name the nodes to stop, or add --all."),
        (["one", "--all"], "Name the nodes to stop, or add --all."),
        (["one", "--prepare"], "apply to the whole cluster"),
        (["--all", "--prepare", "--cancel"], "not both"),
        (["--all", "--timeout", "0"], "greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], told: str) -> None:
    with pytest.raises(CommandError, match=told) as refused:
        call_command("sharding_shutdown", *arguments)
    assert refused.value.returncode == 1


@pytest.mark.parametrize("command", ["sharding_shutdown", "sharding_remove_data", "sharding_erase"])
def test_help_shows_examples_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SystemExit) as ended:
        call_command(command, "--help")
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert f"manage.py {command} " in shown
    assert "Exit codes: 0 done, 1 refused" in shown
