"""`sharding_remove_journal`: only aloud, only while nobody is alive, whole entities at a time, and one type alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.journal_removal import Removed, count_journal, remove_journal
from sharding_app.adapters.postgres.removal import UnknownTypes
from tests.commands.terminal import on_terminal
from tests.commands.test_operating import BUY, rows
from tests.live import Live


@pytest.mark.slow
def test_a_journal_is_deleted_aloud(live_tables: Live) -> None:
    live = live_tables
    with live.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        assert live.manage("shell", "-v0", "-c", BUY).returncode == 0
        alive = live.manage(
            "sharding_remove_journal", "shop.Cart", "--yes-delete-the-journal-of", "shop.Cart"
        )
        assert alive.returncode == 1
        assert "Nodes are alive: one. Stop them first" in alive.stderr
        would = live.manage("sharding_remove_journal", "shop.Cart", "--dry-run")
        assert would.stdout == ("Would be deleted: 20 events, 0 snapshots, 0 remembered ids of shop.Cart.\n")
        assert one.stop() == 0

    for arguments, told in (
        (("shop.Cart",), "say --yes-delete-the-journal-of shop.Cart"),
        (("shop.Cart", "--yes-delete-the-journal-of", "shop.Card"), "nothing was deleted"),
        (("shop.None", "--yes-delete-the-journal-of", "shop.None"), "knows no type 'shop.None'"),
    ):
        answer = live.manage("sharding_remove_journal", *arguments)
        assert answer.returncode == 1
        assert told in answer.stderr
    assert len(rows(live, "SELECT FROM sharding_event")) == 20

    assert typed(live, "yes") == 1
    assert len(rows(live, "SELECT FROM sharding_event")) == 20
    epochs = rows(live, "SELECT shard, epoch + 1 FROM sharding_shard ORDER BY shard")
    assert typed(live, "shop.Cart") == 0
    assert rows(live, "SELECT FROM sharding_event") == []
    assert rows(live, "SELECT shard, epoch FROM sharding_shard ORDER BY shard") == epochs, (
        "who was frozen is fenced"
    )
    noted = rows(live, "SELECT subject, detail FROM sharding_decision WHERE action = 'journal_removed'")
    assert noted == [("shop.Cart", "20 events")]
    again = live.manage(
        "sharding_remove_journal", "shop.Cart", "--yes-delete-the-journal-of", "shop.Cart", "--json"
    )
    assert json.loads(again.stdout) == {
        "done": True,
        "dry_run": False,
        "deleted": {"events": 0, "snapshots": 0, "remembered": 0},
    }


def typed(live: Live, word: str) -> int:
    """Run it on a terminal and type that word; the exit code."""
    with on_terminal(live, "sharding_remove_journal", "shop.Cart") as terminal:
        terminal.read_until(lambda seen: b"to go on:" in seen)
        assert b"DELETE 20 events, 0 snapshots, 0 remembered ids of shop.Cart, for good?" in terminal.seen
        terminal.type(word)
        return terminal.exit_code()


def test_it_goes_by_whole_entities_and_touches_no_other_type(live_tables: Live) -> None:
    params: dict[str, Any] = conninfo_to_dict(live_tables.database_url)
    rows_of = (
        "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
        " SELECT n, 'T' || n, 'event_sourced', 1, 'x', 'x', '', 'postgres' FROM generate_series(1, 2) n"
        " RETURNING id"
    )
    assert len(rows(live_tables, rows_of)) == 2
    rows(live_tables, "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (1,0,1,NULL,'stopped'),"
        " (2,0,1,NULL,'stopped') RETURNING 1")  # fmt: skip
    rows(live_tables, "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
        " SELECT t, 'e' || e, s, 0, 1, 'x', 1, '{}' FROM generate_series(1, 2) t, generate_series(1, 4) e,"
        " generate_series(1, 3) s RETURNING 1")  # fmt: skip
    assert count_journal(params, "T1") == Removed(events=12)
    steps: list[Removed] = []
    assert remove_journal(params, "T1", steps.append, rows_at_once=4) == Removed(events=12)
    assert [each.events for each in steps] == [6, 12, 12], "two entities in each piece, until nothing is left"
    assert rows(live_tables, "SELECT type_id, count(*) FROM sharding_event GROUP BY type_id") == [(2, 12)]
    with pytest.raises(UnknownTypes):
        count_journal(params, "T3")
