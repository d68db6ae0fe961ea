"""A migration that was interrupted while it built an index: the next one does not take what is left
for an index.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from sharding_app.migrations import _sql
from sharding_app.migrations._sql import RunFiles
from tests.support.slack import SLACK

pytestmark = pytest.mark.django_db(transaction=True)

BUILD = RunFiles(("build",), ("back",))
FILES = {
    "build": "CREATE INDEX CONCURRENTLY IF NOT EXISTS sharding_event_scratch ON @schema@.sharding_event (at)",
    "back": "DROP INDEX CONCURRENTLY IF EXISTS @schema@.sharding_event_scratch",
}
VALID = "SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass('sharding_event_scratch')"


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_sql, "load", lambda name, schema="public": FILES[name].replace("@schema@", schema))
    yield
    migrate(back=True)


def conninfo() -> dict[str, Any]:
    connection.ensure_connection()
    return {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor, "context": None}


def migrate(*, back: bool = False) -> None:
    with connection.schema_editor(atomic=False) as editor:
        (BUILD.database_backwards if back else BUILD.database_forwards)("sharding", editor, None, None)


def is_valid() -> bool | None:
    with connection.cursor() as cursor:
        cursor.execute(VALID)
        row = cursor.fetchone()
    return None if row is None else bool(row[0])


def test_it_is_built_anew() -> None:
    assert is_valid() is None
    with psycopg.connect(**conninfo()) as writer, connection.cursor() as cursor:
        writer.execute("LOCK TABLE sharding_event IN ROW EXCLUSIVE MODE")
        cursor.execute(f"SET statement_timeout = '{3 * SLACK:g}s'")
        with pytest.raises(OperationalError):
            migrate()
        cursor.execute("SET statement_timeout TO DEFAULT")
    assert is_valid() is False
    migrate()
    assert is_valid() is True


def test_one_that_is_whole_is_left_alone() -> None:
    migrate()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_filenode('sharding_event_scratch')")
        before = cursor.fetchone()
        migrate()
        cursor.execute("SELECT pg_relation_filenode('sharding_event_scratch')")
        assert cursor.fetchone() == before
