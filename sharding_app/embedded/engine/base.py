"""Django's PostgreSQL engine, which starts the data folder's server before it connects."""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL

from sharding_app.embedded.settings import started


class DatabaseWrapper(PostgreSQL):
    """A connection to a server that runs when it is wanted."""

    def get_connection_params(self) -> dict[str, Any]:
        """Return what psycopg connects with, once the server takes connections."""
        params: dict[str, Any] = super().get_connection_params()
        return {**params, "port": started(self.settings_dict)["PORT"]}
