"""Pages, searches, samples and counts of several journals leave out copies that moves have made."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client

from sharding_app import wiring
from sharding_app.adapters.postgres.deletion import count_journal, has_copies, remove_data
from sharding_app.dashboard import keyset, messages
from sharding_app.dashboard.keyset import key_text
from sharding_app.operations.database_health import (
    TypeWrites,
    read_longest_histories,
    read_recent_writes,
)
from sharding_app.operations.diagnosis.gather import _sample
from sharding_app.operations.each_journal import journal_of_entity, read_copies
from sharding_app.operations.messages import discard, run_now
from sharding_app.operations.snapshot import read_snapshot
from tests.integration.adapters.django.two_journals import HERE, SECOND, THERE, Journals
from tests.integration.adapters.django.two_journals import journals as two_journals
from tests.integration.adapters.django.two_journals import second as second_database
from tests.integration.admin.test_model_admins import address

pytestmark = pytest.mark.django_db(transaction=True)
journals = two_journals
second = second_database
NAMES = ("", SECOND)


@pytest.fixture
def copied(journals: Journals) -> Journals:
    """Each entity has an event in both journals, though it lies in one of them."""
    for writer in (journals.here, journals.there):
        for entity in (*HERE, *THERE):
            writer.append(entity, 1, first=1)
        writer.commit()
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "INSERT INTO sharding_move (type_id, shard, source, target, step)"
            " VALUES (%s, 0, '', %s, 'copying'), (%s, 1, '', %s, 'moved')",
            [journals.type_id, SECOND, journals.type_id, SECOND],
        )
    return journals


def extractor(journals: Journals) -> None:
    """Let an extractor of the type's own say where entities lie: rows tell the shard."""
    with connections["default"].cursor() as cursor:
        cursor.execute("UPDATE sharding_type SET extractor = 'by_country'")
        cursor.execute("UPDATE sharding_event SET shard = 1, epoch = 1 WHERE entity = ANY (%s)", [[*THERE]])
    journals.value("UPDATE sharding_event SET shard = 1, epoch = 1 WHERE entity = ANY (%s)", [*THERE])


@pytest.mark.parametrize("prepare", [lambda _: None, extractor])
def test_an_entity_is_found_where_it_lies(copied: Journals, prepare: Callable[[Journals], None]) -> None:
    prepare(copied)
    for name, ids in ((SECOND, THERE), ("", HERE)):
        assert journal_of_entity(NAMES, copied.type_id, ids[0], None) == name
        copies = read_copies()
        assert [
            each for each in NAMES if copies.lies_in(each, copied.type_id, ids[0], NAMES.index(name))
        ] == [name]


def test_samples_are_of_entities_that_lie_there(copied: Journals) -> None:
    row = next(each for each in read_snapshot().types if each.number == copied.type_id)
    for alias, ids in (("default", HERE), (SECOND, THERE)):
        assert _sample(row, None, read_copies(), alias).looked_at == len(ids)


@pytest.mark.parametrize("looks", [1, 5])
def test_a_list_shows_each_event_once(
    copied: Journals, admin_client: Client, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    monkeypatch.setattr(keyset, "LOOKS", looks)
    monkeypatch.setattr(keyset, "ROWS_OF_LOOK", 3)
    monkeypatch.setattr("sharding_app.admin.model_admins.EventAdmin.list_per_page", 2)
    shown: list[tuple[str, str]] = []
    page: Any = admin_client.get(address("event"))
    for _ in range(100):
        found = page.context["cl"]
        shown += [(each.entity, each._state.db) for each in found.result_list]
        assert len(found.result_list) <= 2
        if found.next_page is None:
            break
        page = admin_client.get(address("event") + found.next_page)
    assert shown == sorted([*((each, "default") for each in HERE), *((each, SECOND) for each in THERE)])


def test_a_row_is_shown_from_where_it_lies(copied: Journals, admin_client: Client) -> None:
    for alias, ids in (("default", HERE), (SECOND, THERE)):
        key = key_text((copied.type_id, ids[0], 1))
        page: Any = admin_client.get(address("event", "change", key))
        assert page.context["original"]._state.db == alias


def test_the_event_of_a_command_is_found_once(copied: Journals) -> None:
    for entity in (HERE[0], THERE[0]):
        with connections["default"].cursor() as cursor:
            cursor.execute("UPDATE sharding_event SET command_id = 'one' WHERE entity = %s", [entity])
        copied.value("UPDATE sharding_event SET command_id = 'one' WHERE entity = %s", entity)
    out = io.StringIO()
    call_command("sharding_entity", "--command-id", "one", "--json", stdout=out)
    assert sorted(each["entity"] for each in json.loads(out.getvalue())["events"]) == sorted(
        [HERE[0], THERE[0]]
    )


# -- Counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepare", [lambda _: None, extractor])
def test_what_was_written_lately_is_counted_once(
    copied: Journals, prepare: Callable[[Journals], None]
) -> None:
    prepare(copied)
    for alias, ids in (("default", HERE), (SECOND, THERE)):
        counted = read_recent_writes(3600, alias, read_copies())
        assert counted == [TypeWrites("projected.Account", len(ids), len(ids))]


def test_a_shard_in_an_old_row_may_be_a_former_one(copied: Journals) -> None:
    """The number of shards has changed since: the hash tells where the entity lies."""
    copied.value("UPDATE sharding_event SET shard = 0, epoch = 1")
    assert [each.events for each in read_recent_writes(3600, SECOND, read_copies())] == [len(THERE)]


def test_long_histories_are_of_entities_that_lie_there(copied: Journals) -> None:
    for alias, ids in (("default", HERE), (SECOND, THERE)):
        found = [each.entity for each in read_longest_histories(alias, 1, read_copies())]
        assert sorted(found) == sorted(ids)


def test_the_page_and_the_command_say_which_numbers_count_copies(
    copied: Journals, admin_client: Client
) -> None:
    text = admin_client.get(address("cluster") + "database/").content.decode()
    assert "Copies that moves have made are among them." in text
    assert "Copies that moves between journals have made are among the rows." in text
    with connections["default"].cursor() as cursor:
        cursor.execute("DELETE FROM sharding_move")
    assert not read_snapshot().has_copies
    assert copied.type_id


Row = tuple[str, str, int, int | None, bool, str]
"""Id, entity, shard, epoch, whether it is parked, its error."""


def put(alias: str, *rows: Row) -> None:
    with connections[alias].cursor() as cursor:
        for row in rows:
            cursor.execute(
                "INSERT INTO sharding_message (id, entity, shard, epoch, parked, error, type_id, seq, position, target_type,"
                " target, command, args, due, at) SELECT %s, %s, %s, %s, %s, %s, id, 1, 0, 'a.A', 'e', 'c', '\\x90', now() -"
                " interval '1 hour', now() - interval '2 hours' FROM sharding_type WHERE name = 'projected.Account'",
                row,
            )


@pytest.fixture
def with_messages(copied: Journals) -> Journals:
    """Each message stands in both journals, as where a move was stopped before its switch. One from
    outside to an entity of the further journal stands where those from outside do.
    """
    rows: list[Row] = [
        (f"{entity}-{kind}", entity, shard, 1, kind == "parked", "" if kind == "waits" else "failed")
        for entity, shard in ((HERE[0], 0), (THERE[0], 1))
        for kind in ("waits", "fails", "parked")
    ]
    put("default", *rows, ("outside", THERE[0], 1, None, False, ""))
    put(SECOND, *rows)
    with connections["default"].cursor() as cursor:
        cursor.execute("UPDATE sharding_type SET uses_messages = true")
        cursor.execute(
            "UPDATE sharding_move SET step = 'copying', source = %s, target = '' WHERE shard = 1", [SECOND]
        )
    copied.value("UPDATE sharding_type SET uses_messages = true")
    return copied


def test_messages_are_counted_once(with_messages: Journals) -> None:
    (found,) = read_snapshot().message_counts
    assert (found.overdue, found.failing, found.parked) == (5, 2, 2)
    assert with_messages.type_id


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        ("pending", ("waits", "fails")),
        ("overdue", ("waits", "fails")),
        ("failing", ("fails",)),
        ("parked", ("parked",)),
    ],
)
def test_messages_are_listed_once(with_messages: Journals, state: str, kinds: tuple[str, ...]) -> None:
    rows = [each for each in read_snapshot().types if each.number == with_messages.type_id]
    found = messages.read_page(rows, state, None, journals=NAMES).messages
    outside = [("outside", "default")] if "waits" in kinds else []
    assert sorted((each.id, each._state.db) for each in found) == sorted(
        [
            *((f"{HERE[0]}-{kind}", "default") for kind in kinds),
            *((f"{THERE[0]}-{kind}", SECOND) for kind in kinds),
            *outside,
        ]
    )


def test_a_message_is_shown_from_where_it_lies(with_messages: Journals) -> None:
    (row,) = [each for each in read_snapshot().types if each.number == with_messages.type_id]
    for entity, alias, outside in ((HERE[0], "default", 0), (THERE[0], SECOND, 1)):
        found, _ = messages.read_one(f"{entity}-waits", NAMES)
        assert found is not None
        assert found._state.db == alias
        (chosen,) = messages.read_chosen([f"{entity}-waits"], NAMES).messages
        assert chosen._state.db == alias
        assert len(messages.read_entity(row, entity, NAMES).messages) == 3 + outside


def test_a_message_is_changed_once_and_its_copy_with_it(
    with_messages: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharding_app.operations.messages.tell", bool)
    for entity in (HERE[0], THERE[0]):
        assert [each.id for each in run_now([f"{entity}-fails"], parked=False, journals=NAMES)] == [
            f"{entity}-fails"
        ]
        assert [each.id for each in discard([f"{entity}-waits"], NAMES)] == [f"{entity}-waits"]
    assert with_messages.value("SELECT count(*) FROM sharding_message WHERE error <> ''") == 2
    assert with_messages.value("SELECT count(*) FROM sharding_message") == 4


def test_a_removal_is_told_without_copies(with_messages: Journals) -> None:
    for alias in ("default", SECOND):
        with connections[alias].cursor() as cursor:
            cursor.execute(
                "INSERT INTO sharding_remembered (type_id, shard, entity, epoch) VALUES (%s, 0, %s, 1), (%s, 1, %s, 1)",
                [with_messages.type_id, HERE[0], with_messages.type_id, THERE[0]],
            )
    further = {SECOND: with_messages.params}
    where = wiring.conninfo("default")
    found = remove_data(where, ["projected.Account"], dry_run=True, further=further)
    assert (found.remembered, found.messages) == (2, 7)
    row = next(each for each in read_snapshot().types if each.number == with_messages.type_id)
    assert [_sample(row, None, read_copies(), alias).remembered for alias in ("default", SECOND)] == [1, 1]
    assert count_journal(where, "projected.Account", further=further).events == 2 * len((*HERE, *THERE))
    assert has_copies(where, "projected.Account")
