"""Copies that a move has made in another journal, before its switch or after it: nothing takes them
for what is stored, an erasure goes through those that are left behind, and these can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.deletion import (
    ShardsMove,
    count_entity,
    count_journal,
    erase_entity,
    remove_data,
    remove_journal,
)
from sharding_app.adapters.postgres.further_journals import JournalDown, UnknownJournals
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.left_copies import NotDeleted, delete_left_copies
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.transfer import Age, Moved, StoredRow
from sharding_app.management.commands.sharding_import import _groups
from sharding_app.operations.archiving import archive_entities
from sharding_app.operations.erasing import count, erase
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import shard_of
from tests.integration.adapters.postgres.test_several_journals import (
    ENTITIES,
    EPOCH,
    EVENTS,
    HERE,
    NUMBER,
    SHARDS,
    THERE,
    TYPE,
    WEIGHTS,
    Params,
    Two,
    lies_in,
    sql,
)
from tests.integration.adapters.postgres.test_several_journals import two as two_databases

two = two_databases
COPY = Erasure(events=EVENTS, snapshots=1)
WHOLE = Erasure(events=EVENTS, snapshots=1, remembered=1)


def beside(entity: str) -> list[str]:
    """Return the entities of the same shard."""
    return [each for each in ENTITIES if shard_of(each, SHARDS) == shard_of(entity, SHARDS)]


def move(two: Two, entity: str, step: str = "moved") -> tuple[Params, Params]:
    """Copy the shard of an entity to the other journal, and let it lie there if the move is over.
    Return the database that has the copy, and the one that has the truth.
    """
    shard, name = shard_of(entity, SHARDS), lies_in(entity)
    source, target = (two.other, two.own) if name else (two.own, two.other)
    aim = "" if name else "b"
    if aim:
        two.take(shard, EPOCH, "n-gone")
    for each in beside(entity):
        two.write(target, each, EPOCH)
    sql(
        two.own,
        "INSERT INTO sharding_move (type_id, shard, source, target, step) VALUES (%s, %s, %s, %s, %s)",
        NUMBER, shard, name, aim, step,
    )  # fmt: skip
    if step != "moved":
        sql(target, "DELETE FROM sharding_remembered WHERE shard = %s", shard)
        if aim:
            sql(target, "UPDATE sharding_shard SET home = NULL, step = 'stopped' WHERE shard = %s", shard)
        return target, source
    sql(two.own, "UPDATE sharding_shard SET journal = %s WHERE shard = %s", aim, shard)
    sql(source, "DELETE FROM sharding_remembered WHERE shard = %s", shard)
    if name:
        sql(
            source,
            "UPDATE sharding_shard SET journal = 'default', home = NULL, step = 'stopped' WHERE shard = %s",
            shard,
        )
    return source, target


def stored(where: Params, entity: str) -> int:
    return int(sql(where, "SELECT count(*) FROM sharding_event WHERE entity = %s", entity)[0][0])


@pytest.mark.parametrize("entity", [HERE[0], THERE[0]])
def test_an_erasure_goes_through_the_copy_that_is_left(two: Two, entity: str) -> None:
    copy, truth = move(two, entity)
    sql(copy, "UPDATE sharding_type SET followed = true")
    sql(copy, "UPDATE sharding_shard SET followed = true")
    assert count(two.own, TYPE, entity, two.further) == WHOLE + COPY
    home, found = erase(two.own, TYPE, entity, "me", 1.0, bool, two.further)
    assert (home, found) == ("", WHOLE + COPY)
    assert stored(copy, entity) == stored(truth, entity) == 0
    assert sql(copy, "SELECT 1 FROM sharding_change") == [], "projections follow it where it lies"
    assert count(two.own, TYPE, entity, two.further) == Erasure()
    others = [each for each in ENTITIES if each != entity]
    assert all(stored(copy, each) + stored(truth, each) >= EVENTS for each in others)


def test_an_erasure_leaves_a_copy_that_is_being_made_to_its_command(two: Two) -> None:
    """The deletion is noted in the source, and done in the copy after that."""
    for entity in (HERE[0], THERE[0]):
        copy, truth = move(two, entity, "copying")
        assert erase(two.own, TYPE, entity, "me", 1.0, bool, two.further)[1] == WHOLE
        assert (stored(copy, entity), stored(truth, entity)) == (EVENTS, 0)


def test_an_erasure_leaves_it_also_where_other_shards_have_left_copies(two: Two) -> None:
    """What the entity has stored after its erasure may be in that copy by then."""
    move(two, HERE[0])
    copy, truth = move(two, THERE[0], "copying")
    assert erase(two.own, TYPE, THERE[0], "me", 1.0, bool, two.further)[1] == WHOLE
    assert (stored(copy, THERE[0]), stored(truth, THERE[0])) == (EVENTS, 0)


def test_an_erasure_needs_all_journals_that_have_a_copy(two: Two) -> None:
    copy, truth = move(two, THERE[0])
    away = {"b": {**two.other, "port": "1"}}
    for further, error in ((away, JournalDown), ({}, UnknownJournals)):
        with pytest.raises(error, match="b"):
            erase(two.own, TYPE, THERE[0], "me", 1.0, bool, further)
    assert stored(copy, THERE[0]) == stored(truth, THERE[0]) == EVENTS


def test_messages_from_outside_go_though_the_rest_there_is_a_copy(two: Two) -> None:
    copy, truth = move(two, HERE[0])
    two.message(two.own, HERE[0], "outside", None)
    assert count_entity(two.own, TYPE, HERE[0], further=two.further) == WHOLE + Erasure(messages=1)
    assert erase_entity(two.own, TYPE, HERE[0], "me", further=two.further) == WHOLE + Erasure(messages=1)
    assert (stored(copy, HERE[0]), stored(truth, HERE[0])) == (EVENTS, 0)
    assert sql(two.own, "SELECT 1 FROM sharding_message") == []


def test_where_an_extractor_decides_the_rows_say_what_is_a_copy(two: Two) -> None:
    sql(two.own, "UPDATE sharding_type SET extractor = 'shop.by_country'")
    copy, truth = move(two, HERE[0])
    assert count_entity(two.own, TYPE, HERE[0], further=two.further) == WHOLE
    assert erase(two.own, TYPE, HERE[0], "me", 1.0, bool, two.further)[1] == WHOLE + COPY
    assert stored(copy, HERE[0]) == stored(truth, HERE[0]) == 0


def with_copies(two: Two) -> None:
    """Let a shard of each journal have left a copy, and others be on their way."""
    shards = (
        {shard_of(each, SHARDS): each for each in reversed(HERE)},
        {shard_of(each, SHARDS): each for each in reversed(THERE)},
    )
    for found in shards:
        first, second, *_ = found.values()
        move(two, first)
        move(two, second, "copying")


def test_rows_are_read_where_they_lie(two: Two) -> None:
    before = [sorted({*two.all()[place], *two.all()[place + 3]}) for place in range(3)]
    with_copies(two)
    with Journals(two.own, two.further) as journals:
        known = journals.type(TYPE)
        events = [(each.entity, each.seq) for each in journals.events(known.number)]
        snapshots = [each.entity for each in journals.snapshots(known.number)]
        remembered = list(journals.remembered(known.number, None, range(SHARDS)))
        dormant = [(each.entity, each.events) for each in journals.dormant(known.number, None, 60.0)]
        old = [entity for entity, _ in journals.old_entities(known.number, None, Age(60.0, 1))]
    assert events == [row[:2] for row in before[0]]
    assert snapshots == sorted(ENTITIES)
    assert sorted(remembered) == sorted(ENTITIES)
    assert dormant == [(each, EVENTS) for each in sorted(ENTITIES)]
    assert old == sorted(ENTITIES)


def test_old_events_move_out_where_they_lie(two: Two) -> None:
    with_copies(two)
    two.write(two.own, THERE[0], EPOCH, first=100)  # all of it is a copy
    age, written = Age(60.0, 1), list[StoredRow]()
    for extractor in ("hash:crc32-1", "shop.by_country"):
        sql(two.own, "UPDATE sharding_type SET extractor = %s", extractor)
        with Journals(two.own, two.further) as journals:
            known = journals.type(TYPE)
            for entity in ENTITIES[:8] if extractor.startswith("hash") else ENTITIES[8:]:
                while journals.move_page(known.number, entity, age, written.extend):
                    pass
                journals.move_through(known.number, entity, 100, age)
    assert sorted((each.entity, each.seq) for each in written) == [
        (entity, seq) for entity in sorted(ENTITIES) for seq in range(1, EVENTS)
    ]


def test_what_is_read_while_a_shard_moves_is_not_whole(two: Two) -> None:
    with Journals(two.own, two.further) as journals:
        known = journals.type(TYPE)
        journals.same_numbers(known)
        move(two, HERE[0], "copying")
        journals.same_numbers(known)
        sql(two.own, "UPDATE sharding_shard SET journal = 'b' WHERE shard = %s", shard_of(HERE[0], SHARDS))
        with pytest.raises(Moved):
            journals.same_numbers(known)
        with pytest.raises(Moved):
            journals.remove(known.number, HERE[0], shard_of(HERE[0], SHARDS), "")


def test_entities_are_archived_where_they_lie_and_put_back_there(two: Two, tmp_path: Path) -> None:
    with_copies(two)
    copies = {
        (name, each)
        for name, where in (("", two.own), ("b", two.other))
        for each in ENTITIES
        if stored(where, each)
    }
    moved = archive_entities(two.own, TYPE, None, 60.0, tmp_path, "me", bool, two.further)
    assert [(each.entities, each.events) for each in moved.files] == [(len(ENTITIES), len(ENTITIES) * EVENTS)]
    lying = dict(sql(two.own, "SELECT shard, journal FROM sharding_shard"))
    left = {(name, each) for name, each in copies if lying[shard_of(each, SHARDS)] != name}
    for name, where in (("", two.own), ("b", two.other)):
        assert {each for each in ENTITIES if stored(where, each)} == {each for of, each in left if of == name}
    with Journals(two.own, two.further, weights=WEIGHTS) as journals:
        known = journals.type(TYPE)
        journals.begin(known.number, TYPE, "me", "journal_importing")
        for group in _groups(tmp_path / moved.files[0].name, None):
            places = {each.entity: shard_of(each.entity, SHARDS) for each in group}
            _, there, others = journals.put(known, group, places)
            assert (there, others) == (0, [])
    for name, where in (("", two.own), ("b", two.other)):
        assert {(name, each) for each in ENTITIES if stored(where, each)} == {
            each for each in copies if each[0] == name
        }


def test_nothing_is_removed_while_shards_move(two: Two) -> None:
    move(two, HERE[0], "copying")
    before = two.all()
    for work in (
        lambda: remove_journal(two.own, TYPE, "me", bool, further=two.further),
        lambda: remove_data(two.own, by="me", further=two.further, messages=True),
    ):
        with pytest.raises(ShardsMove, match=TYPE):
            work()
    assert two.all() == before


def test_a_type_is_removed_with_the_copies_that_its_shards_have_left(two: Two) -> None:
    """Also where no shard of the type lies any more."""
    for each in {shard_of(each, SHARDS): each for each in THERE}.values():
        move(two, each)
    assert sql(two.own, "SELECT count(*) FROM sharding_shard WHERE journal <> ''") == [(0,)]
    with pytest.raises(UnknownJournals):
        remove_journal(two.own, TYPE, "me", bool)
    counted = count_journal(two.own, TYPE, further=two.further)
    assert counted.events == (len(ENTITIES) + len(THERE)) * EVENTS
    assert remove_journal(two.own, TYPE, "me", bool, further=two.further) == counted
    assert two.all() == [[]] * 6
    assert sql(two.own, "SELECT 1 FROM sharding_move") == []


def test_a_type_whose_history_is_a_copy_alone_keeps_its_shards(two: Two) -> None:
    """With other shards the copy would be taken for what lies there."""
    for each in {shard_of(each, SHARDS): each for each in THERE}.values():
        move(two, each)
    sql(two.own, "DELETE FROM sharding_event")
    sql(two.own, "DELETE FROM sharding_snapshot")
    remove_data(two.own, by="me", further=two.further)
    assert sql(two.own, "SELECT changeable FROM sharding_type") == [(False,)]
    assert len(sql(two.own, "SELECT 1 FROM sharding_move")) == len({shard_of(each, SHARDS) for each in THERE})


@pytest.mark.parametrize("entity", [HERE[0], THERE[0]])
def test_the_copy_of_a_shard_is_deleted_and_nothing_else(two: Two, entity: str) -> None:
    copy, truth = move(two, entity)
    before = {each: stored(truth, each) for each in ENTITIES}
    pieces: list[Erasure] = []
    gone = delete_left_copies(two.own, two.further, TYPE, None, "me", pieces.append, rows_at_once=3)
    number = len(beside(entity))
    assert (gone.events, gone.snapshots) == (number * EVENTS, number)
    assert pieces[-1] == gone
    assert [each for each in beside(entity) if stored(copy, each)] == []
    assert {each: stored(truth, each) for each in ENTITIES} == before
    others = [each for each in ENTITIES if lies_in(each) == lies_in(entity) and each not in beside(entity)]
    assert [each for each in others if stored(copy, each) != EVENTS] == []
    assert sql(two.own, "SELECT 1 FROM sharding_move") == []
    noted = sql(two.own, "SELECT detail FROM sharding_decision WHERE action = 'left_copies_deleted'")
    assert "by me" in noted[0][0]
    again = delete_left_copies(two.own, two.further, TYPE, None, "me")
    assert again == Erasure()


def test_some_shards_are_chosen(two: Two) -> None:
    shards = {shard_of(each, SHARDS): each for each in HERE}
    first, second = list(shards.values())[:2]
    for each in (first, second):
        move(two, each)
    delete_left_copies(two.own, two.further, TYPE, [shard_of(first, SHARDS)], "me")
    assert (stored(two.own, first), stored(two.own, second)) == (0, EVENTS)
    assert sql(two.own, "SELECT shard FROM sharding_move") == [(shard_of(second, SHARDS),)]


def test_after_a_resize_all_that_was_left_goes(two: Two) -> None:
    """The shard that has left is two shards by now, and both lie elsewhere."""
    for number in range(SHARDS, 2 * SHARDS):
        sql(
            two.own,
            "INSERT INTO sharding_shard (type_id, shard, epoch, step, journal)"
            " SELECT type_id, %s, epoch + 1, 'stopped', journal FROM sharding_shard WHERE shard = %s",
            number, number - SHARDS,
        )  # fmt: skip
    entity = next(each for each in HERE if shard_of(each, 2 * SHARDS) >= SHARDS)
    copy, _ = move(two, entity)
    sql(two.own, "UPDATE sharding_shard SET journal = 'b' WHERE shard = %s", shard_of(entity, 2 * SHARDS))
    sql(two.own, "UPDATE sharding_type SET number_of_shards = %s, shards_revision = 1", 2 * SHARDS)
    delete_left_copies(two.own, two.further, TYPE, None, "me")
    assert [each for each in beside(entity) if stored(copy, each)] == []
    assert all(stored(two.own, each) for each in HERE if each not in beside(entity))


def test_moves_are_told_by_their_way_and_whether_a_command_is_at_work(two: Two) -> None:
    move(two, HERE[0])
    move(two, THERE[0], "copying")
    query = QUERIES["journals_moves"].decode()

    def told() -> list[tuple[Any, ...]]:
        found = sql(two.own, query)
        assert all(0.0 <= row[5] < 600.0 for row in found)
        return [(*row[:5], row[6]) for row in found]

    assert told() == [(TYPE, "", "b", True, 1, False), (TYPE, "b", "", False, 1, False)]
    with psycopg.connect(**two.own, autocommit=True) as command:
        command.execute("SELECT pg_advisory_lock(hashtext('sharding_move_journal'), %s)", [NUMBER])
        assert [row[-1] for row in told()] == [True, True]
    assert sql(two.other, QUERIES["left_rows"].decode()) == []
    move(two, next(each for each in THERE if each not in beside(THERE[0])))
    assert [row[::2] for row in sql(two.other, QUERIES["left_rows"].decode())] == [(TYPE, "default")]


def lost(two: Two) -> None:
    """The cluster's own database has lost the move with a failover."""
    sql(two.own, "UPDATE sharding_shard SET journal = '' WHERE shard = %s", shard_of(HERE[0], SHARDS))


def stranger(two: Two) -> None:
    sql(two.other, "UPDATE sharding_cluster SET cluster_id = 'c2'")


def elsewhere(two: Two) -> None:
    """The alias leads to another database than the cluster knows: a clone."""
    sql(two.own, "INSERT INTO sharding_journal (name, place) VALUES ('b', 'another/1')")


def restored(two: Two) -> None:
    sql(two.other, "DELETE FROM sharding_shard WHERE shard = %s", shard_of(HERE[0], SHARDS))


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (lost, "lost the move"),
        (stranger, "no journal of this cluster"),
        (elsewhere, "no journal of this"),
        (restored, "has no row"),
    ],
)
def test_what_may_be_the_only_one_is_not_deleted(two: Two, trouble: Callable[[Two], None], told: str) -> None:
    copy, _ = move(two, HERE[0])
    trouble(two)
    with pytest.raises(NotDeleted, match=told):
        delete_left_copies(two.own, two.further, TYPE, None, "me")
    assert stored(copy, HERE[0]) == EVENTS


def test_it_is_not_deleted_while_a_journal_is_away_or_does_not_say_that_it_was_left(two: Two) -> None:
    copy, _ = move(two, THERE[0])
    with pytest.raises(JournalDown):
        delete_left_copies(two.own, {"b": {**two.other, "port": "1"}}, TYPE, None, "me")
    with pytest.raises(UnknownJournals):
        delete_left_copies(two.own, {}, TYPE, None, "me")
    sql(two.other, "UPDATE sharding_shard SET journal = ''")
    with pytest.raises(NotDeleted, match="does not say yet"):
        delete_left_copies(two.own, two.further, TYPE, None, "me")
    assert stored(copy, THERE[0]) == EVENTS


def test_a_former_journal_that_has_lost_the_row_of_the_shard_holds_nothing_up(two: Two) -> None:
    """A failover may take back that a home had ever taken the shard there."""
    copy, _ = move(two, THERE[0])
    sql(two.other, "DELETE FROM sharding_shard")
    delete_left_copies(two.own, two.further, TYPE, None, "me")
    assert stored(copy, THERE[0]) == 0
    assert not sql(two.own, "SELECT 1 FROM sharding_move")
