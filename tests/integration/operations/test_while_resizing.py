"""Commands that move a type's rows in and out, while the type is being resized: each is refused
before it reads or writes anything, and works again when the resize has ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from sharding_app.adapters.postgres.transfer import Transfer
from tests.integration.operations.test_transfer import everything, execute, run
from tests.support.cluster_rows import CART, GONE, SHARDS

REFUSED = re.escape(
    "shop.Cart is being resized: wait until that is done (manage.py sharding_resize shop.Cart)."
)
COMMANDS = {
    "export": ("sharding_export", "shop.Cart", "--to", "new.jsonl"),
    "import": ("sharding_import", "before.jsonl"),
    "archive of events": ("sharding_archive", "shop.Cart", "--older-than", "90", "--to", "new.jsonl.gz", "--yes"),
    "archive of events, counted": ("sharding_archive", "shop.Cart", "--older-than", "90"),
    "archive of entities": (
        "sharding_archive", "shop.Cart", "--entities-older-than", "90", "--to", "new", "--yes",
    ),
    "archive of entities, counted": ("sharding_archive", "shop.Cart", "--entities-older-than", "90"),
}  # fmt: skip
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rows")]


def resize(wanted: int, type_id: int = CART) -> None:
    execute(
        "UPDATE sharding_type SET shards_wanted = %s, groups_resized = 0, shards_revision = shards_revision + 1"
        " WHERE id = %s",
        wanted,
        type_id,
    )


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_it_is_refused_until_the_resize_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    execute("UPDATE sharding_event SET at = now() - interval '100 days' WHERE entity = 'user-001'")
    run("sharding_export", "shop.Cart", "--to", "before.jsonl")
    before = everything()
    resize(2 * SHARDS)
    with pytest.raises(CommandError, match=REFUSED):
        run(*command)
    assert everything() == before
    assert [each.name for each in tmp_path.rglob("*")] == ["before.jsonl"], "none is begun"
    resize(0)
    assert run(*command)["done"]


def test_a_resize_of_another_type_is_in_no_way(tmp_path: Path) -> None:
    resize(8, GONE)
    assert run("sharding_export", "shop.Cart", "--to", tmp_path / "carts.jsonl")["done"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_resize_that_begins_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """Remembered ids may have gone from a shard that is to be read to one that was."""
    path, real = tmp_path / "carts.jsonl", Transfer.remembered

    def remembered(self: Transfer, *args: Any) -> Iterator[str]:
        resize(2 * SHARDS)
        if ended:
            resize(0)
        return real(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(Transfer, "remembered", remembered)
        with pytest.raises(CommandError, match=REFUSED):
            run("sharding_export", "shop.Cart", "--to", path)
    resize(0)
    with pytest.raises(CommandError, match="was begun for another export"):
        run("sharding_export", "shop.Cart", "--to", path, "--resume")


def test_an_import_stops_when_a_resize_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "carts.jsonl", Transfer.put_events
    run("sharding_export", "shop.Cart", "--to", path)

    def put_events(self: Transfer, *args: Any, **options: Any) -> int:
        resize(2 * SHARDS)
        return real(self, *args, **options)

    monkeypatch.setattr(Transfer, "put_events", put_events)
    before = everything()
    with pytest.raises(CommandError, match=REFUSED):
        run("sharding_import", path)
    assert everything() == before
