"""The rooms stay apart, and the rules see it when they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.import_rules import broken_rules

ROOT = Path(__file__).resolve().parents[2]


def test_the_rooms_stay_apart() -> None:
    assert broken_rules(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("core/region.py", "import asyncio", "asyncio"),
        ("core/region.py", "from time import monotonic", "time.monotonic"),
        ("core/region.py", "def step():\n    import random", "random"),
        ("core/region.py", "from datetime import datetime", "datetime.datetime"),
        ("core/region.py", "from sharding_app.ports import clock", "sharding_app.ports.clock"),
        ("core/region.py", "shard = hash('alice')", "hash()"),
        ("ports/clock.py", "from sharding_app import runtime", "sharding_app.runtime"),
        ("runtime/node.py", "import sharding_app.adapters.memory", "sharding_app.adapters.memory"),
        (
            "adapters/postgres/journal.py",
            "from sharding_app.adapters.channels import codec",
            "adapters.channels",
        ),
        (
            "adapters/memory/store.py",
            "from sharding_app.runtime.node import Node",
            "sharding_app.runtime.node",
        ),
        ("conf.py", "from project import settings", "project.settings"),
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
    target = tmp_path / "sharding_app" / "core" / "codec.py"
    target.parent.mkdir(parents=True)
    target.write_text(
        "import hashlib\nimport msgspec\nfrom collections.abc import Iterator\nimport sharding_app.core.ids"
    )
    assert broken_rules(tmp_path) == []
