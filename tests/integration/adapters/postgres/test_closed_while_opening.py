"""A line that is closed while it is being opened: nothing runs on a connection that is not ready.

An append in the middle of the transaction that prepares a connection would be reported as done, and
be undone with it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres import connection as module
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.ports.journal import JournalUnavailable
from tests.integration.adapters.postgres.writers import connect, give_homes
from tests.support.given import event_row

pytestmark = pytest.mark.asyncio

TWO = [event_row(1, "a", 1), event_row(1, "a", 2)]


class Gates:
    """Stops at the moments that matter, until the test goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connecting, self.connects = asyncio.Event(), asyncio.Event()
        self.inside, self.goes_on = asyncio.Event(), asyncio.Event()
        self._real = psycopg.AsyncConnection.connect
        monkeypatch.setattr(psycopg.AsyncConnection, "connect", self._connect)
        monkeypatch.setattr(module, "_as_login", self._as_login)

    async def _connect(self, **params: Any) -> Any:
        connection = await self._real(**params)
        if not self.connecting.is_set():
            self.connecting.set()
            await self.connects.wait()
        return connection

    async def _as_login(self, connection: Any, query: str, params: Any) -> list[Any]:
        """End a former statement in a transaction, which fails in the end."""
        async with connection.transaction():
            await connection.execute(QUERIES["act_as_login"])
            self.inside.set()
            await self.goes_on.wait()
            raise psycopg.errors.InsufficientPrivilege("it is not ours")


async def count(params: dict[str, Any]) -> int:
    async with await connect(params) as admin:
        cursor = await admin.execute("SELECT count(*) FROM sharding_event")
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def test_an_append_does_not_stand_in_the_transaction_of_another_task(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    journal = PostgresJournal(params, owner="me")
    line = journal._appends[0]
    former = await line.open()
    await line.close()
    gates = Gates(monkeypatch)
    line._former = former
    opening = asyncio.ensure_future(line.open())
    await gates.connecting.wait()
    await line.close()  # as a journal does that settles an append in doubt
    gates.connects.set()
    entered = asyncio.ensure_future(gates.inside.wait())
    await asyncio.wait({opening, entered}, return_when=asyncio.FIRST_COMPLETED)
    append = asyncio.ensure_future(journal.append(TWO))
    await asyncio.wait({append, entered}, return_when=asyncio.FIRST_COMPLETED)
    gates.goes_on.set()
    await asyncio.gather(opening, return_exceptions=True)
    await append
    entered.cancel()
    await journal.close()
    assert await count(params) == 2, "what was acknowledged is stored"


async def test_work_that_waited_for_a_line_that_was_closed_has_its_turn_behind_others(
    params: dict[str, Any],
) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    journal = PostgresJournal(params, owner="me")
    line = journal._appends[0]
    await line.open()
    entered, goes_on = asyncio.Event(), asyncio.Event()

    async def stays(connection: Any) -> None:
        entered.set()
        await goes_on.wait()

    first = asyncio.ensure_future(line.run(stays))
    await entered.wait()
    at_once: list[int] = []
    under_way = 0

    async def alone(connection: Any) -> None:
        nonlocal under_way
        under_way += 1
        at_once.append(under_way)
        await connection.execute("SELECT 1")
        under_way -= 1

    waited = [asyncio.ensure_future(line.run(alone)) for _ in range(3)]
    await asyncio.sleep(0)
    await line.close()
    came_later = [asyncio.ensure_future(line.run(alone)) for _ in range(3)]
    goes_on.set()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.gather(*waited, *came_later)
    await journal.close()
    assert at_once == [1] * 6


async def test_an_append_in_an_open_transaction_is_not_acknowledged(params: dict[str, Any]) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    journal = PostgresJournal(params, owner="me")
    await journal._appends[0].open()
    connection = journal._appends[0]._connection
    assert connection is not None
    for rows in (TWO[:1], TWO):
        await connection.execute("BEGIN")
        with pytest.raises(JournalUnavailable, match="it stands in an open transaction"):
            await journal.append(rows)
        assert not await journal.settle(rows)
        connection = journal._appends[0]._connection
        assert connection is not None
    await journal.close()
    assert await count(params) == 0
