"""The rows of subjects, for an operator's process: one connection, which commits each statement."""

from typing import Any

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.failed_database import NamedConnection
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.within import secure


class Subjects:
    """`with Subjects(...) as subjects`. All methods raise psycopg.Error."""

    def __init__(self, conninfo: Conninfo, journal: str = "") -> None:
        """`journal`: the name of a further one, which the errors then name."""
        self._conninfo = conninfo
        self._journal = journal
        self._connection: NamedConnection

    def __enter__(self) -> "Subjects":
        self._connection = open_session(self._conninfo, "deletion")
        self._connection.alias = self._journal
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        return self._connection.execute(QUERIES[query], params).fetchall()

    def secure(self) -> None:
        """Wait until a synchronous standby has all that was written here."""
        secure(self._connection)

    def clean(self) -> None:
        """Free the row that held an erased key: its page is written anew."""
        self._connection.execute("VACUUM sharding_subject")
