"""Appends of one node on several connections: their server processes, and the end of one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sharding_app.adapters.postgres.connection import cut
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.journal import EventRow, JournalUnavailable
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal.commits import Commit, NotCommitted, Resident
from sharding_app.runtime.journal.writer import JournalWriter
from tests.integration.adapters.postgres.writers import (
    blocked,
    connect,
    events,
    give_homes,
    gone,
    lost,
    value,
)
from tests.support.given import event_row
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

HOLD = "SELECT FROM sharding_shard WHERE shard = %s FOR UPDATE"
OURS = (
    'SELECT array_agg(application_name ORDER BY application_name COLLATE "C") FROM pg_stat_activity'
    " WHERE datname = current_database() AND starts_with(application_name, 'sharding/')"
)


def row(shard: int) -> EventRow:
    return event_row(1, f"e{shard}", 1, shard=shard)


async def test_each_has_a_name_that_a_burial_finds_and_close_ends_all(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, owner="me", connections=3)
    async with await connect(params) as admin:
        backends = await journal.open()
        assert await value(admin, OURS) == [
            f"sharding/me/{each}" for each in ("journal", "journal-1", "journal-2", "reads", "recovery")
        ]
        assert journal.backends == backends
        assert len({each.pid for each in backends}) == 4, "those that write: recovery cannot"
        await journal.close()
        for each in backends:
            await gone(admin, each.pid)
        async with asyncio.timeout(10 * SLACK):  # that of recovery too
            while await value(admin, OURS) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_each_that_is_lost_is_opened_again(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, owner="me", connections=2, lock_timeout_seconds=60)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        former = await journal.open()
        await lost(params, journal, row(0), on=1)
        await journal.connect()
        assert journal.backends[0] == former[0]
        assert journal.backends[1] != former[1]
    await journal.close()


async def test_settle_ends_the_append_in_doubt_and_not_the_one_beside_it(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, owner="me", connections=2, lock_timeout_seconds=60)
    async with await connect(params) as admin, await connect(params) as holder:
        await give_homes(admin, 3)
        first, second, _ = await journal.open()
        async with holder.transaction():
            for shard in (0, 1):
                await holder.execute(HOLD, [shard])
            beside = asyncio.ensure_future(journal.append([row(0)], on=0))
            doubtful = asyncio.ensure_future(journal.append([row(1)], on=1))
            await blocked(admin, first.pid)
            await blocked(admin, second.pid)
            line = journal._appends[1]._connection
            assert line is not None
            cut(line)
            with pytest.raises(JournalUnavailable):
                await doubtful
            assert not await journal.settle([row(1)], on=1)
            await gone(admin, second.pid)
            await blocked(admin, first.pid)
            await journal.append([row(2)], on=1)
            assert not beside.done()
        await beside
        assert await journal.settle([row(0)], on=0)
        assert await events(admin) == [("e0", 1, 1), ("e2", 1, 1)]
        assert journal.backends[0] == first
    await journal.close()


class Noted(Commit):
    __slots__ = ("end",)

    def __init__(self, slot: Resident, rows: Sequence[EventRow]) -> None:
        super().__init__(slot, rows)
        self.end: asyncio.Future[NotCommitted | None] = asyncio.get_running_loop().create_future()

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        self.end.set_result(why)


async def test_an_append_in_doubt_keeps_other_shards_from_nothing(params: dict[str, Any]) -> None:
    """Its server process cannot be ended for a while: until then nothing of its shard is stored."""
    journal = PostgresJournal(params, owner="me", connections=2, lock_timeout_seconds=60)
    writer = JournalWriter(journal, lambda: True)
    slots = [Resident(f"e{shard}", Shard("shop.Cart", shard, 1, Resident)) for shard in (0, 1)]
    commits = [
        Noted(slots[shard], [event_row(1, f"e{shard}", seq, shard=shard)])
        for shard, seq in ((0, 1), (0, 2), (1, 1), (1, 2))
    ]
    async with await connect(params) as admin, await connect(params) as holder:
        await give_homes(admin, 2)
        first, *_ = await journal.open()
        task = asyncio.ensure_future(writer.run())
        async with holder.transaction():
            await holder.execute(HOLD, [0])
            writer.put(commits[0])
            await blocked(admin, first.pid)
            for each in commits[1:3]:
                writer.put(each)
            assert await commits[2].end is None
            assert not commits[0].end.done()
            line = journal._appends[0]._connection
            assert line is not None
            cut(line)
            await gone(admin, first.pid)
            writer.put(commits[3])
            assert await commits[3].end is None
            assert not commits[0].end.done()
        assert [await each.end for each in commits] == [None] * 4
        assert await events(admin) == [("e0", 1, 1), ("e0", 2, 1), ("e1", 1, 1), ("e1", 2, 1)]
        task.cancel()
    await journal.close()


async def test_a_server_without_room_for_all_of_them_says_so(params: dict[str, Any]) -> None:
    """A node that lacks one steps aside: it could not go on if another was in doubt."""
    async with await connect(params) as admin:
        name = "lanes_two_only"
        await admin.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 2 PASSWORD 'x'".encode())
        try:
            journal = PostgresJournal({**params, "user": name, "password": "x"}, owner="me", connections=2)
            with pytest.raises(JournalUnavailable, match="too many connections for role"):
                await journal.connect()
            await journal.close()
        finally:
            await admin.execute(f"DROP ROLE {name}".encode())
