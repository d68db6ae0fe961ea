"""Every command of an operator: the same help, the same exit codes, JSON on standard output also
when it fails.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.support.live import ROOT, Live

COMMANDS: dict[str, list[str]] = {
    "sharding_status": [],
    "sharding_doctor": [],
    "sharding_rebalance": [],
    "sharding_shutdown": ["--all"],
    "sharding_remove_data": ["--yes"],
    "sharding_erase": ["shop.Cart", "alice", "--yes"],
    "sharding_erase_subject": ["ann", "--yes"],
    "sharding_rewrap_keys": ["--check"],
    "sharding_remove_journal": ["shop.Cart", "--yes-delete-the-journal-of", "shop.Cart"],
    "sharding_rescale": ["imports", "--workers", "3"],
    "sharding_resize": ["shop.Cart", "--shards", "3"],
    "sharding_projection": [],
    "sharding_entity": ["shop.Cart", "alice"],
    "sharding_archive": ["shop.Cart", "--older-than", "90"],
    "sharding_partition": [],
}
"""With what makes each of them do something."""
OF_A_FILE = ("sharding_export", "sharding_export_subject", "sharding_import")
"""They look at their file first, and ask no server about one that cannot be used."""
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_help_has_examples_and_exit_codes_and_the_page_names_what_there_is(live_servers: Live) -> None:
    shown: set[str] = set()
    for command in (*COMMANDS, *OF_A_FILE):
        text = live_servers.manage(command, "--help").stdout
        assert "Examples:\n" in text, command
        assert f"  manage.py {command}" in text
        assert re.search(r"Exit codes: 0 \w+, 1 .*, 2 a server cannot be reached\.", text), command
        assert "--json" in options(text), command
        assert re.search(rf"^\| `{command}` \|", PAGE, re.MULTILINE), f"the page has a line for {command}"
        shown |= options(text)
    assert options(PAGE) <= shown, "every option that the page names exists"
    assert set(re.findall(r"\b(sharding_[a-z_]+)\b(?! ?=| SET)", PAGE)) - {*COMMANDS, *OF_A_FILE} <= {
        "sharding_node",
        "sharding_event",
    }


@pytest.mark.parametrize("command", [each for each in COMMANDS if each != "sharding_doctor"])
def test_without_postgresql_the_code_is_2_and_json_says_why(command: str, live_servers: Live) -> None:
    away = Live("postgresql://u:p@127.0.0.1:1/x", live_servers.redis_url)
    answer = away.manage(command, *COMMANDS[command], "--json", NO_COLOR="1")
    assert answer.returncode == 2, answer.stderr
    found = json.loads(answer.stdout)
    assert "PostgreSQL at 127.0.0.1:1 cannot be used" in found["error"]
    assert False in (found.get("done"), found.get("healthy"))
    assert "\x1b" not in answer.stdout + answer.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_settings_are_told_without_a_traceback_and_in_json(command: str, live_servers: Live) -> None:
    answer = live_servers.manage(
        command, *COMMANDS[command], "--json", TEST_SHARDING='{"NUMBER_OF_SHARD": 7}', NO_COLOR="1"
    )
    assert answer.returncode == 1, answer.stderr
    assert "Traceback" not in answer.stderr
    found = json.loads(answer.stdout)
    said = found["error"] if command != "sharding_doctor" else found["findings"][0]["what"]
    assert said.startswith("SHARDING['NUMBER_OF_SHARD']: unknown setting.")
    assert False in (found.get("done"), found.get("healthy"))
