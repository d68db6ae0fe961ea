"""Facts that the guides state, looked up where they are made."""

from __future__ import annotations

import re
import sys
from collections import Counter

import psycopg
from django.core.management import get_commands

from sharding_app.operations.diagnosis.look import Limits
from sharding_app.operations.diagnosis.postgres import OTHER_CONNECTIONS
from sharding_app.settings.schema import Settings
from tests.docs.test_snippets import DOCS, WRITTEN
from tests.support.live import ROOT, Live, Program, until

RUNNING = (DOCS / "running.md").read_text()
STAY = """
import os, sys, django
django.setup()
from project.shop.entities import Cart
for _ in range(2):
    Cart.ref("connections", command_id="twice").sync.add("book")
print("called", flush=True)
sys.stdin.read()
"""


def counted(live: Live) -> dict[str, Counter[str]]:
    """Our connections to PostgreSQL, by process and purpose."""
    with psycopg.connect(live.database_url) as connection:
        rows = connection.execute(
            "SELECT split_part(application_name, '/', 2), split_part(application_name, '/', 3) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'sharding/%'"
        ).fetchall()
    found: dict[str, Counter[str]] = {}
    for owner, purpose in rows:
        found.setdefault(owner, Counter())[purpose] += 1
    return found


def stated(process: str) -> int:
    """What the table says of a kind of process."""
    found = re.search(rf"^\| {process}.*? \| (\d+) \| ", RUNNING, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_connections_are_as_many_as_stated(live_cluster: Live) -> None:
    with Program([sys.executable, "-c", STAY], live_cluster.environment()) as client:
        client.wait_line("^called$")
        # The command before this one may have left a moment ago.
        until(lambda: len(counted(live_cluster)) == 2, 20, "one node and one client")
        found = counted(live_cluster)
    (node,) = [purposes for owner, purposes in found.items() if owner.startswith("n-")]
    (asks,) = [purposes for owner, purposes in found.items() if owner.startswith("p-")]
    assert node == Counter(
        dict.fromkeys(("lifeline-0", "lifeline-1", "journal", "journal-1", "recovery", "reads", "control"), 1)
    )
    appends = Settings().journal_connections
    assert node.total() == stated("a node") == OTHER_CONNECTIONS + appends == 7
    assert Limits().journal_connections == appends
    assert asks == Counter({"control": 1})
    assert asks.total() == stated("a client")


def test_the_sum_of_the_example_is_right() -> None:
    found = re.search(r"7 × 16 \+ 34 \+ 34 for Django \+ 7 \+ 2 \+\s+3 = (\d+), so (\d+)", RUNNING)
    assert found is not None
    assert 7 * 16 + 34 + 34 + 7 + 2 + 3 == int(found[1]) < int(found[2])


def test_every_command_and_logger_that_is_named_exists() -> None:
    commands = set(get_commands())
    for document in WRITTEN:
        named = set(re.findall(r"manage\.py ([a-z_]+)\b", document.read_text()))
        assert named <= commands, document.name
    loggers = {
        name
        for path in (ROOT / "sharding_app").rglob("*.py")
        for name in re.findall(r'getLogger\("(sharding\.\w+)"\)', path.read_text())
    }
    assert set(re.findall(r"`(sharding\.[a-z]+)`", RUNNING)) == loggers


def test_options_that_are_named_exist(live_tables: Live) -> None:
    commands = ("runcluster", "sharding_node", "sharding_status", "sharding_resize")
    shown = {option for each in commands for option in options(live_tables.manage(each, "--help").stdout)}
    lines = [line for line in RUNNING.splitlines() if "systemctl" not in line]
    assert options("\n".join(lines)) <= shown


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
