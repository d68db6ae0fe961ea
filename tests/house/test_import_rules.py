"""The rooms stay apart, and the rules see it when they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.import_rules import broken_rules, circles, within

ROOT = Path(__file__).resolve().parents[2]
CIRCLES = {
    # An entity's type, its handlers and the refs to it name each other.
    "sharding_app.entities": 9,
    # The world makes its parts and runs its phases, and they act on the world.
    "sharding_app.testing.simulation": None,
}
"""Packages that may have one circle of modules, and its most modules; None: any number."""


def test_the_rooms_stay_apart() -> None:
    assert broken_rules(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("protocol/region.py", "import asyncio", "asyncio"),
        ("protocol/region.py", "from time import monotonic", "time.monotonic"),
        ("protocol/region.py", "def step():\n    import random", "random"),
        ("protocol/region.py", "from datetime import datetime\nstamp = datetime.now()", "datetime.now()"),
        ("protocol/region.py", "from sharding_app.ports import clock", "sharding_app.ports.clock"),
        ("protocol/region.py", "shard = hash('alice')", "hash()"),
        ("ports/clock.py", "from sharding_app import runtime", "sharding_app.runtime"),
        ("runtime/node/node.py", "import sharding_app.adapters.memory", "sharding_app.adapters.memory"),
        (
            "adapters/postgres/journal.py",
            "from sharding_app.adapters.channels import codec",
            "adapters.channels",
        ),
        (
            "adapters/memory/store.py",
            "from sharding_app.runtime.node.node import Node",
            "sharding_app.runtime.node.node",
        ),
        ("conf.py", "from project import settings", "project.settings"),
        ("embedded/own.py", "from sharding_app import errors", "sharding_app.errors"),
        ("admin.py", "import tests.house", "tests.house"),
    ],
)
def test_a_broken_rule_is_seen(tmp_path: Path, file: str, source: str, complaint: str) -> None:
    target = tmp_path / "sharding_app" / file
    target.parent.mkdir(parents=True)
    target.write_text(source)
    (found,) = broken_rules(tmp_path)
    assert complaint in found
    assert file in found


def test_what_the_rooms_need_is_allowed(tmp_path: Path) -> None:
    target = tmp_path / "sharding_app" / "protocol" / "codec.py"
    target.parent.mkdir(parents=True)
    target.write_text(
        "import hashlib\nimport msgspec\nfrom collections.abc import Iterator\nimport sharding_app.protocol.ids"
    )
    assert broken_rules(tmp_path) == []


def test_no_other_modules_import_each_other_in_a_circle() -> None:
    found = circles(ROOT)
    names = [next((each for each in CIRCLES if within(circle[0], each)), circle) for circle in found]
    assert names == [*CIRCLES]
    for circle, (package, most) in zip(found, CIRCLES.items(), strict=True):
        assert all(within(module, package) for module in circle), circle
        assert most is None or len(circle) <= most, circle


def test_a_circle_is_seen_also_by_way_of_others_and_of_annotations(tmp_path: Path) -> None:
    package = tmp_path / "sharding_app" / "admin"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "pages.py").write_text("from sharding_app.admin import rows")
    (package / "rows.py").write_text("def read():\n    from sharding_app.admin.cells import Cell")
    (package / "cells.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sharding_app.admin.pages import Page"
    )
    (package / "views.py").write_text("import sharding_app.admin.pages")
    assert circles(tmp_path) == [tuple(f"sharding_app.admin.{each}" for each in ("cells", "pages", "rows"))]
