"""A connection that ends while nothing is under way costs no call: its next use opens another."""

import socket
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.connection import Line, has_ended
from sharding_app.adapters.postgres.journal import PostgresJournal
from tests.integration.adapters.postgres.silent_proxy import proxy_to
from tests.integration.adapters.postgres.writers import connect, events, give_homes
from tests.support.given import event_row, until

pytestmark = pytest.mark.asyncio

END = "SELECT pg_terminate_backend(%s, 60000)"
PID = "SELECT pg_backend_pid()"


async def pid(line: Line) -> int:
    async def ask(connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> int:
        row = await (await connection.execute(PID)).fetchone()
        assert row is not None
        return int(row[0])

    return await line.run(ask)


async def test_the_next_statement_runs_on_another_connection(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")
    former = await line.open()
    async with await connect(params) as admin:
        await admin.execute(END, [former.pid])
        assert await pid(line) != former.pid
        assert line.backend != former
        await admin.execute(END, [await pid(line)])
        assert (await line.open()).pid == await pid(line)
    await line.close()


async def test_an_append_is_not_in_doubt(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, connections=2)
    async with await connect(params) as admin:
        await give_homes(admin, 2)
        for number, former in enumerate((await journal.open())[:2]):
            await admin.execute(END, [former.pid])
            entity = f"e{number}"
            await journal.append([event_row(1, entity, 1, shard=number)], on=number)
            assert journal.backends[number] != former
        assert journal._doubtful == ([], [])
        assert await events(admin) == [("e0", 1, 1), ("e1", 1, 1)]
    await journal.close()


async def test_a_check_of_the_connections_replaces_it(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, connections=2)
    former = await journal.open()
    async with await connect(params) as admin:
        await admin.execute(END, [former[1].pid])
        await journal.connect()
        assert journal.backends[0] == former[0]
        assert journal.backends[1] != former[1]
        assert journal.backends[2] == former[2]
    await journal.close()


async def test_an_end_without_a_word_is_seen_too(params: dict[str, Any]) -> None:
    async with proxy_to(params) as proxy:
        line = Line(proxy.params, purpose="test")
        former = await pid(line)
        connection = line._connection
        assert connection is not None
        assert not has_ended(connection)
        proxy.hang_up()

        async def is_seen() -> bool:
            return has_ended(connection)

        await until(is_seen)
        assert await pid(line) != former
        await line.close()


async def test_a_message_of_the_server_ends_no_connection(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")

    async def listen(connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> int:
        await connection.execute("LISTEN a_test")
        return connection.fileno()

    descriptor = await line.run(listen)
    former = await pid(line)
    async with await connect(params) as admin:
        for number in range(5):
            await admin.execute(f"NOTIFY a_test, '{number}'".encode())
    borrowed = socket.socket(fileno=descriptor)

    async def has_come() -> bool:
        try:
            return bool(borrowed.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    try:
        await until(has_come)
    finally:
        borrowed.detach()
    assert await pid(line) == former
    await line.close()


async def test_an_end_during_a_restart_is_an_error_of_the_connection(params: dict[str, Any]) -> None:
    line = Line(params, purpose="test")
    former = await line.open()
    async with await connect(params) as admin:
        await admin.execute(END, [former.pid])
    line._conninfo["port"] = 1  # no process listens there
    with pytest.raises(psycopg.OperationalError, match="refused"):
        await line.rows("coordinator")
    assert not line.is_open
    line._conninfo["port"] = params["port"]
    line._not_before = 0.0
    assert await pid(line) != former.pid
    await line.close()
