"""Which database an error is of: a command of an operator works on several of them at a time, and
names the one that has failed.

Contract: an error keeps the alias that it got first, on its way through any number of callers. One
without an alias is of the database that the command works on as a whole.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

_ALIAS = "sharding_alias"


@contextmanager
def of_database(alias: str) -> Iterator[None]:
    """Give the errors of a block that alias."""
    try:
        yield
    except Exception as error:
        if alias and not failed_database(error):
            setattr(error, _ALIAS, alias)
        raise


def failed_database(error: BaseException) -> str:
    """Return the alias of an error; empty: it has none."""
    return str(getattr(error, _ALIAS, ""))


class NamedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose errors have an alias."""

    alias = ""

    def wait(self, *args: Any, **options: Any) -> Any:
        """Wait for the server, as all statements do."""
        with of_database(self.alias):
            return super().wait(*args, **options)


def alias_of(connection: psycopg.Connection[tuple[Any, ...]]) -> str:
    """Return the alias that errors of a connection have; empty: they have none."""
    return connection.alias if isinstance(connection, NamedConnection) else ""
