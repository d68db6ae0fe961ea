"""What the databases were called before a test framework gave them other names; light, as each process imports it."""

import sys
from collections.abc import Mapping
from typing import Any

_before: dict[str, object] = {}


def in_tests() -> bool:
    """Whether Django's test environment is set up: it gives `django.core.mail` an outbox."""
    return hasattr(sys.modules.get("django.core.mail"), "outbox")


def remember(databases: Mapping[str, Mapping[str, Any]]) -> None:
    """Note the names that the settings give; called once, when the app is ready."""
    for alias, database in databases.items():
        _before.setdefault(alias, database.get("NAME"))


def is_real(alias: str, name: object) -> bool:
    """Whether that database of the settings still has the name that they gave it."""
    return alias in _before and name == _before[alias]
