"""docs/personal-data.md, executed: its entities, and its own test."""

from __future__ import annotations

import sys
import types

import pytest

from sharding_app.entities.registry import registry
from tests.docs.blocks import blocks
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "personal-data.md"


def test_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {block.file: block.text for block in blocks(PAGE) if block.language == "python"}
    monkeypatch.setitem(sys.modules, "shop", types.ModuleType("shop"))
    monkeypatch.setenv("SHARDING_PERSONAL_KEY", "x")
    with registry.isolated():
        for file, text in texts.items():
            assert file is not None
            module = types.ModuleType(file.removesuffix(".py").replace("/", "."))
            monkeypatch.setitem(sys.modules, module.__name__, module)
            exec(compile(text, file, "exec", dont_inherit=True), vars(module))  # noqa: S102  (our own page)
        vars(sys.modules["shop.test_persons"])["test_a_lot_shows_bidders_also_after_they_were_erased"]()
