"""`sharding_remove_journal`: only aloud, only while no node is alive, whole entities at a time, and
one type alone.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.deletion import (
    NodesAlive,
    UnknownTypes,
    count_journal,
    remove_journal,
)
from sharding_app.ports.journal import Erasure
from tests.acceptance.commands.terminal import on_terminal
from tests.acceptance.commands.test_operating import BUY, rows
from tests.support.live import Live


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
        assert "shop.Cart is hosted by one. Roll out a release without the type" in alive.stderr
        would = live.manage("sharding_remove_journal", "shop.Cart", "--dry-run")
        assert would.stdout == (
            "It would be refused now. shop.Cart is hosted by one. Roll out a release without the type, or stop these "
            "nodes.\n"
            "Would be deleted: 20 events, 0 snapshots, 0 remembered ids, 0 messages of shop.Cart.\n"
        )
        assert one.stop() == 0

    for arguments, told in (
        (("shop.Cart",), "Add --yes-delete-the-journal-of shop.Cart"),
        (("shop.Cart", "--yes-delete-the-journal-of", "shop.Card"), "Nothing was deleted"),
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
    noted = rows(
        live, "SELECT action, detail FROM sharding_decision WHERE action LIKE 'journal%' ORDER BY id"
    )
    assert [action for action, _ in noted] == ["journal_removing", "journal_removed"]
    assert noted[1][1].startswith("20 events, by ")
    assert noted[1][1].endswith("(sharding_remove_journal)")
    again = live.manage(
        "sharding_remove_journal", "shop.Cart", "--yes-delete-the-journal-of", "shop.Cart", "--json"
    )
    assert json.loads(again.stdout) == {
        "done": True,
        "dry_run": False,
        "deleted": {"events": 0, "snapshots": 0, "remembered": 0, "messages": 0},
        "refused_by": [],
    }


def typed(live: Live, word: str) -> int:
    """Run it on a terminal and type that word; the exit code."""
    with on_terminal(live, "sharding_remove_journal", "shop.Cart") as terminal:
        terminal.read_until(lambda seen: b"to continue:" in seen)
        assert (
            b"DELETE 20 events, 0 snapshots, 0 remembered ids, 0 messages of shop.Cart, permanently?"
            in terminal.seen
        )
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
    assert count_journal(params, "T1") == Erasure(events=12)
    steps: list[Erasure] = []
    assert remove_journal(params, "T1", "me", steps.append, rows_at_once=7) == Erasure(events=12)
    assert [each.events for each in steps] == [6, 12], "whole entities in each piece, until nothing is left"
    assert rows(live_tables, "SELECT type_id, count(*) FROM sharding_event GROUP BY type_id") == [(2, 12)]
    with pytest.raises(UnknownTypes):
        count_journal(params, "T3")


def test_a_large_entity_goes_from_its_end_and_a_home_stops_it(live_tables: Live) -> None:
    """Interrupted at any piece, the removal leaves histories without a gap, and a note of how far
    it came.
    """
    params: dict[str, Any] = conninfo_to_dict(live_tables.database_url)
    rows(live_tables, "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role,"
        " store_mode) VALUES (1, 'T1', 'event_sourced', 1, 'x', 'x', '', 'postgres') RETURNING 1")  # fmt: skip
    rows(live_tables, "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) VALUES (1,0,1,NULL,'stopped')"
        " RETURNING 1")  # fmt: skip
    rows(live_tables, "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
        " SELECT 1, 'large', s, 0, 1, 'x', 1, '{}' FROM generate_series(1, 10) s RETURNING 1")  # fmt: skip
    left: list[tuple[int, int]] = []

    def progress(_: Erasure) -> None:
        left.append(rows(live_tables, "SELECT min(seq), max(seq) FROM sharding_event")[0])
        if len(left) == 2:
            rows(live_tables, "UPDATE sharding_shard SET home = 'n', step = 'home' RETURNING 1")

    with pytest.raises(NodesAlive, match="just joined"):
        remove_journal(params, "T1", "me", progress, rows_at_once=3)
    assert left == [(1, 7), (1, 4)]
    noted = rows(live_tables, "SELECT action, detail FROM sharding_decision ORDER BY id")
    assert noted == [("journal_removing", "by me"), ("journal_partly_removed", "6 events, by me")]
    rows(live_tables, "UPDATE sharding_shard SET home = NULL, step = 'stopped' RETURNING 1")
    assert remove_journal(params, "T1", "me", lambda _: None, rows_at_once=3) == Erasure(events=4)


@pytest.mark.slow
def test_a_type_that_no_node_hosts_is_deleted_while_nodes_live(live_tables: Live) -> None:
    live = live_tables
    with live.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        assert live.manage("shell", "-v0", "-c", BUY).returncode == 0
        rows(live, "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role,"
            " store_mode) VALUES (99, 'former.Type', 'event_sourced', 1, 'x', 'x', '', 'postgres') RETURNING 1")  # fmt: skip
        rows(live, "INSERT INTO sharding_shard (type_id, shard, epoch, home, step)"
            " VALUES (99,0,1,NULL,'stopped') RETURNING 1")  # fmt: skip
        rows(live, "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " SELECT 99, 'e' || s, 1, 0, 1, 'x', 1, '{}' FROM generate_series(1, 9) s RETURNING 1")  # fmt: skip
        done = live.manage(
            "sharding_remove_journal", "former.Type", "--yes-delete-the-journal-of", "former.Type"
        )
        assert done.returncode == 0, done.stderr
        assert "Deleted: 9 events" in done.stdout
        assert live.manage("shell", "-v0", "-c", BUY).returncode == 0
        assert one.stop() == 0
    assert rows(live, "SELECT count(*) FROM sharding_event") == [(40,)]
