"""Deleting, archiving and putting back where a type's shards lie in two databases, and no node is
alive: all of it is found, former homes are fenced in both, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.archive import Archive
from sharding_app.adapters.postgres.deletion import (
    InFurtherJournals,
    MessagesWait,
    count_entity,
    count_journal,
    erase_entity,
    remove_data,
    remove_journal,
)
from sharding_app.adapters.postgres.further_journals import (
    JournalDown,
    JournalsElsewhere,
    JournalsUnread,
    UnknownJournals,
    refuse_elsewhere,
)
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.transfer import Age, Moved, Resizing, StoredRow
from sharding_app.embedded import Servers
from sharding_app.management.commands.sharding_import import _groups
from sharding_app.operations.archiving import archive_entities, count_entities
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.journals import journal_of
from tests.support.scratch import make_tables, scratch_database

TYPE, NUMBER, SHARDS, EPOCH = "shop.Cart", 1, 8, 3
WEIGHTS = {"": 1.0, "b": 1.0}
ENTITIES = tuple(f"c{number}" for number in range(16))
EVENTS = 4
Params = dict[str, Any]


def lies_in(entity: str) -> str:
    return journal_of(TYPE, shard_of(entity, SHARDS), WEIGHTS)


HERE, THERE = (tuple(each for each in ENTITIES if lies_in(each) == name) for name in WEIGHTS)


def sql(params: Params, query: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(**params, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []


class Two:
    """The cluster's own database, and the further journal `b`, with the same history in each."""

    def __init__(self, own: Params, other: Params) -> None:
        self.own, self.other = own, other
        self.further: Mapping[str, Params] = {"b": other}

    def fill(self) -> None:
        sql(self.own, "INSERT INTO sharding_cluster (cluster_id) VALUES ('c1')")
        sql(self.other, "INSERT INTO sharding_cluster (cluster_id, origin) VALUES ('c1', 'journal')")
        sql(
            self.own,
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (%s, %s, 'event_sourced', %s, 'hash:crc32-1', 'crc32-1', '', 'postgres')",
            NUMBER, TYPE, SHARDS,
        )  # fmt: skip
        for shard in range(SHARDS):
            name = journal_of(TYPE, shard, WEIGHTS)
            sql(
                self.own,
                "INSERT INTO sharding_shard (type_id, shard, epoch, home, step, journal) VALUES (%s, %s, %s, 'n-gone', 'home', %s)",
                NUMBER, shard, EPOCH, name,
            )  # fmt: skip
            if name:
                self.take(shard, EPOCH, "n-gone")
        for entity in ENTITIES:
            self.write(self.of(entity), entity, EPOCH)

    def of(self, entity: str) -> Params:
        return self.other if lies_in(entity) else self.own

    def take(self, shard: int, epoch: int, home: str, *, only_try: bool = False) -> list[int]:
        taking = "SELECT taken FROM sharding_take_v1(%s, %s, %s, 0, 0, 0, %s, %s, %s)"
        values = NUMBER, TYPE, SHARDS, [shard], [epoch], home
        with psycopg.connect(**self.other) as connection:
            ((taken,),) = connection.execute(taking, values).fetchall()
            if only_try:
                connection.rollback()
        return list(taken)

    def write(self, where: Params, entity: str, epoch: int, first: int = 1) -> None:
        place = NUMBER, entity, shard_of(entity, SHARDS), epoch
        sql(
            where,
            "INSERT INTO sharding_event (type_id, entity, shard, epoch, seq, name, version, payload, at)"
            " SELECT %s, %s, %s, %s, number, 'ItemAdded', 1, '{}', now() - interval '100 days'"
            " FROM generate_series(%s::int, %s::int) number",
            *place, first, first + EVENTS - 1,
        )  # fmt: skip
        sql(
            where,
            "INSERT INTO sharding_snapshot (type_id, entity, shard, epoch, seq, state) VALUES (%s, %s, %s, %s, %s, '{}')",
            *place, first + EVENTS - 1,
        )  # fmt: skip
        sql(
            where,
            "INSERT INTO sharding_remembered (type_id, entity, shard, epoch) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
            *place,
        )  # fmt: skip

    def message(self, where: Params, entity: str, name: str, epoch: int | None) -> None:
        sql(
            where,
            "INSERT INTO sharding_message (id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args,"
            " due) VALUES (%s, %s, %s, %s, %s, 1, 0, %s, %s, 'add', '', now())",
            name, NUMBER, shard_of(entity, SHARDS), entity, epoch, TYPE, entity,
        )  # fmt: skip

    def all(self) -> list[list[tuple[Any, ...]]]:
        """All that is stored of the type, in both, without the epochs."""
        return [
            sql(where, f"SELECT {columns} FROM {table} ORDER BY 1, 2")  # noqa: S608
            for where in (self.own, self.other)
            for table, columns in (
                ("sharding_event", "entity, seq, shard, name, payload::text, at"),
                ("sharding_snapshot", "entity, seq, shard, state::text, at"),
                ("sharding_remembered", "entity, shard"),
            )
        ]

    def fenced(self, shard: int) -> bool:
        """Whether a former home of a shard of `b` can write nothing there, and the next one can."""
        entity = next(each for each in THERE if shard_of(each, SHARDS) == shard)
        ((epoch, home),) = sql(self.own, "SELECT epoch, home FROM sharding_shard WHERE shard = %s", shard)
        with pytest.raises(psycopg.DatabaseError, match="not at the epoch of this write"):
            self.write(self.other, entity, EPOCH, first=1000)
        there = sql(self.other, "SELECT epoch, home FROM sharding_shard WHERE shard = %s", shard)
        may_go_on = self.take(shard, epoch + 1, "n-next", only_try=True) == [shard]
        return home is None and there == [(epoch, None)] and may_go_on


@pytest.fixture
def two(servers: Servers) -> Iterator[Two]:
    with scratch_database(servers.database_url) as own, scratch_database(servers.database_url) as other:
        make_tables(own)
        make_tables(other)
        made = Two(own, other)
        made.fill()
        yield made


def test_an_entity_is_erased_where_it_lies_with_what_waits_for_it_outside(two: Two) -> None:
    for entity in (HERE[0], THERE[0]):
        two.message(two.of(entity), entity, "own", EPOCH)
        if entity == THERE[0]:
            two.message(two.own, entity, "outside", None)
        rows = Erasure(events=EVENTS, snapshots=1, remembered=1, messages=2 if entity == THERE[0] else 1)
        assert count_entity(two.own, TYPE, entity, further=two.further) == rows
        assert erase_entity(two.own, TYPE, entity, "me", further=two.further, events_at_once=3) == rows
        assert count_entity(two.own, TYPE, entity, further=two.further) == Erasure()
    assert two.fenced(shard_of(THERE[0], SHARDS))
    noted = sql(two.own, "SELECT detail FROM sharding_decision WHERE action = 'entity_erased' ORDER BY id")
    assert f"{EVENTS} events, 1 snapshots, by me" in [detail for (detail,) in noted]
    left = sql(two.other, "SELECT count(DISTINCT entity) FROM sharding_event")
    assert left == [(len(THERE) - 1,)]


def test_a_journal_that_cannot_be_reached_or_is_not_named_leaves_all_as_it_was(two: Two) -> None:
    before = two.all()
    away = {"b": {**two.other, "port": "1"}}
    for further, error in ((away, JournalDown), ({}, UnknownJournals)):
        for work in (
            lambda: erase_entity(two.own, TYPE, THERE[0], "me", further=further),  # noqa: B023
            lambda: remove_journal(two.own, TYPE, "me", bool, further=further),  # noqa: B023
            lambda: remove_data(two.own, by="me", further=further),  # noqa: B023
        ):
            with pytest.raises(error, match="b"):
                work()
    assert two.all() == before
    assert sql(two.own, "SELECT DISTINCT epoch, home FROM sharding_shard") == [(EPOCH, "n-gone")]
    assert erase_entity(two.own, TYPE, HERE[0], "me", further=away).events == EVENTS, "b is not needed"


def test_a_type_is_removed_from_both(two: Two) -> None:
    two.message(two.other, THERE[0], "own", EPOCH)
    two.message(two.own, THERE[0], "outside", None)
    rows = Erasure(len(ENTITIES) * EVENTS, len(ENTITIES), len(ENTITIES), 2)
    assert count_journal(two.own, TYPE, further=two.further) == rows
    assert remove_journal(two.own, TYPE, "me", bool, rows_at_once=5, further=two.further) == rows
    assert two.all() == [[]] * 6
    assert two.fenced(shard_of(THERE[0], SHARDS))


def test_data_is_removed_in_both_and_a_type_with_a_history_keeps_its_shards(two: Two) -> None:
    two.message(two.other, THERE[0], "own", EPOCH)
    with pytest.raises(MessagesWait):
        remove_data(two.own, by="me", further=two.further)
    with pytest.raises(InFurtherJournals):
        remove_data(two.own, by="me", further=two.further, placing={})
    wanted = remove_data(two.own, by="me", further=two.further, dry_run=True)
    assert (wanted.remembered, wanted.messages) == (len(ENTITIES), 1)
    assert remove_data(two.own, by="me", further=two.further, messages=True) == wanted
    for where in (two.own, two.other):
        assert (
            sql(where, "SELECT 1 FROM sharding_remembered")
            == sql(where, "SELECT 1 FROM sharding_message")
            == []
        )
    assert sql(two.own, "SELECT changeable FROM sharding_type") == [(False,)]
    assert two.fenced(shard_of(THERE[0], SHARDS))
    remove_journal(two.own, TYPE, "me", bool, further=two.further)
    remove_data(two.own, by="me", further=two.further)
    assert sql(two.own, "SELECT changeable FROM sharding_type") == [(True,)], "it has no history"


def test_entities_of_both_are_archived_and_put_back(two: Two, tmp_path: Path) -> None:
    before = two.all()
    two.message(two.own, THERE[0], "outside", None)
    found = count_entities(two.own, TYPE, None, 60.0, two.further)
    assert (found.entities, dict(found.left)) == (len(ENTITIES) - 1, {"messages": 1})
    moved = archive_entities(two.own, TYPE, None, 60.0, tmp_path, "me", bool, two.further)
    assert [each.entities for each in moved.files] == [len(ENTITIES) - 1]
    assert {row[0] for rows in two.all() for row in rows} == {THERE[0]}
    assert two.fenced(next(shard_of(each, SHARDS) for each in THERE[1:]))
    sql(two.own, "DELETE FROM sharding_message")
    with Journals(two.own, two.further, weights=WEIGHTS) as journals:
        known = journals.type(TYPE)
        journals.begin(known.number, TYPE, "me", "journal_importing")
        stored = 0
        for group in _groups(tmp_path / moved.files[0].name, None):
            places = {each.entity: shard_of(each.entity, SHARDS) for each in group}
            number, _, others = journals.put(known, group, places)
            stored += number
            assert others == []
    assert stored == (len(ENTITIES) - 1) * (EVENTS + 2)
    assert two.all() == before
    assert two.fenced(shard_of(THERE[0], SHARDS))


def test_old_events_of_both_move_out_in_the_order_of_one_journal(two: Two) -> None:
    age, written = Age(60.0, 1), list[StoredRow]()
    with Journals(two.own, two.further) as journals:
        known = journals.type(TYPE)
        old = [entity for entity, _ in journals.old_entities(known.number, None, age)]
        assert old == sorted(ENTITIES)
        for entity in old:
            while journals.move_page(known.number, entity, age, written.extend):
                pass
        assert [row.entity for row in journals.events(known.number)] == sorted(ENTITIES)
    assert len(written) == len(ENTITIES) * (EVENTS - 1)
    assert sql(two.other, "SELECT DISTINCT seq FROM sharding_event") == [(EVENTS,)]


def test_shards_that_have_no_row_are_spread_by_an_import(two: Two) -> None:
    for where in (two.own, two.other):
        sql(where, "DELETE FROM sharding_shard")
    with Journals(two.own, two.further, weights=WEIGHTS) as journals:
        journals.begin(journals.type(TYPE).number, TYPE, "me", "journal_importing")
    found = dict(sql(two.own, "SELECT shard, journal FROM sharding_shard"))
    assert found == {shard: journal_of(TYPE, shard, WEIGHTS) for shard in range(SHARDS)}
    there = {shard for (shard,) in sql(two.other, "SELECT shard FROM sharding_shard WHERE home IS NULL")}
    assert there == {shard for shard, name in found.items() if name}


@pytest.fixture
def unread(two: Two) -> Two:
    """A failover has lost the rows of shards in the further journal, and no coordinator has asked
    it yet.
    """
    sql(two.own, "DELETE FROM sharding_shard WHERE shard > 0")
    sql(two.own, "INSERT INTO sharding_journal (name, place) VALUES ('b', 'there') ON CONFLICT DO NOTHING")
    sql(two.own, "INSERT INTO sharding_coordinator (term) VALUES (1) ON CONFLICT DO NOTHING")
    sql(two.own, "UPDATE sharding_coordinator SET lineage = 'former/1'")
    return two


def test_an_import_spreads_no_shards_before_a_coordinator_has_read_where_they_lie(unread: Two) -> None:
    with (
        Journals(unread.own, unread.further, weights=WEIGHTS) as journals,
        pytest.raises(JournalsUnread, match=r"all journals up \('b'\)"),
    ):
        journals.begin(journals.type(TYPE).number, TYPE, "me", "journal_importing")
    assert sql(unread.own, "SELECT shard FROM sharding_shard") == [(0,)]


def test_no_command_takes_what_is_stored_for_a_copy_before_a_coordinator_has_read_where_it_lies(
    unread: Two,
) -> None:
    stored = sql(unread.other, "SELECT entity, seq FROM sharding_event ORDER BY entity, seq")
    assert stored
    with pytest.raises(JournalsUnread), Journals(unread.own, unread.further, read_only=True) as journals:
        journals.type(TYPE)
    for entity in ENTITIES:
        with pytest.raises(JournalsUnread):
            count_entity(unread.own, TYPE, entity, further=unread.further)
        with pytest.raises(JournalsUnread):
            erase_entity(unread.own, TYPE, entity, "me", further=unread.further)
    with pytest.raises(JournalsUnread):
        remove_journal(unread.own, TYPE, "me", bool, further=unread.further)
    with pytest.raises(JournalsUnread):
        remove_data(unread.own, [TYPE], further=unread.further)
    assert sql(unread.other, "SELECT entity, seq FROM sharding_event ORDER BY entity, seq") == stored
    sql(unread.own, "UPDATE sharding_coordinator SET lineage = NULL")
    assert count_entity(unread.own, TYPE, ENTITIES[0], further=unread.further).whole


def test_an_import_spreads_no_shards_of_a_type_whose_resize_begins_meanwhile(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are to become one lie in one journal."""
    sql(two.own, "DELETE FROM sharding_shard WHERE shard > 0")
    of_class = Journals.type

    def resizes(self: Journals, name: str) -> Any:
        found = of_class(self, name)
        sql(two.own, "SELECT * FROM sharding_resize_v1(%s, %s, 1, 'me')", TYPE, SHARDS)
        return found

    with Journals(two.own, two.further, weights=WEIGHTS) as journals:
        number = journals.type(TYPE).number
        monkeypatch.setattr(Journals, "type", resizes)
        with pytest.raises(Resizing):
            journals.begin(number, TYPE, "me", "journal_importing")
    assert sql(two.own, "SELECT shard FROM sharding_shard") == [(0,)]


@pytest.mark.parametrize("journal", ["", "b"])
def test_an_entity_whose_shard_moves_behind_the_look_is_not_archived(
    two: Two, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    """Its rows are a copy by then, and it lives on elsewhere."""
    entity = (THERE if journal else HERE)[0]
    shard, before = shard_of(entity, SHARDS), two.all()
    of_class = Archive._rows

    def moves(self: Archive, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        if query == "archive_fence":
            sql(
                two.own,
                "UPDATE sharding_shard SET journal = %s, home = NULL, step = 'stopped', epoch = epoch + 1 WHERE shard = %s",
                "" if journal else "b", shard,
            )  # fmt: skip
            params = {**params, "homes": [None for _ in params["homes"]]}
        return of_class(self, query, params)

    with Journals(two.own, two.further) as journals:
        known = journals.type(TYPE)
        (stored,) = journals.stored(known.number, {entity: shard})
        monkeypatch.setattr(Archive, "_rows", moves)
        with pytest.raises(Moved):
            journals.remove(known.number, entity, shard, stored.mark)
    assert two.all() == before


def test_a_way_to_another_database_than_nodes_use_is_refused(two: Two) -> None:
    """A former place of the journal has rows, and answers. One that is down does no harm."""
    (place,) = sql(
        two.other,
        "SELECT system_identifier || '/' || oid FROM pg_control_system(), pg_database WHERE datname = current_database()",
    )
    refuse_elsewhere(two.own, two.further)
    sql(two.own, "INSERT INTO sharding_journal (name, place) VALUES ('b', %s)", *place)
    refuse_elsewhere(two.own, two.further)
    refuse_elsewhere(two.own, {"b": {**two.other, "port": 1}})
    with pytest.raises(JournalsElsewhere, match="'b' leads to another database"):
        refuse_elsewhere(two.own, {"b": two.own})
