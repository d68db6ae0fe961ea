"""Psycopg's connection parameters from a Django database alias. Pure: it reads the settings given
to it.
"""

from collections.abc import Mapping
from typing import Any

_DJANGO_ONLY = frozenset(
    {
        "assume_role",
        "autocommit",
        "client_encoding",
        "context",
        "cursor_factory",
        "isolation_level",
        "pool",
        "prepare_threshold",
        "row_factory",
        "server_side_binding",
    }
)
"""OPTIONS that Django or psycopg's Python side reads, or that our connections set themselves."""


def from_django_settings(database: Mapping[str, Any]) -> dict[str, Any]:
    """Return psycopg parameters for one entry of DATABASES; sslmode, service, passfile and other
    OPTIONS stay.
    """
    options = dict(database.get("OPTIONS") or {})
    params = {
        name: value for name, value in options.items() if name not in _DJANGO_ONLY and value is not None
    }
    if database.get("NAME"):
        params["dbname"] = str(database["NAME"])
    elif "service" not in params:
        params["dbname"] = "postgres"
    for setting, param in (("USER", "user"), ("PASSWORD", "password"), ("HOST", "host"), ("PORT", "port")):
        if database.get(setting):
            params[param] = str(database[setting])
    role = options.get("assume_role")
    if role:
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        params["options"] = f"{params.get('options', '')} -c role={escaped}".strip()
    params["client_encoding"] = "UTF8"
    return params
