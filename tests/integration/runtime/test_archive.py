"""Archiving entities whose home lives: it stops them first. Personal data stays sealed in the
file.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import override_settings

from sharding_app import Personal, erase_subject
from sharding_app.adapters.postgres.transfer import Transfer
from sharding_app.models import Decision, Event, Snapshot
from tests.integration.runtime.persons import Buyer, Sale, Wallet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sharding_real]

KEYS = ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]
NAME = "Annabel Quixote"


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": KEYS, "KEYS": KEYS}):
        yield


def run(command: str, *arguments: object) -> Any:
    out = StringIO()
    call_command(command, *map(str, arguments), "--json", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def moved(entity_type: str, folder: Path) -> Any:
    return run("sharding_archive", entity_type, "--entities-older-than", "90", "--to", folder, "--yes")


def grow_old(*entities: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE sharding_event SET at = at - interval '400 days' WHERE entity = ANY (%s)",
            [list(entities)],
        )


def test_a_living_home_stops_them_and_removes_them(tmp_path: Path) -> None:
    for entity in ("one", "two", "three"):
        Sale.ref(entity).sync.bid("ann", NAME, 5)
    Sale.ref("two").sync.invite("ann", NAME)
    before = Event.objects.filter(entity="one").values("seq", "payload", "command_id", "at").get()
    grow_old("one", "two")
    done = moved("entities.Sale", tmp_path)
    assert [(each["entities"], each["events"]) for each in done["files"]] == [(1, 1)]
    assert done["left"] == {"messages": 1}
    assert set(Event.objects.values_list("entity", flat=True)) == {"two", "three"}
    assert Sale.ref("one").sync.shown() == {}, "its object has gone with it"
    assert Sale.ref("two").sync.shown() == {"ann": NAME}
    with pytest.raises(CommandError, match="is hosted by"):
        run("sharding_import", tmp_path / "entities.Sale-000001.jsonl.gz")
    assert before["seq"] == 1
    actions = (
        Decision.objects.filter(action__startswith="entit").order_by("id").values_list("action", flat=True)
    )
    assert list(actions) == ["entities_archiving", "entities_archived"], "and no erasure"


def test_a_durable_state_too(tmp_path: Path) -> None:
    Wallet.ref("w").sync.open(Personal(NAME, "ann"))
    grow_old("w")
    assert moved("entities.Wallet", tmp_path)["files"][0]["entities"] == 1
    assert Event.objects.count() == 0
    Wallet.ref("w").sync.open(Personal("Robert", "bob"))
    assert Wallet.ref("w").sync.shown() == "Robert"


def test_personal_data_stays_sealed_and_an_erasure_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for amount in (5, 6):
        Sale.ref("lamp").sync.bid("ann", NAME, amount)
    Sale.ref("lamp").sync.bid("bob", "Robert", 7)
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    assert Snapshot.objects.count() <= 2
    grow_old("lamp")
    assert moved("entities.Sale", tmp_path)["files"][0]["events"] == 3
    path = tmp_path / "entities.Sale-000001.jsonl.gz"
    text = gzip.decompress(path.read_bytes())
    assert b"lamp" in text
    assert NAME.encode() not in text
    erase_subject("ann")
    # The node of this test cannot leave, and nothing calls the type meanwhile.
    monkeypatch.setattr(Transfer, "_refuse_hosts", lambda *_: None)
    run("sharding_import", path)
    assert Sale.ref("lamp").sync.shown() == {"ann": "(erased)", "bob": "Robert"}
