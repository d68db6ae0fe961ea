"""A person is erased on the dashboard: who may, what is asked, what is kept of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client, override_settings
from psycopg import OperationalError

from sharding_app import Personal
from sharding_app.adapters.django import database
from sharding_app.admin.operator_plans import subjects
from sharding_app.embedded import Servers
from sharding_app.models import Decision, Event, Subject
from sharding_app.operations.erasing import NotErased
from tests.integration.runtime.persons import Buyer, Sale
from tests.support.cluster_rows import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sharding_real]

BASE = "/admin/sharding/cluster/"
ACTION = f"{BASE}steer/erase-subject/"
KEYS = ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]
PLAN = {"subject": "ann", "plan": "1"}
NAME = "Annabel Quixote"


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": KEYS, "KEYS": KEYS}):
        yield


def text(page: Any) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.content.decode()))


def store() -> None:
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    Sale.ref("lamp").sync.bid("ann", NAME, 7)


def test_it_is_offered_and_done_for_those_who_may(root: Client, person: Person) -> None:
    store()
    others = person("view_cluster", "view_payload", "stop_entity", "discard_message", "steer_projection")
    assert "erase-subject" not in others.get(f"{BASE}database/").content.decode()
    assert others.post(ACTION, PLAN).status_code == 403
    assert others.post(ACTION, {"subject": "ann", "confirm": "ann"}).status_code == 403
    may = person("view_cluster", "erase_subject")
    assert (
        'action="/admin/sharding/cluster/steer/erase-subject/"'
        in may.get(f"{BASE}database/").content.decode()
    )
    assert may.post(ACTION, PLAN).status_code == 200
    assert not LogEntry.objects.exists()
    assert Sale.ref("lamp").sync.shown() == {"ann": NAME}
    assert Event.objects.filter(entity="ann").exists()


def test_the_plan_is_carried_out_after_the_id_was_typed(root: Client) -> None:
    store()
    page = root.post(ACTION, PLAN)
    assert "entities.Buyer ann is deleted: events: 1" in text(page)
    assert "Entities of entities.Sale in memory may show the data" in text(page)
    fields = dict(page.context["plan"].fields)
    assert fields == {"subject": "ann"}
    for typed in ({}, {"confirm": ""}, {"confirm": "Ann"}):
        refused = root.post(ACTION, {**fields, **typed})
        assert refused.status_code == 409
        assert "what was typed is not what was asked for" in text(refused)
    assert not LogEntry.objects.exists()
    assert not Subject.objects.filter(erased_at__isnull=False).exists()

    done = root.post(ACTION, {**fields, "confirm": "ann"})

    assert "done: the key; entities: 1, events: 1" in text(root.get(done["Location"]))
    assert not Event.objects.filter(entity="ann").exists()
    assert Subject.objects.filter(wrapped=None, finished_at__isnull=False).count() == 1
    (line,) = Decision.objects.filter(action="subject_erased")
    assert line.detail.endswith("by root")
    (kept,) = LogEntry.objects.all()
    assert kept.change_message == "Erase a person: done: the key; entities: 1, events: 1"
    assert "ann" not in f"{line.detail} {kept.change_message} {kept.object_repr}".split()


def test_the_id_of_a_person_stands_in_no_address(root: Client) -> None:
    form = re.search(
        r"<form[^>]*erase-subject.*?</form>", root.get(f"{BASE}database/").content.decode(), re.DOTALL
    )
    assert form is not None
    assert 'method="post"' in form[0]
    assert "csrfmiddlewaretoken" in form[0]
    assert 'name="plan"' in form[0]
    page = root.get(f"{ACTION}?subject=ann")
    assert page.status_code == 409
    assert "ann" not in text(page).split()


def test_one_that_is_interrupted_is_said_and_goes_on(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    store()
    fields = {"subject": "ann", "confirm": "ann"}

    def busy(*_: object) -> None:
        raise NotErased("The entity is busy.")

    with monkeypatch.context() as patch:
        patch.setattr("sharding_app.operations.subjects.erase", busy)
        page = text(root.get(root.post(ACTION, fields)["Location"]))
    assert "did not come to its end: The entity is busy. Erase the person again, to go on." in page
    assert Subject.objects.filter(wrapped=None, finished_at=None).count() == 1
    assert "done" in text(root.get(root.post(ACTION, fields)["Location"]))
    assert Subject.objects.filter(wrapped=None, finished_at__isnull=False).count() == 1


@pytest.mark.parametrize("subject", ["", "%00", "x" * 600])
def test_what_cannot_be_an_id_is_refused(root: Client, subject: str) -> None:
    given = {"subject": unquote(subject)}
    assert root.post(ACTION, {**given, "plan": "1"}).status_code == 409
    assert root.post(ACTION, given).status_code == 409


def test_a_web_process_without_the_keys_says_so(root: Client) -> None:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": []}):
        page = root.post(ACTION, PLAN)
    assert page.status_code == 409
    assert "PERSONAL_KEYS is empty in this web process" in text(page)


def test_a_count_that_takes_too_long_is_given_up(
    root: Client, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    store()
    monkeypatch.setattr(database, "READ_SECONDS", 0.2)
    url = servers.database_url.rpartition("/")[0] + f"/{connection.settings_dict['NAME']}"
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE sharding_snapshot IN ACCESS EXCLUSIVE MODE")  # as a huge one is read
        page = root.post(ACTION, PLAN)
        other.rollback()
    assert page.status_code == 503
    assert "did not finish a read for this page in 0.2 s" in text(page)


def test_a_server_that_refuses_is_told(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("the server is away")

    monkeypatch.setattr(subjects, "counted_rows", away)
    page = root.post(ACTION, PLAN)
    assert page.status_code == 409
    assert "the server is away" in text(page)
