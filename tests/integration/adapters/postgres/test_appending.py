"""Events in the user's own transaction: rows and events, both or neither, behind the same fence."""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.postgres import types
from psycopg.pq import Format

from sharding_app.adapters.postgres.appending import copy_events_within
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.journal import RowRefused
from tests.integration.adapters.postgres.writers import connect, events, give_homes, value
from tests.support.given import event_row

pytestmark = pytest.mark.asyncio


def order_and_events(params: dict[str, Any], **changes: Any) -> None:
    """Write a row of the user's and an event, as the last statement, in one transaction."""
    with psycopg.connect(**params) as connection, connection.transaction(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES ('alice')")
        copy_events_within(cursor, [event_row(1, "alice", 1), event_row(1, "alice", 2)._replace(**changes)])


async def test_rows_and_events_are_committed_together(params: dict[str, Any]) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute("CREATE TABLE orders (name text)")
        try:
            await asyncio.to_thread(order_and_events, params)
            assert await events(admin) == [("alice", 1, 1), ("alice", 2, 1)]
            assert await value(admin, "SELECT count(*) FROM orders") == 1
        finally:
            await admin.execute("DROP TABLE orders")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epoch": 2}, psycopg.DatabaseError),
        ({"payload": b"{"}, psycopg.DataError),
        ({"entity": "\ud800"}, RowRefused),
        ({"seq": 1}, psycopg.errors.UniqueViolation),
    ],
)
async def test_neither_is_there_when_the_events_are_refused(
    params: dict[str, Any], changes: dict[str, Any], error: type[Exception]
) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute("CREATE TABLE orders (name text)")
        try:
            with pytest.raises(error):
                await asyncio.to_thread(order_and_events, params, **changes)
            assert await events(admin) == []
            assert await value(admin, "SELECT count(*) FROM orders") == 0
        finally:
            await admin.execute("DROP TABLE orders")


async def test_appended_bytes_go_through_no_python_function(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, connections=2)
    await journal.open()
    for line in journal._appends:
        assert line._connection is not None
        dumper = line._connection.adapters.get_dumper_by_oid(types["bytea"].oid, Format.BINARY)
        assert dumper.__name__ == "BytesBinaryDumper"
    await journal.close()
