"""A database that the app cannot use is named by the first call, also where no check has run."""

from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from sharding_app import wiring


def test_another_database_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "refuse_real_database", lambda alias: None)
    monkeypatch.setattr(wiring, "connections", {"default": SimpleNamespace(vendor="sqlite")})
    with pytest.raises(ImproperlyConfigured, match=r"'default' is sqlite, not PostgreSQL\..*SHARDING"):
        wiring.conninfo("default")


def test_one_without_commits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events with in_transaction= would be acknowledged, and lost."""
    monkeypatch.setattr(wiring, "refuse_real_database", lambda alias: None)
    monkeypatch.setitem(connections["default"].settings_dict, "AUTOCOMMIT", False)
    with pytest.raises(ImproperlyConfigured, match=r"DATABASES\['default'\] has AUTOCOMMIT off"):
        wiring.conninfo("default")
