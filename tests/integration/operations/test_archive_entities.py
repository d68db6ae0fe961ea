"""`sharding_archive --entities-older-than`: a round trip with a hash, kills between all steps, and
the entities that stay.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from sharding_app.adapters.postgres import archive
from sharding_app.adapters.postgres.archive import Archive
from sharding_app.operations import archiving
from sharding_app.operations.journal_file import EntityLine, PageWriter, checked, lines
from sharding_app.protocol.ids import shard_of
from tests.integration.operations.test_transfer import everything, execute, run
from tests.support.cluster_rows import CART, SHARDS

ODD = '{"price": 1.10, "big": 12345678901234567890123, "nothing": "\\u0000", "b": 1, "a": "ü"}'
OLD = ("shop.Cart", "--entities-older-than", "90")
IDS = tuple(f"old-{number}" for number in range(1, 8))
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rows")]


@pytest.fixture(autouse=True)
def stored(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven entities with old events, snapshots and remembered ids, read three at a time, in files
    of three; the others are young.
    """
    monkeypatch.setattr(archive, "PAGE_ENTITIES", 3)
    monkeypatch.setattr(archiving, "PAGE_ENTITIES", 2)
    monkeypatch.setattr(archiving, "FILE_ENTITIES", 3)
    for entity in IDS:
        place = [CART, entity, shard_of(entity, SHARDS)]
        execute(
            "INSERT INTO sharding_event (type_id, entity, shard, epoch, seq, name, version, payload, command_id, reply, at)"
            " SELECT %s, %s, %s, 1, number, 'ItemAdded', 1, %s, 'c' || number, '\\x00ff'::bytea,"
            "  now() - interval '100 days' + interval '1 second' * number"
            " FROM generate_series(3, 6) number",
            *place,
            ODD,
        )
        execute(
            "INSERT INTO sharding_snapshot (type_id, entity, shard, epoch, seq, state) VALUES (%s, %s, %s, 1, 4, %s)",
            *place,
            ODD,
        )
    execute(
        "INSERT INTO sharding_remembered (type_id, shard, entity, epoch) VALUES (%s, %s, 'old-2', 1)",
        CART,
        shard_of("old-2", SHARDS),
    )


def there(*entities: str) -> list[str]:
    found = execute("SELECT DISTINCT entity FROM sharding_event WHERE entity LIKE 'old%%' ORDER BY 1")
    return [entity for (entity,) in found]


def moved(folder: Path, *options: object) -> Any:
    return run("sharding_archive", *OLD, "--to", folder, "--yes", *options)


def named(folder: Path) -> list[str]:
    """Return the entities that the closed files name."""
    found = [row for path in sorted(folder.glob("*.jsonl.gz")) for _, row in lines(path)]
    return [each.entity for each in found if isinstance(each, EntityLine)]


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def put_back(folder: Path) -> None:
    for path in sorted(folder.glob("*.jsonl.gz")):
        run("sharding_import", path)


def add_event(entity: str) -> None:
    execute(
        "INSERT INTO sharding_event (type_id, entity, shard, epoch, seq, name, version, payload)"
        " SELECT %s, %s::text, s.shard, s.epoch,"
        "  (SELECT coalesce(max(seq), 0) + 1 FROM sharding_event WHERE entity = %s::text), 'ItemAdded', 1, '{}'"
        " FROM sharding_shard s WHERE s.type_id = %s AND s.shard = %s",
        CART,
        entity,
        entity,
        CART,
        shard_of(entity, SHARDS),
    )


def test_a_round_trip_gives_the_same_rows(tmp_path: Path) -> None:
    before, folder = everything(), tmp_path / "archive"
    assert run("sharding_archive", *OLD) == {
        "done": True, "dry_run": True, "entities": 7, "events": 28, "left": {},
    }  # fmt: skip
    assert everything() == before, "it only counts"
    assert execute("SELECT DISTINCT epoch FROM sharding_shard WHERE type_id = %s", CART) == [(1,)]
    done = moved(folder)
    assert [(each["name"], each["entities"], each["events"]) for each in done["files"]] == [
        ("shop.Cart-000001.jsonl.gz", 3, 12),
        ("shop.Cart-000002.jsonl.gz", 3, 12),
        ("shop.Cart-000003.jsonl.gz", 1, 4),
    ]
    assert done["left"] == {}
    assert there() == []
    assert len(everything()) == len(before) - 7 * 5 - 1, "nothing else is gone"
    assert named(folder) == list(IDS)
    assert names(folder) == [each["name"] for each in done["files"]]
    execute("UPDATE sharding_shard SET followed = true")
    put_back(folder)
    assert everything() == before
    assert execute("SELECT count(*) FROM sharding_change") == [(0,)], "projections have their rows"
    again = moved(tmp_path / "again")
    assert [each["sha256"] for each in again["files"]] == [each["sha256"] for each in done["files"]]
    noted = execute("SELECT action, detail FROM sharding_decision WHERE action LIKE 'entities%%' ORDER BY id")
    assert [action for action, _ in noted[:2]] == ["entities_archiving", "entities_archived"]
    assert noted[1][1].startswith("3 entities, 12 events to shop.Cart-000001.jsonl.gz, SHA-256 ")
    assert "old-" not in str(noted), "no id is noted"


def test_an_imported_entity_lives_on_at_the_present_epoch(tmp_path: Path) -> None:
    moved(tmp_path)
    path = tmp_path / "shop.Cart-000001.jsonl.gz"
    assert run("sharding_import", path, "old-2")["stored"] == 6
    assert there() == ["old-2"]
    assert run("sharding_import", path, "old-2")["there"] == 6, "it is there already"
    stored = "SELECT array_agg(seq ORDER BY seq), min(e.epoch), min(s.epoch) FROM sharding_event e"
    joined = " JOIN sharding_shard s USING (type_id, shard) WHERE entity = 'old-2'"
    ((numbers, written, present),) = execute(stored + joined)
    assert (numbers, written) == ([3, 4, 5, 6], present - 1), "two imports have raised it"
    add_event("old-2")
    with pytest.raises(CommandError, match="another history: 'old-2'"):
        run("sharding_import", path, "old-2")
    with pytest.raises(CommandError, match=r"has no row of shop.Cart 'nobody'"):
        run("sharding_import", path, "nobody")


def test_an_id_that_has_begun_anew_is_refused_and_the_others_come_back(tmp_path: Path) -> None:
    """Its new event is like the first of those that were archived, but for its time."""
    moved(tmp_path)
    execute(
        "INSERT INTO sharding_event (type_id, entity, shard, epoch, seq, name, version, payload, command_id, reply)"
        " SELECT %s, 'old-1', %s, epoch, 3, 'ItemAdded', 1, %s, 'c3', '\\x00ff'::bytea"
        " FROM sharding_shard WHERE type_id = %s AND shard = %s",
        CART,
        shard_of("old-1", SHARDS),
        ODD,
        CART,
        shard_of("old-1", SHARDS),
    )
    with pytest.raises(CommandError, match=r"another history: 'old-1'\. They have begun anew"):
        run("sharding_import", tmp_path / "shop.Cart-000001.jsonl.gz")
    assert there() == ["old-1", "old-2", "old-3"]
    assert execute("SELECT seq FROM sharding_event WHERE entity = 'old-1'") == [(3,)]
    assert execute("SELECT count(*) FROM sharding_snapshot WHERE entity = 'old-1'") == [(0,)]


class Killed(BaseException):
    """The process ends here."""


def ends(function: Callable[..., Any], when: str, number: int) -> Callable[..., Any]:
    """End the process before or after the call of that number."""
    calls: list[None] = []

    def killing(*args: Any, **options: Any) -> Any:
        calls.append(None)
        if when == "before" and len(calls) == number:
            raise Killed
        result = function(*args, **options)
        if when == "after" and len(calls) == number:
            raise Killed
        return result

    return killing


STEPS: list[tuple[Any, str, int]] = [
    (PageWriter, "page", 1), (PageWriter, "page", 3), (PageWriter, "end", 2), (Path, "rename", 1), (Path, "rename", 3),
    (Archive, "remove", 1), (Archive, "remove", 5), (Archive, "remove", 7), (Archive, "note_files", 2), (Archive, "note_files", 3),
]  # fmt: skip


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("owner", "step", "number"), STEPS, ids=[f"{each[1]} {each[2]}" for each in STEPS])
def test_a_run_that_was_killed_at_any_step_has_lost_nothing_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, number: int, when: str
) -> None:
    before = everything()
    with monkeypatch.context() as patched:
        patched.setattr(owner, step, ends(getattr(owner, step), when, number))
        with pytest.raises(Killed):
            moved(tmp_path)
    assert set(there()) | set(named(tmp_path)) == set(IDS), "each is in the journal, or in a closed file"
    done = moved(tmp_path)
    assert done["left"] == {}
    assert there() == []
    assert sorted(named(tmp_path)) == list(IDS), "once"
    assert not list(tmp_path.glob("*.part.gz"))
    put_back(tmp_path)
    assert everything() == before


def test_one_that_has_changed_since_it_was_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One changes after the walk, one after its page, one before a second run removes it."""
    stored, rename, remove = Archive.stored, Path.rename, Archive.remove

    def changed_after_the_walk(self: Archive, number: int, places: Any) -> Any:
        if "old-1" in places:
            add_event("old-1")
        return stored(self, number, places)

    def changed_after_its_page(self: Path, to: Path) -> Path:
        if "000001" in str(to):
            add_event("old-2")
        return rename(self, to)

    def killed(self: Archive, number: int, entity: str, *rest: Any) -> Any:
        if entity == "old-3":
            raise Killed
        return remove(self, number, entity, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Archive, "stored", changed_after_the_walk)
        patched.setattr(Path, "rename", changed_after_its_page)
        patched.setattr(Archive, "remove", killed)
        with pytest.raises(Killed):
            moved(tmp_path)
    execute("DELETE FROM sharding_snapshot WHERE entity = 'old-3'")
    done = moved(tmp_path)
    assert done["left"] == {}
    assert there() == ["old-1", "old-2"], "the third one was read again, since its last event is old"
    assert sorted(named(tmp_path)) == list(IDS[2:]), "no file has a former copy of one that lives"
    assert [len(execute("SELECT 1 FROM sharding_event WHERE entity = %s", each)) for each in there()] == [
        5,
        5,
    ]


def test_a_life_that_has_begun_after_the_removal_costs_no_archived_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run meets another history than that of the file, and leaves both as they are."""
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "note_files", ends(Archive.note_files, "before", 6))
        with pytest.raises(Killed):
            moved(tmp_path)
    assert there() == []
    add_event("old-7")
    assert moved(tmp_path)["left"] == {}
    assert sorted(named(tmp_path)) == list(IDS)
    with pytest.raises(CommandError, match="another history: 'old-7'"):
        run("sharding_import", tmp_path / "shop.Cart-000003.jsonl.gz")
    assert execute("SELECT seq FROM sharding_event WHERE entity = 'old-7'") == [(1,)]


def test_one_that_has_got_another_shard_since_it_was_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home may hold it in memory. The shard that is known to the command has none any more."""
    remove, fewer = Archive.remove, SHARDS // 2
    moved_ids = [each for each in IDS if shard_of(each, SHARDS) >= fewer]

    def resized(self: Archive, number: int, entity: str, *rest: Any) -> Any:
        execute(
            "UPDATE sharding_type SET number_of_shards = %s, shards_revision = 2 WHERE id = %s AND shards_revision = 0",
            fewer, CART,
        )  # fmt: skip
        execute("UPDATE sharding_shard SET home = NULL, step = 'stopped' WHERE shard >= %s", fewer)
        return remove(self, number, entity, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Archive, "remove", resized)
        with pytest.raises(CommandError, match="is being resized"):
            moved(tmp_path)
    assert set(there()) >= set(moved_ids) != set()
    moved(tmp_path)
    assert there() == []
    for each in moved_ids:
        raised = execute("SELECT epoch > 1 FROM sharding_shard WHERE shard = %s", shard_of(each, fewer))
        assert raised == [(True,)], "a process that was frozen writes nothing behind the removal"


def test_one_that_is_sent_a_message_before_a_run_goes_on_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take effect in a new life of the entity."""

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Archive, "remove", killed)
        with pytest.raises(Killed):
            moved(tmp_path)
    assert named(tmp_path) == ["old-1", "old-2", "old-3"]
    execute(
        "INSERT INTO sharding_message (id, type_id, shard, entity, seq, position, target_type, target, command, args, due)"
        " VALUES ('m', %s, %s, 'alice', 1, 0, 'shop.Cart', 'old-2', 'pay', '', now() + interval '1 month')",
        CART, shard_of("alice", SHARDS),
    )  # fmt: skip
    assert moved(tmp_path)["left"] == {"messages": 1}
    assert there() == ["old-2"]
    assert sorted(named(tmp_path)) == [each for each in IDS if each != "old-2"]


@pytest.mark.parametrize("former", [SHARDS, 3 * SHARDS])
def test_one_with_messages_or_timers_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: int
) -> None:
    """Also one that came by a number of shards of before a resize."""
    execute("UPDATE sharding_type SET declared_shards = %s", [SHARDS, former])
    waits = (
        "INSERT INTO sharding_message"
        " (id, type_id, shard, entity, seq, position, target_type, target, command, args, due, key)"
        " VALUES (%s, %s, %s, %s, 1, 0, %s, %s, 'add', '', now() + interval '1 year', %s)"
    )

    def own(entity: str, shards: int) -> None:
        execute(waits, f"m{entity}", CART, shard_of(entity, shards), entity, "shop.Cart", entity, "timer")

    own("old-1", SHARDS)
    execute(waits, "m2", CART, shard_of("alice", SHARDS), "alice", "shop.Cart", "old-2", None)
    execute(waits, "m3", CART, shard_of("bob", SHARDS), "bob", "shop.Gone", "old-3", None)
    remove = Archive.remove

    def comes_late(self: Archive, number: int, entity: str, *rest: Any) -> Any:
        if entity == "old-4":
            own(entity, former)
        return remove(self, number, entity, *rest)

    assert run("sharding_archive", *OLD)["left"] == {"messages": 2}
    monkeypatch.setattr(Archive, "remove", comes_late)
    assert moved(tmp_path)["left"] == {"messages": 3}
    assert there() == ["old-1", "old-2", "old-4"]
    assert named(tmp_path) == ["old-3", "old-5", "old-6", "old-7"], "what stays is in no file"
    put_back(tmp_path)
    assert there() == list(IDS)


def test_a_projection_that_lags_keeps_them_and_a_first_fill_refuses_it(tmp_path: Path) -> None:
    execute("UPDATE sharding_type SET followed = true")
    execute(
        "INSERT INTO sharding_projection (id, name, version, type_ids, server)"
        " SELECT 1, 'shop.Sums', 1, %s, system_identifier::text FROM pg_control_system()",
        [CART],
    )
    position = "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, fill_type) VALUES (1, 0, 127, '1:1:', %s)"
    execute(position, CART)
    with pytest.raises(CommandError, match=r"The projection shop\.Sums reads shop\.Cart for the first time"):
        run("sharding_archive", *OLD)
    execute("UPDATE sharding_position SET fill_type = NULL")
    execute(
        "INSERT INTO sharding_change (type_id, events, entities, slices, firsts, lasts) VALUES (%s, 7, %s, %s, %s, %s)",
        CART, list(IDS), [0] * 7, [1] * 7, [7] * 7,
    )  # fmt: skip
    assert moved(tmp_path / "late")["left"] == {"projections": 7}
    assert there() == list(IDS)
    assert names(tmp_path / "late") == []
    # The oldest transaction that runs on the server may be one of another database, older than
    # these events: only the snapshot's upper bound is certainly behind them.
    execute(
        "UPDATE sharding_position SET position = (next || ':' || next || ':')::pg_snapshot"
        " FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next) behind"
    )
    execute(
        "INSERT INTO sharding_held (projection_id, type_id, entity, slice, next, until) VALUES (1, %s, 'old-5', 0, 7, '9')",
        CART,
    )
    assert moved(tmp_path / "passed")["left"] == {"projections": 1}
    assert there() == ["old-5"]
    assert execute("SELECT count(*) FROM sharding_change") == [(1,)], "their rows stay"


def test_rows_that_a_move_has_copied_need_no_new_event_of_their_type(tmp_path: Path) -> None:
    """The position of a projection stays where it is while nothing new is stored."""
    execute("UPDATE sharding_type SET followed = true")
    execute(
        "INSERT INTO sharding_projection (id, name, version, type_ids, server)"
        " SELECT 1, 'shop.Sums', 1, %s, system_identifier::text FROM pg_control_system()",
        [CART],
    )
    execute(
        "INSERT INTO sharding_position (projection_id, first_slice, last_slice, position)"
        " SELECT 1, 0, 127, pg_current_snapshot()"
    )
    execute("UPDATE sharding_event SET at = at")  # the copy's transaction is younger
    execute("TRUNCATE sharding_change")  # a copy tells projections nothing
    assert not moved(tmp_path)["left"]
    assert there() == []


def test_one_with_very_many_events_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "MOST_EVENTS", 3)
    assert moved(tmp_path) == {"done": True, "dry_run": False, "files": [], "left": {"long": 7}}
    assert names(tmp_path) == []


def test_one_entity_alone(tmp_path: Path) -> None:
    alone = ("shop.Cart", "old-4", "--entities-older-than", "90")
    assert run("sharding_archive", *alone)["entities"] == 1
    assert run("sharding_archive", "shop.Cart", "alice", "--entities-older-than", "90")["entities"] == 0
    assert run("sharding_archive", *alone, "--to", tmp_path, "--yes")["files"][0]["entities"] == 1
    assert named(tmp_path) == ["old-4"]
    assert there() == [each for each in IDS if each != "old-4"]


def test_a_file_that_is_not_on_the_disk_as_it_was_written_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-40])

    monkeypatch.setattr(archiving, "_forget_cached", loses)
    with pytest.raises(CommandError, match="is not whole"):
        moved(tmp_path)
    assert there() == list(IDS)
    assert named(tmp_path) == []


def test_a_closed_file_that_was_changed_or_is_anothers_is_refused(tmp_path: Path) -> None:
    moved(tmp_path)
    path = tmp_path / "shop.Cart-000003.jsonl.gz"
    assert checked(path).entities
    execute(
        "UPDATE sharding_cluster SET cluster_id = 'c2', origin = (SELECT system_identifier FROM pg_control_system())::text"
        " || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text"
    )
    with pytest.raises(CommandError, match="another cluster or type"):
        moved(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CommandError, match="is not whole"):
        moved(tmp_path)


def test_a_second_run_in_the_directory_is_refused(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(CommandError, match="Another sharding_archive works in"):
        moved(tmp_path)
    os.close(descriptor)
    assert moved(tmp_path)["files"]


def test_a_process_that_was_frozen_meanwhile_is_fenced(tmp_path: Path) -> None:
    moved(tmp_path)
    for entity in IDS:
        shard = shard_of(entity, SHARDS)
        assert execute(
            "SELECT epoch, home FROM sharding_shard WHERE type_id = %s AND shard = %s", CART, shard
        ) == [(2, None)], "raised once, however many of its entities were moved"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--older-than", "90", "--entities-older-than", "90"), "not allowed with"),
        ((), "is required"),
        (("--entities-older-than", "-1"), "from 0 to 365000 days"),
        (("--entities-older-than", "9999999"), "from 0 to 365000 days"),
        (("--older-than", "9999999"), "from 0 to 365000 days"),
        (("--older-than", "90", "--keep", str(2**63)), "--keep must be from 1 to"),
        (("--entities-older-than", "90", "--keep", "3"), "belong to --older-than"),
        (("--entities-older-than", "90", "--resume"), "belong to --older-than"),
        (("--entities-older-than", "90", "--yes"), "needs a directory"),
        (("--entities-older-than", "90", "--yes", "--to", __file__), "needs a directory"),
    ],
)
def test_what_makes_no_sense_is_refused(options: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        run("sharding_archive", "shop.Cart", *options)
