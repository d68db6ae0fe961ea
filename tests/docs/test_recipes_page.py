"""docs/recipes.md, executed: its declarations, and then its own tests."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.probe import looks_pooled
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import registry
from tests.docs.blocks import blocks
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "recipes.md"
TESTS = re.findall(r"^def (test_\w+)", PAGE.read_text(), re.MULTILINE)


@pytest.fixture
def names(db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The page in an app of the demo, with the table of its model."""
    module = types.ModuleType("project.shop.recipes_page")
    found: dict[str, Any] = vars(module)
    known = dict(apps.all_models["shop"])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with registry.isolated(), projections.isolated():
        for block in blocks(PAGE):
            if block.language == "python":
                text = "\n" * block.line + block.text  # a traceback then shows the page's own line
                exec(compile(text, str(PAGE), "exec", dont_inherit=True), found)  # noqa: S102  (our own page)
        with connection.schema_editor() as editor:
            editor.create_model(found["AuctionRow"])
        yield found
    apps.all_models["shop"].clear()
    apps.all_models["shop"].update(known)
    apps.clear_cache()


def test_the_page_has_tests() -> None:
    assert len(TESTS) == 7


def shown(word: str) -> dict[str, Any]:
    """The settings of the one block with this word."""
    (block,) = [each for each in blocks(PAGE) if each.language == "python" and word in each.text]
    settings: dict[str, Any] = {}
    exec(block.text, settings)  # noqa: S102  (our own page)
    return settings


def test_several_servers_are_reached_while_the_first_is_silent() -> None:
    """An attempt at one server ends before the attempt of the quickest line does."""
    database = shown("connect_timeout")["DATABASES"]["default"]
    found = from_django_settings(database)
    assert found["target_session_attrs"] == "read-write"
    assert len(found["host"].split(",")) == len(found["port"].split(",")) == 3
    for connects in (PostgresLifelineSession, PostgresStore, PostgresJournal):
        assert found["connect_timeout"] < inspect.signature(connects).parameters["connect_seconds"].default


def test_nodes_do_not_go_through_the_pooler() -> None:
    settings = shown("LIFELINE_DATABASE")
    databases, direct = settings["DATABASES"], settings["SHARDING"]["LIFELINE_DATABASE"]
    assert looks_pooled(from_django_settings(databases["default"]))
    assert not looks_pooled(from_django_settings(databases[direct]))


@pytest.mark.parametrize("name", TESTS)
def test_the_page_runs(name: str, names: dict[str, Any], mailoutbox: list[Any]) -> None:
    test = names[name]
    test(mailoutbox) if inspect.signature(test).parameters else test()
    assert names["closing_soon"]().count() == 0
