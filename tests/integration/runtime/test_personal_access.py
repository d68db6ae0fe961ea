"""`sharding_export_subject`: all about one person in plain, and nothing of another."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from datetime import timedelta
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
from sharding_app.adapters.django.database import run_query
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.transfer import StoredRow
from sharding_app.models import Decision, EntityType, Event, Snapshot
from sharding_app.operations import access
from sharding_app.settings.load import get_settings
from sharding_app.wiring import conninfo
from tests.integration.runtime.persons import Buyer, Sale, Wallet
from tests.support.live import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sharding_real]

KEYS = ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]
NAME, OTHER = "Annabel Quixote", "Robert of the Lake"


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": KEYS, "KEYS": KEYS}):
        yield


def export(subject: str, path: Path) -> list[dict[str, Any]]:
    call_command(
        "sharding_export_subject", subject, "--to", str(path), "--yes", stdout=StringIO(), stderr=StringIO()
    )
    return [json.loads(line) for line in path.read_text().splitlines()]


def store() -> None:
    Buyer.ref("ann", command_id="once").sync.register(Personal(NAME, "ann"))
    Buyer.ref("bob").sync.register(Personal(OTHER, "bob"))
    Wallet.ref("w").sync.open(Personal(NAME, "ann"))
    Wallet.ref("v").sync.open(Personal(OTHER, "bob"))
    Sale.ref("lamp").sync.bid("bob", OTHER, 5)
    Sale.ref("lamp").sync.bid("ann", NAME, 7)
    Sale.ref("chair").sync.bid("bob", OTHER, 5)
    Sale.ref("lamp").greet.later(timedelta(hours=1), Personal(NAME, "ann"))
    Sale.ref("chair").greet.later(timedelta(hours=1), Personal(OTHER, "bob"))
    until(lambda: Snapshot.objects.count() == 1, 10, "the snapshot of the lamp")


def test_it_has_all_of_one_person_in_plain_and_marks_for_others(tmp_path: Path) -> None:
    store()
    path = tmp_path / "ann.jsonl"
    first, *rows, end = export("ann", path)
    assert (first["row"], first["subject"]) == ("person", "ann")
    named = {(row["row"], row["type"], row["entity"]): row for row in rows}
    assert set(named) == {
        ("event", "entities.Buyer", "ann"),
        ("event", "entities.Wallet", "w"),
        ("event", "entities.Sale", "lamp"),
        ("snapshot", "entities.Sale", "lamp"),
        ("message", "entities.Sale", "lamp"),
    }
    buyer = named["event", "entities.Buyer", "ann"]
    assert buyer["payload"] == {"name": NAME}
    assert NAME in json.dumps(buyer["reply"])
    assert named["event", "entities.Sale", "lamp"]["payload"] == {"bidder": "ann", "name": NAME, "amount": 7}
    assert named["snapshot", "entities.Sale", "lamp"]["state"]["names"] == {
        "bob": "(another person)",
        "ann": NAME,
    }
    assert NAME in json.dumps(named["message", "entities.Sale", "lamp"]["args"])
    text = path.read_text()
    assert OTHER not in text
    assert "sealed" not in text
    lines = path.read_bytes().splitlines(keepends=True)
    assert end == {"row": "end", "rows": 5, "sha256": hashlib.sha256(b"".join(lines[:-1])).hexdigest()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(CommandError, match="line 1"):
        call_command("sharding_import", str(path), stdout=StringIO(), stderr=StringIO())


def test_the_timeline_says_who_asked_before_the_first_value_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store()
    noted: list[int] = []
    real = access._Reader

    def reader(*args: Any) -> Any:
        noted.append(Decision.objects.filter(action="subject_exported").count())
        return real(*args)

    monkeypatch.setattr(access, "_Reader", reader)
    export("ann", tmp_path / "ann.jsonl")
    export("ann", tmp_path / "again.jsonl")
    assert noted == [1, 2]
    one, two = Decision.objects.filter(action="subject_exported")
    assert one.detail == two.detail, "two requests about one person can be told to be that"
    assert one.detail.startswith("person ")
    assert one.detail.endswith("(sharding_export_subject)")
    assert "ann" not in one.detail.replace("person", "").split()


def test_it_has_nothing_of_a_person_whose_rows_go_on_in_another_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store()
    move = "UPDATE sharding_shard SET journal = %s WHERE type_id = (SELECT id FROM sharding_type WHERE name = %s)"
    read = Journals.events

    def events(self: Journals, *wanted: Any) -> Iterator[StoredRow]:
        yield from read(self, *wanted)
        with connection.cursor() as cursor:
            cursor.execute(move, ["elsewhere", "entities.Buyer"])

    monkeypatch.setattr(Journals, "events", events)
    try:
        with pytest.raises(CommandError, match="Shards lie in 'elsewhere'"):
            export("ann", tmp_path / "ann.jsonl")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(move, ["", "entities.Buyer"])
    assert not (tmp_path / "ann.jsonl").exists()


@pytest.mark.parametrize("has_no_unnamed_files", [False, True])
def test_a_file_has_its_name_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_no_unnamed_files: bool
) -> None:
    """A lost terminal, a kill or a crash in the middle leaves no part of it, in plain."""
    store()
    seen: list[list[Path]] = []
    real = access._Reader.of_messages

    def read(self: access._Reader, *args: Any) -> Any:
        seen.append([*tmp_path.iterdir()])
        return real(self, *args)

    monkeypatch.setattr(access._Reader, "of_messages", read)
    path = tmp_path / "ann.jsonl"
    if has_no_unnamed_files:
        monkeypatch.delattr(os, "O_TMPFILE")
    assert export("ann", path)[-1]["row"] == "end"
    assert seen == [[path] if has_no_unnamed_files else []]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    other = tmp_path / "other.jsonl"

    def taken(self: access._Reader, *args: Any) -> Any:
        other.write_text("of another process")
        return real(self, *args)

    if not has_no_unnamed_files:
        monkeypatch.setattr(access._Reader, "of_messages", taken)
        with pytest.raises(CommandError, match=r"other\.jsonl: File exists"):
            export("ann", other)
        assert other.read_text() == "of another process"


def test_who_was_erased_or_is_not_known_is_said_and_leaves_no_file(tmp_path: Path) -> None:
    store()
    erase_subject("ann")
    for subject, said in (("ann", "was erased"), ("eve", "Nothing is stored about 'eve'")):
        path = tmp_path / f"{subject}.jsonl"
        with pytest.raises(CommandError, match=said):
            export(subject, path)
        assert not path.exists()


def test_a_person_who_is_erased_while_it_reads_is_shown_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store()
    monkeypatch.setattr(access, "PAGE_ROWS", 1)
    found = access.lines(conninfo(get_settings().lifeline_database), "ann", "an operator", bool)
    shown = [next(found), next(found)]
    assert isinstance(shown[1], access.EventLine)
    assert NAME in bytes(shown[1].payload).decode()
    erase_subject("ann")
    with pytest.raises(access.Erased):
        next(found)


def test_no_file_stays_of_a_person_who_was_erased_behind_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store()
    read, path = access._Reader.of_messages, tmp_path / "ann.jsonl"

    def of_messages(self: access._Reader, *wanted: Any) -> Iterator[access.Line]:
        yield from read(self, *wanted)
        erase_subject("ann")

    monkeypatch.setattr(access._Reader, "of_messages", of_messages)
    with pytest.raises(CommandError, match="was erased"):
        export("ann", path)
    assert not path.exists()


def test_it_needs_a_yes_the_keys_and_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "ann.jsonl"
    with pytest.raises(CommandError, match="Add --yes"):
        call_command("sharding_export_subject", "ann", "--to", str(path))
    with (
        override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": []}),
        pytest.raises(CommandError, match="PERSONAL_KEYS"),
    ):
        export("ann", path)
    assert not path.exists()
    path.write_text("kept")
    with pytest.raises(CommandError, match="exists"):
        export("ann", path)
    assert path.read_text() == "kept"


@pytest.mark.parametrize("first", ["snapshots", "events"])
def test_it_has_values_of_events_that_go_into_a_snapshot_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """The node takes a snapshot and deletes the events, behind either pass over the type."""
    Sale.ref("lamp").sync.bid("ann", NAME, 7)
    number = EntityType.objects.get(name="entities.Sale").pk
    read = getattr(Journals, first)

    def trimmed(self: Journals, which: int, *wanted: Any) -> Iterator[Any]:
        yield from read(self, which, *wanted)
        if which == number and not Snapshot.objects.exists():
            Sale.ref("lamp").sync.bid("bob", OTHER, 8)
            until(Snapshot.objects.exists, 10, "the snapshot is stored")
            wanted_row = {"type_id": number, "entity": "lamp", "window": 0, "before": 2**63 - 1}
            with connection.cursor() as cursor:
                run_query(cursor, "trim_events", {**wanted_row, "keep": 1, "limit": 500})

    with monkeypatch.context() as patch:
        patch.setattr(Journals, first, trimmed)
        export("ann", tmp_path / "meanwhile.jsonl")
    assert NAME in (tmp_path / "meanwhile.jsonl").read_text()
    assert not Event.objects.filter(entity="lamp", seq=1).exists()
