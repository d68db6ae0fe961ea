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


@pytest.mark.parametrize("name", TESTS)
def test_the_page_runs(name: str, names: dict[str, Any], mailoutbox: list[Any]) -> None:
    test = names[name]
    test(mailoutbox) if inspect.signature(test).parameters else test()
    assert names["closing_soon"]().count() == 0
