"""A database that is not PostgreSQL is named by the first call, also where no check has run."""

from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured

from sharding_app import wiring


def test_another_database_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "refuse_real_database", lambda alias: None)
    monkeypatch.setattr(wiring, "connections", {"default": SimpleNamespace(vendor="sqlite")})
    with pytest.raises(ImproperlyConfigured, match=r"'default' is sqlite, not PostgreSQL\..*SHARDING"):
        wiring.conninfo("default")
