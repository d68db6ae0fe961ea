"""Personal data on PostgreSQL: no table shows it, and after an erasure nothing reads it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import override_settings

from sharding_app import (
    NotSerializable,
    Personal,
    SubjectErased,
    Unavailable,
    aerase_subject,
    erase_subject,
    wiring,
)
from sharding_app.models import Decision, Event, Message, Snapshot, Subject
from sharding_app.operations import subjects
from sharding_app.operations.diagnosis.read_database import read_database
from sharding_app.operations.erasing import NotErased
from sharding_app.settings.load import get_settings
from tests.integration.adapters.django.projected import part, run
from tests.integration.runtime.persons import SEEN, Buyer, Sale, SaleNames, Wallet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sharding_real]

KEYS = ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]
NAME, OTHER = "Annabel Quixote", "Robert of the Lake"


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": KEYS, "KEYS": KEYS}):
        yield


def until(met: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(1200):
        if met():
            return
        pause.wait(0.05)
    raise AssertionError("it does not come")


def dump() -> str:
    """All rows of all our tables, as a dump has them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relname LIKE 'sharding\\_%%' AND relkind = 'r'", []
        )
        tables = [name for (name,) in cursor.fetchall()]
        assert "sharding_event" in tables
        rows: list[str] = []
        for table in tables:
            cursor.execute(f"SELECT t::text FROM {table} t")  # noqa: S608 (of the catalogue)
            rows += [text for (text,) in cursor.fetchall()]
    return "\n".join(rows)


def traces(name: str, text: str) -> list[str]:
    """The forms in which a name stands in a dump: itself, in hexadecimal digits, in base64."""
    data = name.encode()
    forms = [name, data.hex(), *(base64.b64encode(bytes(shift) + data)[4:-4].decode() for shift in range(3))]
    return [each for each in forms if each in text]


def write_all() -> None:
    """Store the name in an event, a snapshot, a state, a reply, a message and a timer."""
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    buyer = Buyer.ref("ann", command_id="retried")
    for _ in range(2):
        assert buyer.sync.register(Personal(NAME, "ann")).value == NAME
    Wallet.ref("w").sync.open(Personal(NAME, "ann"))
    sale = Sale.ref("lamp").sync
    sale.bid("bob", OTHER, 5)
    sale.bid("ann", NAME, 7)
    sale.invite("ann", NAME)
    Sale.ref("lamp").greet.later(timedelta(hours=1), Personal(NAME, "ann"))
    until(lambda: Snapshot.objects.count() == 2)


def forget() -> None:
    """Have all objects leave the memory."""
    Sale.ref("lamp").sync.leave_memory()
    Wallet.ref("w").sync.leave_memory()


def test_a_dump_has_no_personal_data_and_an_erasure_reaches_all_of_it() -> None:
    SEEN.clear()
    projection = part(SaleNames)
    projection.vault = wiring.personal_vault(get_settings())
    projection.facts()
    write_all()
    assert traces("lamp", dump()), "the dump shows what is not personal"
    assert not traces(NAME, dump())
    assert not traces(OTHER, dump())
    assert Event.objects.filter(entity__in=("ann", "w", "lamp")).count() == 6
    assert Message.objects.filter(entity="lamp").count() == 2
    run(projection)
    assert sorted(SEEN) == [NAME, OTHER]
    forget()
    assert Sale.ref("lamp").sync.shown() == {"bob": OTHER, "ann": NAME}
    assert Wallet.ref("w").sync.shown() == NAME
    key = bytes(Subject.objects.exclude(mark=b"").order_by("at").values_list("wrapped", flat=True)[0] or b"")

    found = erase_subject("ann")

    assert found.entities["entities.Buyer"].events == 2
    assert "SaleNames" in " ".join(found.projections)
    assert {"entities.Sale", "entities.Wallet"} <= set(found.in_memory)
    assert Event.objects.filter(entity="ann").count() == 0
    assert key
    assert not traces(key.hex(), dump())
    assert (
        Subject.objects.filter(wrapped=None, erased_at__isnull=False, finished_at__isnull=False).count() == 1
    )
    (line,) = Decision.objects.filter(action="subject_erased")
    assert "ann" not in f"{line.subject} {line.detail}"
    forget()
    assert Sale.ref("lamp").sync.shown() == {"bob": OTHER, "ann": "(erased)"}
    assert Wallet.ref("w").sync.shown() == "(erased)"


def test_an_erased_person_does_not_come_back_by_a_late_command() -> None:
    Sale.ref("lamp").sync.bid("ann", NAME, 7)
    assert erase_subject("ann").entities["entities.Buyer"].events == 0
    with pytest.raises(SubjectErased, match="erased") as caught:
        Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    assert caught.value.stored == "nothing"
    with pytest.raises(SubjectErased):
        Sale.ref("lamp").greet.durably(Personal(NAME, "ann"))
    # The object has her name from before. Its command fails, and it is read again.
    with pytest.raises(SubjectErased):
        Sale.ref("lamp").sync.close()
    Sale.ref("lamp").sync.close()
    assert Sale.ref("lamp").sync.greetings() == ["(erased)"]
    assert not traces(NAME, dump())


def test_an_erasure_that_was_interrupted_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))

    def killed(*_: object) -> None:
        raise NotErased("killed")

    with monkeypatch.context() as patch:
        patch.setattr(subjects, "erase", killed)
        with pytest.raises(Unavailable, match="killed"):
            erase_subject("ann")
    assert Subject.objects.filter(wrapped=None, finished_at=None).count() == 1
    assert not Decision.objects.filter(action="subject_erased").exists()
    assert Event.objects.filter(entity="ann").count() == 1
    assert erase_subject("ann").entities["entities.Buyer"].events == 1
    assert Subject.objects.filter(wrapped=None, finished_at__isnull=False).count() == 1


@pytest.mark.asyncio
async def test_erasing_from_a_coroutine() -> None:
    await Buyer.ref("ann").register(Personal(NAME, "ann"))
    assert (await aerase_subject("ann")).entities["entities.Buyer"].events == 1
    assert not await Buyer.ref("ann").exists()


def test_without_the_secret_nothing_is_stored_and_nothing_reads_as_erased() -> None:
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sharding_subject SET wrapped = overlay(wrapped placing '\\x00000000' from 2)")
    assert read_database("default", "default").locked_keys == 2
    with pytest.raises(NotSerializable, match="PERSONAL_KEYS"):
        Buyer.ref("bob").sync.register(Personal(OTHER, "bob"))
