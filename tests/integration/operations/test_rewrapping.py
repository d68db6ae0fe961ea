"""`sharding_rewrap_keys`: all keys of persons under the first secret, or no word of success."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import override_settings

from sharding_app import erase_subject
from sharding_app.adapters.personal.vault import Vault, new_row
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.models import Decision, Subject
from sharding_app.operations import rewrapping
from sharding_app.testing import modes, real
from tests.integration.runtime.persons import Sale

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW, OTHER = "Xk2mP9vQ4wL7tR1zB8nH5cJ3", "aD6sF0gT2yU8iO4pL1kM7jN9", "qW3eR5tY7uI9oP1aS2dF4gH6"


@contextmanager
def secrets(*keys: str) -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": [*keys], "KEYS": [OLD]}):
        yield


def vault(*keys: str) -> Vault:
    return Vault([each.encode() for each in keys])


def add(number: int, by: Vault) -> list[bytes]:
    """Store keys of persons; return their rows."""
    rows = [new_row() for _ in range(number)]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO sharding_subject (id, mark, wrapped) VALUES (%s, %s, %s)",
            [(row, row, by.new_key(row)) for row in rows],
        )
    return rows


def stored() -> dict[bytes, bytes]:
    return {bytes(each.id): bytes(each.wrapped) for each in Subject.objects.filter(wrapped__isnull=False)}


def run(*arguments: str) -> Any:
    out = StringIO()
    call_command("sharding_rewrap_keys", *arguments, "--json", stdout=out, stderr=StringIO())
    return json.loads(out.getvalue())


def keys() -> dict[bytes, bytes]:
    """The keys themselves, by their rows."""
    everything = vault(NEW, OLD, OTHER)
    return {row: everything.unwrap(wrapped, row) for row, wrapped in stored().items()}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrapping, "PAGE_KEYS", 3)


def test_all_keys_are_the_same_under_the_first_secret() -> None:
    add(7, vault(OLD))
    add(2, vault(NEW))
    before = keys()
    with secrets(NEW, OLD):
        with pytest.raises(CommandError, match="7 keys under an old secret"):
            run("--check")
        assert run("--yes") == {"done": True, "rewrapped": 7, "new": 9, "old": 0, "unknown": 0}
        assert run("--check")["new"] == 9
        assert run("--yes")["rewrapped"] == 0
    assert keys() == before
    for row, wrapped in stored().items():
        vault(NEW).unwrap(wrapped, row)
    (line,) = Decision.objects.filter(action="personal_keys_rewrapped")
    assert line.detail.startswith("7 keys, by ")
    assert line.detail.endswith("(sharding_rewrap_keys)")


def test_a_run_that_was_interrupted_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    add(8, vault(OLD))
    before, pages = keys(), list[str]()
    real_rows = Subjects.rows

    def killed(self: Subjects, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        pages.append(query)
        if pages.count("subject_rewrap") > 2:
            raise KeyboardInterrupt
        return real_rows(self, query, params)

    with secrets(NEW, OLD):
        with monkeypatch.context() as patch:
            patch.setattr(Subjects, "rows", killed)
            with pytest.raises(CommandError, match="Interrupted"):
                run("--yes")
        with pytest.raises(CommandError, match="2 keys under an old secret"):
            run("--check")
        assert run("--yes")["rewrapped"] == 2
    assert keys() == before


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Have a function run just before a statement."""

    def declare(statement: str, function: Callable[[], object]) -> None:
        real_rows = Subjects.rows

        def rows(self: Subjects, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
            if query == statement:
                function()
            return real_rows(self, query, params)

        monkeypatch.setattr(Subjects, "rows", rows)

    return declare


def test_it_does_not_say_done_while_a_process_makes_keys_with_an_old_secret(
    meanwhile: Callable[[str, Callable[[], object]], None],
) -> None:
    add(2, vault(OLD))
    meanwhile("subject_secrets", lambda: add(1, vault(OLD)))
    with (
        secrets(NEW, OLD),
        pytest.raises(CommandError, match=r"Not finished.*1 key under.*old secret in front"),
    ):
        run("--yes")


def test_it_does_not_say_done_while_a_key_needs_a_secret_that_is_not_here() -> None:
    add(4, vault(OLD))
    add(2, vault(OTHER))
    before = keys()
    with (
        secrets(NEW, OLD),
        pytest.raises(CommandError, match=r"Not finished.*2 keys under a secret that is not"),
    ):
        run("--yes")
    with secrets(NEW, OLD, OTHER):
        assert run("--yes")["rewrapped"] == 2
    assert keys() == before


def test_a_key_that_is_erased_meanwhile_stays_erased(
    meanwhile: Callable[[str, Callable[[], object]], None],
) -> None:
    add(2, vault(OLD))
    erased = min(stored())

    def erase() -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE sharding_subject SET wrapped = NULL, erased_at = now() WHERE id = %s", [erased]
            )

    meanwhile("subject_rewrap", erase)
    with secrets(NEW, OLD):
        assert run("--yes")["new"] == 1
    assert erased not in stored()


def test_without_keys_and_without_a_yes_it_is_refused() -> None:
    with secrets(), pytest.raises(CommandError, match="PERSONAL_KEYS"):
        run("--check")
    with secrets(NEW), pytest.raises(CommandError, match="Add --yes"):
        run()


def test_entities_are_read_with_the_new_secret_alone() -> None:
    with secrets(OLD), modes.real(), real.node():
        Sale.ref("lamp").sync.bid("ann", "Annabel Quixote", 7)
        Sale.ref("lamp").sync.bid("bob", "Robert of the Lake", 8)
    with secrets(NEW, OLD), modes.real(), real.node():
        assert run("--yes")["rewrapped"] == 3, "the key of the marks too"
        assert Sale.ref("lamp").sync.shown() == {"ann": "Annabel Quixote", "bob": "Robert of the Lake"}
    with secrets(NEW), modes.real(), real.node():
        assert Sale.ref("lamp").sync.shown() == {"ann": "Annabel Quixote", "bob": "Robert of the Lake"}
        erase_subject("ann")
    with secrets(NEW), modes.real(), real.node():
        assert Sale.ref("lamp").sync.shown() == {"ann": "(erased)", "bob": "Robert of the Lake"}
