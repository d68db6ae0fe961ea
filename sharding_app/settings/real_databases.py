"""The databases' names before a test framework gave them other ones, and the guard of those that
are real.

Light: each process imports it.
"""

import sys
from collections.abc import Mapping
from typing import Any

from django.db import connections

from sharding_app.errors import WrongContext

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


def refuse_real_database(alias: str) -> None:
    """Raise if a test would reach a database that is not a test's."""
    if in_tests() and is_real(alias, connections[alias].settings_dict["NAME"]):
        raise WrongContext(
            f"a test would use the real journal in database {alias!r}: no test database is set up. Use the"
            " in-memory cluster, which is the default, or mark the test with django_db(transaction=True)"
        )
