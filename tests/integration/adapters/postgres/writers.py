"""Sessions that write to the tables by hand, and eyes that see what the server makes of it."""

import asyncio
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.journal import EventRow, JournalUnavailable
from tests.support.slack import SLACK

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

INSERT = (
    "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, %s, %s, %s, %s, 'E', 1, '{}')"
)
RAISE = "UPDATE sharding_shard SET epoch = epoch + 1 WHERE type_id = 1 AND shard = %s"


async def connect(params: dict[str, Any], **options: Any) -> Connection:
    return await psycopg.AsyncConnection.connect(**{**params, **options}, autocommit=True)


async def give_homes(connection: Connection, shards: int) -> None:
    await connection.execute(
        "INSERT INTO sharding_shard (type_id, shard, epoch, home, step)"
        " SELECT 1, s, 1, 'home', 'home' FROM generate_series(0, %s - 1) s",
        [shards],
    )


async def value(connection: Connection, query: str, *args: Any) -> Any:
    row = await (await connection.execute(query.encode(), args)).fetchone()
    assert row is not None
    return row[0]


async def events(connection: Connection) -> list[tuple[Any, ...]]:
    cursor = await connection.execute("SELECT entity, seq, epoch FROM sharding_event ORDER BY 1, 2")
    return await cursor.fetchall()


async def blocked(watcher: Connection, pid: int) -> None:
    """Wait until this server process waits for another one."""
    async with asyncio.timeout(10 * SLACK):
        while not await value(watcher, "SELECT cardinality(pg_blocking_pids(%s)) > 0", pid):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def gone(watcher: Connection, pid: int) -> None:
    """Wait until this server process is not there any more."""
    async with asyncio.timeout(10 * SLACK):
        while await value(watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def lost(
    params: dict[str, Any], journal: PostgresJournal, row: EventRow, *, on: int = 0
) -> JournalUnavailable:
    """Append a row whose server process is ended while it waits for the row of its shard. This
    takes longer than journals wait for a row, unless they were told to.
    """
    backend = journal.backends[on]
    async with await connect(params) as holder, holder.transaction():
        await holder.execute("SELECT FROM sharding_shard FOR UPDATE")
        append = asyncio.ensure_future(journal.append([row], on=on))
        await blocked(holder, backend.pid)
        await holder.execute("SELECT pg_terminate_backend(%s, 60000)", [backend.pid])
        with pytest.raises(JournalUnavailable) as failed:
            await append
    return failed.value
