"""Pages, searches and samples of several journals leave out copies that moves have made."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client

from sharding_app.dashboard import keyset
from sharding_app.dashboard.keyset import key_text
from sharding_app.operations.diagnosis.gather import _sample
from sharding_app.operations.each_journal import journal_of_entity, read_copies
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
