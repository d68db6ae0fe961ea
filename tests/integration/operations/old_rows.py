"""Rows that both kinds of archives move."""

from __future__ import annotations

import pytest

from sharding_app.adapters.postgres import transfer
from tests.integration.operations.test_transfer import execute

OLD = ("shop.Cart", "--older-than", "90")
WHOLE = ("shop.Cart", "--entities-older-than", "90")


@pytest.fixture
def old_rows(rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities with one old event each; a snapshot covers the events of `alice`."""
    monkeypatch.setattr(transfer, "PAGE_ROWS", 3)
    execute("UPDATE sharding_event SET at = now() - interval '100 days'")
    execute("UPDATE sharding_snapshot SET seq = 5")
