"""A migration beside a dump: it waits for no lock for long, and says what is in its way."""

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from sharding_app.migrations import _sql
from sharding_app.migrations._sql import RunFiles
from tests.support.live import until

pytestmark = pytest.mark.django_db(transaction=True)

CHANGE = RunFiles(("change",), ("back",))
FILES = {
    "change": "ALTER TABLE @schema@.sharding_node ADD COLUMN scratch integer",
    "back": "ALTER TABLE @schema@.sharding_node DROP COLUMN scratch",
}


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sql, "load", lambda name, schema="public": FILES[name].replace("@schema@", schema))
    monkeypatch.setattr(_sql, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(_sql, "PAUSE_SECONDS", 0.01)


ASKED = (
    "SELECT FROM pg_locks WHERE NOT granted AND relation = 'sharding_node'::regclass"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def conninfo() -> dict[str, Any]:
    connection.ensure_connection()
    return {**connection.get_connection_params(), "cursor_factory": psycopg.Cursor, "context": None}


@pytest.fixture
def dump() -> Iterator[psycopg.Connection[Any]]:
    """What pg_dump holds until it is through."""
    with psycopg.connect(**conninfo(), application_name="pg_dump") as dump:
        dump.execute("LOCK TABLE sharding_node IN ACCESS SHARE MODE")
        yield dump


def migrate() -> None:
    with connection.schema_editor() as editor:
        CHANGE.database_forwards("sharding", editor, None, None)


def has_column() -> bool:
    with connection.cursor() as cursor:
        return any(
            each.name == "scratch"
            for each in connection.introspection.get_table_description(cursor, "sharding_node")
        )


def test_it_gives_up_and_names_who_is_in_its_way(
    dump: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sql, "TRIES", 3)
    with pytest.raises(RuntimeError, match=rf"process {dump.info.backend_pid} .*pg_dump.*Run migrate again"):
        migrate()
    assert not has_column()


def test_it_goes_on_when_the_dump_is_through(
    dump: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sql, "TRIES", 10_000)
    migration = threading.Thread(target=_in_its_own_connection)
    migration.start()
    try:
        with psycopg.connect(**conninfo(), autocommit=True) as node:
            node.execute("SET statement_timeout = '30s'")
            until(lambda: node.execute(ASKED).fetchone() is not None, 20, "the migration asks for its lock")
            for _ in range(5):
                node.execute("SELECT count(*) FROM sharding_node")
                assert migration.is_alive()
    finally:
        dump.rollback()
        migration.join()
    assert has_column()
    with connection.schema_editor() as editor:
        CHANGE.database_backwards("sharding", editor, None, None)
    assert not has_column()


def _in_its_own_connection() -> None:
    try:
        migrate()
    finally:
        connection.close()


def test_the_sql_to_be_read_beforehand_is_the_files_own() -> None:
    with connection.schema_editor(collect_sql=True) as editor:
        CHANGE.database_forwards("sharding", editor, None, None)
        assert editor.collected_sql == ['ALTER TABLE "public".sharding_node ADD COLUMN scratch integer;']


def test_a_migrations_own_lock_timeout_ends_with_it() -> None:
    with connection.schema_editor() as editor:
        CHANGE.database_forwards("sharding", editor, None, None)
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",)
        CHANGE.database_backwards("sharding", editor, None, None)
