"""`sharding_export` and `sharding_import`: a round trip, interruptions, and what is refused."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from sharding_app.adapters.postgres import transfer
from sharding_app.adapters.postgres.transfer import Transfer
from sharding_app.operations.diagnosis.read_database import read_database
from tests.support.cluster_rows import CART

ODD = '{"price": 1.10, "big": 12345678901234567890123, "nothing": "\\u0000", "b": 1, "a": "ü"}'
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rows")]


@pytest.fixture(autouse=True)
def stored(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type with documents that only their own text can stand for, read in small pages."""
    monkeypatch.setattr(transfer, "PAGE_ROWS", 7)
    execute(
        "UPDATE sharding_event SET payload = %s, reply = '\\x00ff0a'::bytea, partial = true, at = now() - interval '9 days'"
        " WHERE entity = 'alice' AND seq = 3",
        ODD,
    )
    execute("INSERT INTO sharding_remembered (type_id, shard, entity, epoch)"
        " SELECT type_id, shard, entity, 1 FROM sharding_event WHERE seq = 1")  # fmt: skip
    # A history whose beginning was trimmed: its snapshot covers it.
    execute("DELETE FROM sharding_event WHERE entity = 'alice' AND seq < 3")


def execute(statement: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall()) if cursor.description is not None else []


def everything() -> list[tuple[Any, ...]]:
    return execute(
        "SELECT entity, seq, shard, name, version, payload::text, command_id, command, reply::text, partial, at::text"
        " FROM sharding_event UNION ALL SELECT entity, seq, shard, 'snapshot', 0, state::text, '', '', '', false, at::text"
        " FROM sharding_snapshot UNION ALL SELECT entity, 0, shard, 'remembered', 0, '', '', '', '', false, ''"
        " FROM sharding_remembered ORDER BY 1, 2, 4"
    )


def run(command: str, *arguments: object) -> Any:
    out = StringIO()
    call_command(command, *map(str, arguments), "--json", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def lose_all() -> None:
    execute("DELETE FROM sharding_event; DELETE FROM sharding_snapshot; DELETE FROM sharding_remembered")


def test_a_round_trip_gives_the_same_rows_at_higher_epochs(tmp_path: Path) -> None:
    before, path = everything(), tmp_path / "carts.jsonl"
    exported = run("sharding_export", "shop.Cart", "--to", path)
    assert exported["rows"] == len(before)
    assert run("sharding_import", path, "--check")["type"] == "shop.Cart"
    lose_all()
    assert run("sharding_import", path) == {
        "done": True, "type": "shop.Cart", "stored": len(before), "there": 0,
    }  # fmt: skip
    assert everything() == before
    again = run("sharding_export", "shop.Cart", "--to", tmp_path / "again.jsonl")
    assert again["sha256"] == exported["sha256"]
    assert execute("SELECT DISTINCT epoch, home FROM sharding_shard WHERE type_id = %s", CART) == [(2, None)]
    assert execute("SELECT DISTINCT epoch FROM sharding_event") == [(2,)]
    assert run("sharding_import", path)["stored"] == 0, "what is there is left alone"
    noted = execute("SELECT action FROM sharding_decision WHERE action LIKE 'journal%%' ORDER BY id")
    assert noted == [("journal_importing",), ("journal_imported",)] * 2


@pytest.mark.parametrize("part", [0.001, 0.02, 0.3, 0.6, 0.9])
def test_an_interrupted_export_goes_on(tmp_path: Path, part: float) -> None:
    path = tmp_path / "carts.jsonl"
    exported = run("sharding_export", "shop.Cart", "--to", path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert path.stat().st_size, "the smallest part ends within the first line"
    with pytest.raises(CommandError, match="not whole"):
        run("sharding_import", path)
    with pytest.raises(CommandError, match="Add --resume"):
        run("sharding_export", "shop.Cart", "--to", path)
    assert run("sharding_export", "shop.Cart", "--to", path, "--resume") == exported
    assert path.read_bytes() == whole


def test_an_export_is_on_disk_before_its_digest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may be erased then."""
    synced: list[tuple[int, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        found = os.fstat(descriptor)
        synced.append((found.st_ino, found.st_size))

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "carts.jsonl"
    assert run("sharding_export", "shop.Cart", "--to", path)["sha256"]
    assert (path.stat().st_ino, path.stat().st_size) in synced
    assert tmp_path.stat().st_ino in {inode for inode, _ in synced}
    assert run("sharding_export", "shop.Cart", "--to", "/dev/null", "--resume")["sha256"]


def test_one_entity(tmp_path: Path) -> None:
    path = tmp_path / "alice.jsonl"
    assert run("sharding_export", "shop.Cart", "alice", "--to", path)["rows"] == 5
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["row"] for each in rows] == [
        "type",
        "snapshot",
        "event",
        "event",
        "event",
        "remembered",
        "end",
    ]
    assert {each["entity"] for each in rows[:-1]} == {"alice"}
    before = everything()
    execute(
        "DELETE FROM sharding_event WHERE entity = 'alice'; DELETE FROM sharding_snapshot;"
        " DELETE FROM sharding_remembered WHERE entity = 'alice'"
    )
    assert run("sharding_import", path)["stored"] == 5
    assert everything() == before
    with pytest.raises(CommandError, match=r"Nothing is stored for .* 'nobody'"):
        run("sharding_export", "shop.Cart", "nobody", "--to", tmp_path / "nobody.jsonl")


def test_what_contradicts_the_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    execute("UPDATE sharding_event SET name = 'Other' WHERE entity = 'user-050'")
    with pytest.raises(CommandError, match="event 1 of 'user-050' is another one there"):
        run("sharding_import", path)
    assert execute("SELECT name FROM sharding_event WHERE entity = 'user-050'") == [("Other",)]
    lose_all()
    lines = path.read_bytes().splitlines(keepends=True)
    gap = tmp_path / "gap.jsonl"
    execute("INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
        " VALUES (1, 'later', 2, 0, 2, 'Added', 1, '{}')")  # fmt: skip
    run("sharding_export", "shop.Cart", "later", "--to", gap)
    lose_all()
    with pytest.raises(CommandError, match="event 2 of 'later' follows no event and no snapshot"):
        run("sharding_import", gap)
    changed = tmp_path / "changed.jsonl"
    for old, new in ((b'"user-050"', b'"user-051"'), (b'"archived":false', b'"archived":true')):
        assert old in b"".join(lines)
        changed.write_bytes(b"".join(lines).replace(old, new, 1))
        with pytest.raises(CommandError, match="SHA-256"):
            run("sharding_import", changed)
    assert everything() == []


def test_events_that_are_deleted_while_it_is_exported_are_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home takes a snapshot behind the page of alice's, and deletes the events before it."""
    path, real = tmp_path / "carts.jsonl", Transfer.events

    def events(self: Transfer, *args: Any) -> Any:
        execute("UPDATE sharding_snapshot SET seq = 4, at = clock_timestamp() WHERE entity = 'alice'")
        execute("DELETE FROM sharding_event WHERE entity = 'alice' AND seq <= 4")
        return real(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "events", events)
        run("sharding_export", "shop.Cart", "--to", path)
    before = everything()
    lose_all()
    run("sharding_import", path)
    assert run("sharding_import", path)["stored"] == 0
    execute("DELETE FROM sharding_snapshot WHERE entity = 'alice' AND seq = 2")  # the former one
    assert everything() == before


def test_a_durable_state_whose_former_values_are_gone(tmp_path: Path) -> None:
    execute("UPDATE sharding_type SET kind = 'durable_state' WHERE id = %s", CART)
    execute("DELETE FROM sharding_snapshot")
    execute("UPDATE sharding_event SET payload = 'null' WHERE entity = 'alice' AND seq < 5")
    before, path = everything(), tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    lose_all()
    run("sharding_import", path)
    assert everything() == before


@pytest.mark.parametrize("kind", ["durable_state", "event_sourced"])
def test_a_durable_state_that_has_gone_on_since_is_no_other_history(tmp_path: Path, kind: str) -> None:
    """An import that was interrupted is run again after its entities have worked."""
    execute("UPDATE sharding_type SET kind = %s WHERE id = %s", kind, CART)
    execute("DELETE FROM sharding_snapshot")
    path, newer = tmp_path / "carts.jsonl", tmp_path / "newer.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    execute("UPDATE sharding_event SET payload = 'null' WHERE entity = 'alice' AND seq < 5")
    if kind == "event_sourced":
        with pytest.raises(CommandError, match="event 3 of 'alice' is another one there"):
            run("sharding_import", path)
        return
    before = everything()
    run("sharding_export", "shop.Cart", "--to", newer)
    assert run("sharding_import", path)["stored"] == 0
    assert everything() == before, "what was forgotten stays so"
    execute("DELETE FROM sharding_event WHERE entity = 'alice' AND seq = 5")
    change = (
        "UPDATE sharding_event e SET payload = '{}', epoch = s.epoch FROM sharding_shard s"
        " WHERE s.type_id = e.type_id AND s.shard = e.shard AND e.entity = 'alice' AND e.seq = %s"
    )
    execute(change, 4)
    assert run("sharding_import", newer)["stored"] == 1, "a file may be ahead of the journal"
    execute(change, 5)
    with pytest.raises(CommandError, match="event 5 of 'alice' is another one there"):
        run("sharding_import", newer)


def test_an_export_looks_for_no_snapshot_of_each_durable_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them begin behind a gap."""
    execute("UPDATE sharding_type SET kind = 'durable_state' WHERE id = %s", CART)
    execute("DELETE FROM sharding_snapshot")
    execute("DELETE FROM sharding_event WHERE entity = 'alice' AND seq = 1")
    looks, real = [], Transfer.snapshots

    def snapshots(self: Transfer, *args: Any) -> Any:
        looks.append(args)
        return real(self, *args)

    monkeypatch.setattr(Transfer, "snapshots", snapshots)
    run("sharding_export", "shop.Cart", "--to", tmp_path / "carts.jsonl")
    assert len(looks) == 1


def test_an_export_looks_for_missed_snapshots_of_many_entities_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a type deletes events: nearly all histories begin behind a gap."""
    execute("UPDATE sharding_event SET seq = 2 WHERE seq = 1")
    ((behind_gaps,),) = execute("SELECT count(DISTINCT entity) FROM sharding_event")
    assert behind_gaps > 20
    asked, real = [], Transfer._rows

    def rows(self: Transfer, query: str, params: dict[str, Any]) -> Any:
        asked.append(query)
        return real(self, query, params)

    monkeypatch.setattr(Transfer, "_rows", rows)
    run("sharding_export", "shop.Cart", "--to", tmp_path / "carts.jsonl")
    assert asked.count("export_late") == 1
    ((snapshots,),) = execute("SELECT count(*) FROM sharding_snapshot")
    assert asked.count("export_snapshots") == snapshots // transfer.PAGE_ROWS + 1


@pytest.mark.parametrize("events", [1, 2, 20])
def test_a_history_that_has_begun_anew_is_left_as_it_is(tmp_path: Path, events: int) -> None:
    """A snapshot of the former life would be its state, in front of all or some of its events."""
    path = tmp_path / "alice.jsonl"
    run("sharding_export", "shop.Cart", "alice", "--to", path)
    begin_anew(events)
    before = everything()
    told = "event 3 of 'alice' is another one" if events > 2 else "events of 'alice' are there, and none"
    with pytest.raises(CommandError, match=told):
        run("sharding_import", path)
    assert everything() == before


@pytest.mark.parametrize("events", [1, 20])
def test_an_entity_that_begins_anew_while_it_is_exported_gets_no_snapshot_of_its_former_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """Snapshots are read first. One of the former life would be the state of the present one."""
    assert execute("SELECT seq FROM sharding_snapshot WHERE entity = 'alice'") == [(2,)]
    reads, path = Transfer.events, tmp_path / "carts.jsonl"

    def later(*args: Any, **options: Any) -> Any:
        begin_anew(events)
        return reads(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "events", later)
        run("sharding_export", "shop.Cart", "--to", path)
    before = everything()
    for table in ("event", "snapshot", "remembered"):
        execute(f"DELETE FROM sharding_{table}")  # noqa: S608  (a test's own text)
    run("sharding_import", path)
    assert everything() == before


@pytest.mark.parametrize(
    "at", ["-infinity", "infinity", "0044-03-15 12:00:00+00 BC", "12026-01-01 00:00:00+00"]
)
def test_each_time_that_a_row_may_have_comes_back(tmp_path: Path, at: str) -> None:
    execute("UPDATE sharding_event SET at = %s WHERE entity = 'bob'", at)
    execute("UPDATE sharding_snapshot SET at = %s WHERE entity = 'alice'", at)
    before, path = everything(), tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    for table in ("event", "snapshot", "remembered"):
        execute(f"DELETE FROM sharding_{table}")  # noqa: S608  (a test's own text)
    run("sharding_import", path)
    assert everything() == before


def begin_anew(events: int) -> None:
    """Erase alice, and let her store that many events again."""
    ((shard,),) = execute("SELECT DISTINCT shard FROM sharding_event WHERE entity = 'alice'")
    execute("DELETE FROM sharding_event WHERE entity = 'alice'")
    execute("DELETE FROM sharding_snapshot WHERE entity = 'alice'")
    execute("INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
        " SELECT type_id, 'alice', n, shard, epoch, 'Anew', 1, '{}' FROM sharding_shard, generate_series(1, %s) n"
        " WHERE type_id = %s AND shard = %s", events, CART, shard)  # fmt: skip


@pytest.mark.parametrize("events", [0, 2, 3])
def test_an_interrupted_import_goes_on(tmp_path: Path, events: int) -> None:
    """It has put back all snapshots, and some events of the entity."""
    before, path = everything(), tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    execute(
        "DELETE FROM sharding_event WHERE entity > 'alice' OR (entity = 'alice' AND seq >= 3 + %s)", events
    )
    run("sharding_import", path)
    assert everything() == before


def test_a_living_host_is_no_place_to_put_rows_back(tmp_path: Path) -> None:
    path = tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    lose_all()
    ours = connection.get_connection_params()
    with psycopg.connect(**{**ours, "cursor_factory": psycopg.Cursor}, autocommit=True) as node:
        node.execute("SELECT pg_advisory_lock(1)")
        with pytest.raises(CommandError, match="is hosted by node-a"):
            run("sharding_import", path)
    assert everything() == []
    assert execute("SELECT DISTINCT epoch FROM sharding_shard") == [(1,)]
    assert run("sharding_import", path)["stored"] > 100


def test_an_import_that_did_not_end_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "carts.jsonl"
    run("sharding_export", "shop.Cart", "--to", path)
    lose_all()

    def unfinished() -> tuple[str, ...]:
        return read_database("default", "default").unfinished_imports

    assert unfinished() == ()
    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "put_events", interrupt)
        with pytest.raises(CommandError, match="Interrupted"):
            run("sharding_import", path)
    assert unfinished() == ("shop.Cart",)
    run("sharding_import", path, "alice")
    assert unfinished() == ("shop.Cart",), "one entity of the file ends it for no other"
    run("sharding_import", path)
    assert unfinished() == ()
    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "put_events", interrupt)
        with pytest.raises(CommandError, match="Interrupted"):
            run("sharding_import", path, "alice")
    assert unfinished() == ("shop.Cart",)
    execute(
        "INSERT INTO sharding_decision (action, subject, detail) VALUES ('journal_removed', 'shop.Cart', '')"
    )
    assert unfinished() == ()


def interrupt(*_: object, **__: object) -> int:
    raise KeyboardInterrupt
