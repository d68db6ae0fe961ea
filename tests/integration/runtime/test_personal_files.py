"""Sealed rows leave the database as a file, and come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import override_settings

from sharding_app import erase_subject
from sharding_app.testing import modes, real
from tests.integration.runtime.persons import Sale
from tests.support.live import until

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]
NAME, OTHER = "Annabel Quixote", "Robert of the Lake"


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": KEYS, "KEYS": KEYS}):
        yield


@contextmanager
def node() -> Iterator[None]:
    """A node, while one is wanted: an import is refused beside one."""
    with modes.real(), real.node():
        yield


def run(command: str, *arguments: object) -> Any:
    out = StringIO()
    call_command(command, *map(str, arguments), "--json", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def execute(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description is not None else []


def lose_all() -> None:
    execute("DELETE FROM sharding_event; DELETE FROM sharding_snapshot; DELETE FROM sharding_remembered")


@pytest.fixture
def exported(tmp_path: Path) -> tuple[Path, Any]:
    """A sale with the bids of two persons and a snapshot, as a file; its rows are lost then."""
    path = tmp_path / "sales.jsonl"
    with node():
        Sale.ref("lamp").sync.bid("bob", OTHER, 5)
        Sale.ref("lamp").sync.bid("ann", NAME, 7)
        until(lambda: execute("SELECT 1 FROM sharding_snapshot"), 10, "the snapshot")
    told = run("sharding_export", "entities.Sale", "--to", path)
    text = path.read_text()
    assert "lamp" in text
    assert "sealed:" in text
    assert NAME not in text
    assert OTHER not in text
    lose_all()
    return path, told


def test_a_round_trip_gives_the_same_bytes_and_readable_values(
    exported: tuple[Path, Any], tmp_path: Path
) -> None:
    path, told = exported
    assert run("sharding_import", path)["stored"] == told["rows"] == 3
    again = run("sharding_export", "entities.Sale", "--to", tmp_path / "again.jsonl")
    assert again["sha256"] == told["sha256"]
    with node():
        assert Sale.ref("lamp").sync.shown() == {"bob": OTHER, "ann": NAME}


@pytest.mark.parametrize("events_alone", [False, True])
def test_a_file_of_before_an_erasure_shows_the_marker(exported: tuple[Path, Any], events_alone: bool) -> None:
    path, _ = exported
    with node():
        erase_subject("ann")
    run("sharding_import", path)
    if events_alone:
        execute("DELETE FROM sharding_snapshot")
    with node():
        assert Sale.ref("lamp").sync.shown() == {"bob": OTHER, "ann": "(erased)"}


def test_a_cluster_with_other_keys_reads_the_values_as_erased(exported: tuple[Path, Any]) -> None:
    path, _ = exported
    execute("DELETE FROM sharding_subject")
    run("sharding_import", path)
    with node():
        assert Sale.ref("lamp").sync.shown() == {"bob": "(erased)", "ann": "(erased)"}
        Sale.ref("lamp").sync.bid("ann", NAME, 8)
        assert Sale.ref("lamp").sync.shown() == {"bob": "(erased)", "ann": NAME}
