"""`sharding_archive`: a round trip with a hash, interruptions, and the rows that stay."""

from __future__ import annotations

import gzip
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from sharding_app.adapters.postgres import transfer
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.management.commands import sharding_import
from sharding_app.operations.journal_file import End, EventLine, PageWriter, checked, lines
from sharding_app.protocol.ids import shard_of
from tests.integration.operations.test_transfer import everything, execute, run
from tests.support.cluster_rows import CART, SHARDS

ODD = '{"price": 1.10, "big": 12345678901234567890123, "nothing": "\\u0000", "b": 1, "a": "ü"}'
OLD = ("shop.Cart", "--older-than", "90")
PASS_ALL = (
    "UPDATE sharding_position SET position = (behind || ':' || behind || ':')::pg_snapshot"
    " FROM pg_snapshot_xmax(pg_current_snapshot()) AS behind"
)
"""The server's oldest transaction may be one of another database, and older than the events: it is
none of the position's.
"""
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rows")]


@pytest.fixture(autouse=True)
def stored(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three entities with ten old events, two young ones, and a snapshot of the eighth."""
    monkeypatch.setattr(transfer, "PAGE_ROWS", 3)
    for entity in ("old-1", "old-2", "old-3"):
        place = [CART, entity, shard_of(entity, SHARDS)]
        execute(
            "INSERT INTO sharding_event (type_id, entity, shard, epoch, seq, name, version, payload, command_id, reply, at)"
            " SELECT %s, %s, %s, 1, number, 'ItemAdded', 1, %s, 'c' || number, '\\x00ff'::bytea,"
            "  now() - interval '1 day' * (CASE WHEN number > 10 THEN 1 ELSE 100 END)"
            " FROM generate_series(1, 12) number",
            *place,
            ODD,
        )
        execute(
            "INSERT INTO sharding_snapshot (type_id, entity, shard, epoch, seq, state) VALUES (%s, %s, %s, 1, 8, '{}')",
            *place,
        )


def numbers(entity: str) -> list[int]:
    found = execute("SELECT seq FROM sharding_event WHERE entity = %s ORDER BY seq", entity)
    return [seq for (seq,) in found]


def test_a_round_trip_gives_the_same_rows(tmp_path: Path) -> None:
    before, path = everything(), tmp_path / "carts.jsonl.gz"
    assert run("sharding_archive", *OLD) == {"done": True, "dry_run": True, "entities": 3, "events": 24}
    assert everything() == before, "it only counts"
    moved = run("sharding_archive", *OLD, "--to", path, "--yes")
    assert moved["rows"] == 24
    assert [numbers(f"old-{which}") for which in (1, 2, 3)] == [[9, 10, 11, 12]] * 3
    assert len(everything()) == len(before) - 24, "nothing else is gone"
    assert list(lines(path))[-1][1] == End(24, moved["sha256"])
    execute("UPDATE sharding_shard SET followed = true")
    assert run("sharding_import", path)["stored"] == 24
    assert everything() == before
    assert execute("SELECT count(*) FROM sharding_change") == [(0,)], "projections had passed them"
    assert execute("SELECT DISTINCT epoch FROM sharding_event WHERE entity LIKE 'old%%' AND seq < 9") == [
        (2,)
    ]
    again = run("sharding_archive", *OLD, "--to", tmp_path / "again.jsonl.gz", "--yes")
    assert again["sha256"] == moved["sha256"]
    noted = execute("SELECT detail FROM sharding_decision WHERE action = 'events_archived'")
    assert [detail.split(",")[0] for (detail,) in noted] == ["24 events", "24 events"]


def test_an_interrupted_import_of_a_file_that_was_gone_on_with_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run has begun with the first entity again, so its events stand in two places."""
    before, path = everything(), tmp_path / "carts.jsonl.gz"
    write, pages = PageWriter.page, []

    def broken(self: PageWriter, rows: Any) -> None:
        pages.append(rows)
        if len(pages) == 5:
            raise OSError("the disk is full")
        write(self, rows)

    with monkeypatch.context() as patched:
        patched.setattr(PageWriter, "page", broken)
        with pytest.raises(CommandError, match="the disk is full"):
            run("sharding_archive", *OLD, "--to", path, "--yes")
    execute("UPDATE sharding_snapshot SET seq = 10 WHERE entity = 'old-1'")
    assert run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")["rows"] == 26
    execute("DELETE FROM sharding_event WHERE entity LIKE 'old%%'")
    put, done = sharding_import._put_page, []

    def dies(*args: Any) -> int:
        done.append(args)
        if len(done) == 2:
            raise OSError("the process was ended")
        return put(*args)

    monkeypatch.setattr(sharding_import, "PAGE_ROWS", 3)
    with monkeypatch.context() as patched:
        patched.setattr(sharding_import, "_put_page", dies)
        with pytest.raises(CommandError, match="was ended"):
            run("sharding_import", path)
    assert numbers("old-1") == [1, 2, 3]
    run("sharding_import", path)
    assert [numbers(f"old-{which}") for which in (1, 2, 3)] == [
        list(range(1, 11)), list(range(1, 9)), list(range(1, 9)),
    ]  # fmt: skip
    assert len(everything()) == len(before) - 10, "the young events are in no archive"


def test_one_entity_and_the_newest_of_it_stay(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl.gz"
    chosen = ("shop.Cart", "old-2", "--older-than", "90", "--keep", "8")
    assert run("sharding_archive", *chosen)["events"] == 4
    assert run("sharding_archive", *chosen, "--to", path, "--yes")["rows"] == 4
    assert [numbers(f"old-{which}")[0] for which in (1, 2, 3)] == [1, 5, 1]
    assert checked(path).entity == "old-2"


@pytest.mark.parametrize("is_stored", [False, True], ids=["before the page is on disk", "after"])
@pytest.mark.parametrize("page", [1, 2, 5])
def test_an_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: int, is_stored: bool
) -> None:
    before, path = everything(), tmp_path / "carts.jsonl.gz"
    write, pages = PageWriter.page, []

    def broken(self: PageWriter, rows: Any) -> None:
        pages.append(rows)
        if len(pages) < page or is_stored:
            write(self, rows)
        if len(pages) == page:
            raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(PageWriter, "page", broken)
        with pytest.raises(CommandError, match="the disk is full"):
            run("sharding_archive", *OLD, "--to", path, "--yes")
    with path.open("ab") as file:
        file.write(gzip.compress(b"half a page")[:-9])
    with pytest.raises(CommandError, match=r"exists.*--resume"):
        run("sharding_archive", *OLD, "--to", path, "--yes")
    with pytest.raises(CommandError, match="is not whole"):
        run("sharding_import", path)
    with pytest.raises(CommandError, match="another archive"):
        run("sharding_archive", "shop.Cart", "old-1", "--older-than", "90", "--to", path, "--yes", "--resume")
    assert run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")["rows"] == 24
    with pytest.raises(CommandError, match="is whole"):
        run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")
    assert run("sharding_import", path)["stored"] == 24
    assert everything() == before


def test_a_second_run_leaves_the_file_of_one_at_work_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cut off the page that the first one has just moved, and both would write an end."""
    before, path = everything(), tmp_path / "carts.jsonl.gz"
    move, said = transfer.Transfer.move_page, []

    def moved(self: transfer.Transfer, *args: Any) -> bool:
        found = move(self, *args)
        with pytest.raises(CommandError, match="Another command writes") as refusal:
            run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")
        said.append(refusal)
        return found

    monkeypatch.setattr(transfer.Transfer, "move_page", moved)
    assert run("sharding_archive", *OLD, "--to", path, "--yes")["rows"] == 24
    monkeypatch.undo()
    assert said
    assert run("sharding_import", path)["stored"] == 24
    assert everything() == before


def test_a_run_that_goes_on_deletes_nothing_of_a_life_that_has_begun_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events have the numbers of those that are on the disk, and are in no file."""
    path = tmp_path / "carts.jsonl.gz"
    write = PageWriter.page

    def broken(self: PageWriter, rows: Any) -> None:
        write(self, rows)
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(PageWriter, "page", broken)
        with pytest.raises(CommandError, match="the disk is full"):
            run("sharding_archive", *OLD, "--to", path, "--yes")
    execute(
        "UPDATE sharding_event SET name = 'Anew', at = at + interval '1 minute' WHERE entity = 'old-1'"
    )  # as if it had been erased, and had stored these
    assert run("sharding_archive", *OLD, "--to", path, "--yes", "--resume")["rows"] == 3 + 24
    written = [row for _, row in lines(path) if isinstance(row, EventLine) and row.entity == "old-1"]
    assert [row.seq for row in written if row.name == "Anew"] == list(range(1, 9))


def test_what_a_projection_has_not_passed_is_not_moved(tmp_path: Path) -> None:
    execute("UPDATE sharding_type SET followed = true")
    execute(
        "INSERT INTO sharding_projection (id, name, version, type_ids, server)"
        " SELECT 1, 'shop.Sums', 1, %s, system_identifier::text FROM pg_control_system()",
        [CART],
    )
    execute(
        "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position)"
        " VALUES (1, 0, 127, '1:1:')"
    )
    assert run("sharding_archive", *OLD, "--to", tmp_path / "none.jsonl.gz", "--yes")["rows"] == 0
    assert numbers("old-1") == list(range(1, 13))


def test_events_that_were_put_back_keep_those_behind_them(tmp_path: Path) -> None:
    """An import puts them back in a transaction that no projection has passed yet."""
    execute("UPDATE sharding_type SET followed = true")
    execute("UPDATE sharding_shard SET followed = true")
    execute(
        "INSERT INTO sharding_projection (id, name, version, type_ids, server)"
        " SELECT 1, 'shop.Sums', 1, %s, system_identifier::text FROM pg_control_system()",
        [CART],
    )
    execute(
        "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position)"
        " VALUES (1, 0, 127, '1:1:')"
    )
    execute(PASS_ALL)
    first, second = tmp_path / "1.jsonl.gz", tmp_path / "2.jsonl.gz"
    assert run("sharding_archive", *OLD, "--to", first, "--yes")["rows"] == 24
    run("sharding_import", first)
    execute(
        "UPDATE sharding_snapshot p SET seq = 10, epoch = s.epoch FROM sharding_shard s"
        " WHERE s.type_id = p.type_id AND s.shard = p.shard"
    )
    run("sharding_archive", *OLD, "--to", second, "--yes")
    assert [numbers(f"old-{which}") for which in (1, 2, 3)] == [list(range(1, 13))] * 3
    execute(PASS_ALL)
    assert run("sharding_archive", *OLD, "--to", tmp_path / "3.jsonl.gz", "--yes")["rows"] == 30
    assert [numbers(f"old-{which}") for which in (1, 2, 3)] == [[11, 12]] * 3


def test_events_that_are_not_written_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second wall: the statement that deletes says which events, and they are compared."""
    bound = b"e.seq >= (SELECT min(seq) FROM front)"
    assert bound in QUERIES["trim_events"]
    monkeypatch.setitem(
        QUERIES, "trim_events", QUERIES["trim_events"].replace(bound, bound.replace(b">=", b">"))
    )
    before = everything()
    with pytest.raises(CommandError, match="the events 2 to 3 would be deleted"):
        run("sharding_archive", *OLD, "--to", tmp_path / "1.jsonl.gz", "--yes")
    assert everything() == before


def test_an_archive_of_many_entities_tells_no_line_for_each(tmp_path: Path) -> None:
    """A job of cron would mail them."""
    execute(
        "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
        " SELECT type_id, entity, 1, shard, 1, '{}' FROM sharding_event WHERE entity LIKE 'user%%'"
    )
    execute(
        "INSERT INTO sharding_event (type_id, entity, shard, epoch, seq, name, version, payload)"
        " SELECT %s, entity, shard, 1, 2, 'ItemAdded', 1, '{}' FROM sharding_event WHERE entity LIKE 'user%%'",
        CART,
    )
    told = StringIO()
    path = tmp_path / "carts.jsonl.gz"
    call_command("sharding_archive", *OLD, "--to", str(path), "--yes", stdout=StringIO(), stderr=told)
    assert checked(path).archived
    assert len(told.getvalue().splitlines()) < 5
