"""A move of shards beside other commands that write or delete what the type has stored: one of the
two is refused, or both do what they say.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, cast

import psycopg
import pytest

from sharding_app.adapters.postgres import left_copies, moving, moving_locks, partitioning
from sharding_app.adapters.postgres.deletion import ShardsMove, remove_journal
from sharding_app.adapters.postgres.further_journals import JournalDown
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.left_copies import NotDeleted, delete_left_copies, erase_in_copies
from sharding_app.adapters.postgres.moving import move_shards, settle_moves
from sharding_app.adapters.postgres.partitioning import CannotPartition, change_layout
from sharding_app.adapters.postgres.partitioning import cancel as cancel_layout
from sharding_app.management.commands.sharding_remove_journal import Command
from sharding_app.management.progress import Progress
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.moving import CannotMove
from tests.integration.adapters.postgres import test_moving
from tests.integration.adapters.postgres.test_moving import IDS, SHARDS, THERE, Both, alias, message_of
from tests.support.slack import SLACK

databases, both = test_moving.databases, test_moving.both
TYPE = "shop.Cart"


def further(both: Both) -> dict[str, dict[str, Any]]:
    return {THERE: both.params[THERE]}


def test_no_move_begins_while_a_type_is_removed(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would carry off what is not yet deleted, into a journal that was empty."""
    monkeypatch.setattr(moving_locks, "LEAVING_SECONDS", 0.0)  # many moves are refused
    both.fill("")
    pieces = []

    def beside(done: Erasure) -> None:
        pieces.append(done)
        with suppress(CannotMove):
            both.move()

    remove_journal(both.params[""], TYPE, "me", beside, rows_at_once=20, further=further(both))
    assert len(pieces) > 1
    for journal in ("", THERE):
        assert all(rows == set() for rows in both.stored(journal).values()), journal
    assert both.run("", "SELECT FROM sharding_move") == []


@pytest.mark.parametrize("lock", ["sharding_move_journal", "sharding_partition"])
def test_a_command_waits_for_the_end_of_the_last_ones_session(
    both: Both, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """Two commands of a script: a busy server notices a while later that the first one has gone."""
    monkeypatch.setattr(moving_locks, "LEAVING_SECONDS", 30.0 * SLACK)
    both.fill("")
    number = 1 if lock == "sharding_move_journal" else 0
    last = psycopg.connect(**both.params[""], autocommit=True)
    last.execute("SELECT pg_advisory_lock(hashtext(%s), %s)", [lock, number])
    ends = threading.Timer(0.3, last.close)
    ends.start()
    try:
        if number:
            assert both.move()
        else:
            assert not cancel_layout(both.params[""], "me"), "there is nothing to give up"
    finally:
        ends.join()


def test_no_type_is_removed_while_a_move_of_it_is_at_work(both: Both) -> None:
    both.fill("")
    steps = move_shards(both.params[""], further(both), TYPE, THERE, None, "me", names=alias)
    next(steps)
    both.run("", "DELETE FROM sharding_move")
    with pytest.raises(ShardsMove):
        remove_journal(both.params[""], TYPE, "me", bool, further=further(both))
    steps.close()


def test_the_removal_of_a_type_ends_the_watch_of_a_move_that_was_stopped(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its last switch: the triggers note each row of a type that lives again."""

    def ends(*_: object) -> None:
        raise psycopg.OperationalError("the session was ended")

    watched = "SELECT FROM pg_trigger WHERE tgname LIKE 'sharding_moving%%'"
    both.fill("")
    with monkeypatch.context() as patched:
        patched.setattr(moving, "_unwatch", ends)
        with pytest.raises(psycopg.OperationalError):
            both.move()
    assert both.run("", watched)
    command = Command()
    monkeypatch.setattr(command, "on_database", lambda work: work(both.params[""]))
    monkeypatch.setattr(command, "further", lambda: further(both))
    assert command._on_journal(TYPE, cast(Progress, bool), dry_run=False).whole
    assert both.run("", watched) == []
    assert both.run("", "SELECT to_regclass('sharding_moving_touched')") == [(None,)]
    assert both.run("", "SELECT FROM sharding_move") == []


def test_a_move_and_an_import_exclude_each_other(both: Both) -> None:
    """A page that is put into the source behind the last copy of its rows would be missed."""
    with Journals(both.params[""], further(both)) as journals:
        number = journals.type(TYPE).number
        journals.begin(number, TYPE, "me", "journal_importing")
        with pytest.raises(CannotMove, match="sharding_import"):
            both.move()
    steps = move_shards(both.params[""], further(both), TYPE, THERE, None, "me", names=alias)
    next(steps)
    with Journals(both.params[""], further(both)) as journals, pytest.raises(ShardsMove):
        journals.begin(number, TYPE, "me", "journal_importing")
    steps.close()


def test_rows_that_come_back_are_not_deleted_with_the_copies_of_others(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards change over into a journal between two looks of a deletion of copies in it."""
    both.fill("")
    both.run("", "UPDATE sharding_type SET extractor = 'hash:crc32-1'")
    for journal, origin in (("", ""), (THERE, "journal")):
        known = "INSERT INTO sharding_cluster (cluster_id, origin) VALUES ('c1', %s) ON CONFLICT DO NOTHING"
        both.run(journal, known, origin)
    both.move()
    back = range(4, SHARDS)
    both.run("", "DELETE FROM sharding_move WHERE shard >= 4")
    both.run("", "DELETE FROM sharding_event WHERE shard >= 4")
    both.run("", "DELETE FROM sharding_snapshot WHERE shard >= 4")
    steps = move_shards(both.params[""], further(both), TYPE, "", list(back), "me", names=alias)
    while next(steps).name != "compared":
        pass
    look = left_copies.whereabouts

    def looks(*args: Any) -> Any:
        found = look(*args)
        for _ in steps:
            pass
        return found

    monkeypatch.setattr(left_copies, "whereabouts", looks)
    with suppress(NotDeleted):
        assert delete_left_copies(both.params[""], further(both), TYPE, None, "me").events > 0
    for _ in steps:
        pass
    coming = {each for each in IDS if shard_of(each, SHARDS) in back}
    assert {row[0] for row in both.stored("", set(back))["event"]} == coming
    assert {row[0] for row in both.stored("", set(back))["snapshot"]} == coming


def test_an_erasure_deletes_nothing_of_a_shard_that_comes_meanwhile(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process stands still between its look and its deletion. The entity has begun anew."""
    both.fill("", IDS[:20])
    both.run("", "UPDATE sharding_type SET extractor = 'hash:crc32-1'")
    both.move(shards=[3, 5])
    for statement in (
        "DELETE FROM sharding_move WHERE shard = 5",
        "DELETE FROM sharding_event WHERE shard = 5",
        "DELETE FROM sharding_snapshot WHERE shard = 5",
    ):
        both.run("", statement)
    entity, before = message_of(5), both.stored(THERE, {5})
    look = left_copies.whereabouts

    def looks(*args: Any) -> Any:
        found = look(*args)
        with suppress(CannotMove):
            both.move("", shards=[5])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(left_copies, "whereabouts", looks)
        erase_in_copies(both.params[""], further(both), TYPE, entity)
    assert both.stored(both.places()[5], {5}) == before
    both.move("", shards=[5])
    assert both.stored("", {5}) == before


@pytest.mark.parametrize("number", [4, 16])
def test_a_resize_before_the_beginning_leaves_no_entity_behind(
    both: Both, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The command stands still between its look at the type and its beginning. By the former number
    it would take other entities along than those of the shards.
    """
    both.fill("")
    both.run("", "UPDATE sharding_type SET extractor = 'hash:crc32-1'")
    refuse = moving._refuse_nodes

    def stands_still(*args: Any) -> None:
        refuse(*args)
        test_moving.resize(both, number)

    with monkeypatch.context() as patch, suppress(CannotMove):
        patch.setattr(moving, "_refuse_nodes", stands_still)
        both.move(shards=[3])
    if both.places()[3] != THERE:
        both.move(shards=[3])
    mine = {each for each in IDS if shard_of(each, number) == 3}
    there = both.run(THERE, "SELECT DISTINCT entity FROM sharding_event")
    assert {entity for (entity,) in there} == mine


def test_a_layout_is_not_changed_under_a_move_that_has_begun_meanwhile(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new table would lack the triggers that note which rows are to be copied again."""
    both.fill("", IDS[:20])
    steps = move_shards(both.params[""], further(both), TYPE, THERE, None, "me", names=alias)
    refuse = partitioning._refuse_obstacles

    def stands_still(*args: Any) -> None:
        refuse(*args)
        if not test_moving.watched(both, ""):
            next(steps)

    monkeypatch.setattr(partitioning, "_refuse_obstacles", stands_still)
    with pytest.raises(CannotPartition, match="sharding_move_journal"):
        list(change_layout(both.params[""], {}, "me"))
    assert [step.name for step in steps][-1] == "done"


def test_no_move_begins_beside_a_change_of_the_layout(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change has begun while the move waits for the table, behind its first look."""
    both.fill("", IDS[:20])
    changes = change_layout(both.params[""], {}, "me")
    make = moving._make_tables

    def waits(*args: Any) -> None:
        make(*args)
        if not both.run("", "SELECT to_regclass('sharding_partitioning')::text")[0][0]:
            next(changes)

    monkeypatch.setattr(moving, "_make_tables", waits)
    try:
        with pytest.raises(CannotMove, match="layout of default"):
            both.move()
        assert test_moving.watched(both, "") == 0
    finally:
        changes.close()
        assert cancel_layout(both.params[""], "me")


def test_a_move_waits_for_an_append_in_a_transaction_of_the_application(both: Both) -> None:
    """`persist(in_transaction=)` holds the row of a shard to the end of that transaction."""
    both.fill("", IDS[:10])
    steps = move_shards(both.params[""], further(both), TYPE, THERE, None, "me", names=alias)
    while next(steps).name != "compared":
        pass
    with psycopg.connect(**both.params[""]) as application:
        application.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " SELECT 1, entity, 6, shard, epoch, 'Added', 1, '{}' FROM sharding_event WHERE entity = %s AND seq = 1",
            [IDS[0]],
        )
        with pytest.raises(CannotMove, match="in use at each of"):
            list(steps)
    assert both.move()[-1] == "done"
    assert len(both.run(THERE, "SELECT FROM sharding_event WHERE entity = %s", IDS[0])) == 6


def test_a_journal_in_which_other_shards_left_a_copy_may_be_down(both: Both) -> None:
    both.fill("", IDS[:10])
    both.run(
        "",
        "INSERT INTO sharding_move (type_id, shard, source, target, step) VALUES (1, 7, 'journal_c', '', 'moved')",
    )
    down = further(both) | {"journal_c": both.params[THERE] | {"port": 1}}
    steps = list(move_shards(both.params[""], down, TYPE, THERE, [1, 2], "me", names=alias))
    assert steps[-1].name == "done"
    settle_moves(both.params[""], down, TYPE, names=alias, needed={""})
    with pytest.raises(JournalDown):
        settle_moves(both.params[""], down, TYPE, names=alias)
