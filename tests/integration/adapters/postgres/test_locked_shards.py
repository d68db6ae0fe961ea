"""Sessions that hold rows of `sharding_shard`: they hold up the commits of those shards, and no
others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable, ShardsLocked
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal.commits import Commit, NotCommitted, Resident
from sharding_app.runtime.journal.writer import JournalWriter
from tests.integration.adapters.postgres.writers import connect, events, give_homes
from tests.support.given import event_row
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

Ends = list[tuple[str, int, NotCommitted | None]]


class Noted(Commit):
    def __init__(self, ends: Ends, slot: Resident, seq: int) -> None:
        super().__init__(slot, [event_row(1, slot.id, seq, shard=slot.shard.number)])
        self._ends = ends

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        self._ends.append((self.slot.id, self.rows[0].seq, why))


class Watched(PostgresJournal):
    """Notes what became of each append."""

    def __init__(self, params: dict[str, Any]) -> None:
        super().__init__(params, owner="me")
        self.outcomes: list[str] = []

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        try:
            at = await super().append(rows)
        except Exception as error:
            self.outcomes.append(type(error).__name__)
            raise
        self.outcomes.append("done")
        return at


@pytest_asyncio.fixture
async def journal(params: dict[str, Any]) -> AsyncIterator[Watched]:
    journal = Watched(params)
    async with await connect(params) as admin:
        await give_homes(admin, 3)
    await journal.open()
    yield journal
    await journal.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30 * SLACK):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT FROM sharding_shard WHERE shard = 0 FOR UPDATE",
        "SELECT FROM sharding_shard WHERE shard = 0 FOR NO KEY UPDATE",
        "UPDATE sharding_shard SET updated_at = now() WHERE shard = 0",
        "DELETE FROM sharding_shard WHERE shard = 0",
    ],
)
async def test_commits_of_a_locked_shard_wait_beside_all_others(
    params: dict[str, Any], journal: Watched, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    writer = JournalWriter(journal, lambda: True)
    ends: Ends = []
    locked, free = Shard("shop.Cart", 0, 1, Resident), Shard("shop.Cart", 1, 1, Resident)
    held = [Resident(f"held {number}", locked) for number in range(50)]
    others = [Resident(f"free {number}", free) for number in range(50)]
    task = asyncio.ensure_future(writer.run())
    async with (
        await connect(params, application_name="a forgotten shell") as holder,
        await connect(params) as admin,
    ):
        with caplog.at_level(logging.WARNING, "sharding.journal"):
            async with holder.transaction(force_rollback=True):
                await holder.execute(statement.encode())
                for one, other in zip(held, others, strict=True):
                    writer.put(Noted(ends, one, 1))
                    writer.put(Noted(ends, other, 1))
                await until(lambda: len(ends) == 50)
                for seq in range(2, 12):
                    for one, other in zip(held, others, strict=True):
                        writer.put(Noted(ends, one, seq))
                        writer.put(Noted(ends, other, seq))
                    await until(lambda seq=seq: len(ends) == 50 * seq)  # type: ignore[misc]
                assert {end[0] for end in ends} == {slot.id for slot in others}
                assert journal.outcomes.count("ShardsLocked") == 1, "no append waits for that row again"
                assert set(journal.outcomes) == {"ShardsLocked", "done"}
                assert writer.waiting == 550
            await until(lambda: len(ends) == 1100)
        assert all(why is None for _, _, why in ends)
        assert [seq for name, seq, _ in ends if name == "held 7"] == list(range(1, 12)), "in their order"
        assert len(await events(admin)) == 1100
        (said,) = (each for each in caplog.records if each.__dict__["action"] == "shard_locked")
        assert f"server process {holder.info.backend_pid} (a forgotten shell)" in said.getMessage()
        assert "shop.Cart/0" in said.getMessage()
    task.cancel()


async def test_a_shard_that_is_shared_is_not_locked(params: dict[str, Any], journal: Watched) -> None:
    async with await connect(params) as holder, await connect(params) as other, holder.transaction():
        await holder.execute("SELECT FROM sharding_shard FOR SHARE")
        async with other.transaction():
            await other.execute("SELECT FROM sharding_shard FOR SHARE")
            assert await journal.locked([(1, 0), (1, 1)]) == {}
            await journal.append([event_row(1, "a", 1)])


async def test_a_locked_shard_is_named_among_others(params: dict[str, Any], journal: Watched) -> None:
    async with await connect(params, application_name="psql") as holder, holder.transaction():
        await holder.execute("SELECT FROM sharding_shard WHERE shard = 2 FOR UPDATE")
        rows = [event_row(1, str(shard), 1, shard=shard) for shard in range(3)]
        with pytest.raises(ShardsLocked) as locked:
            await journal.append(rows)
        assert locked.value.answered
        assert set(locked.value.holders) == {(1, 2)}
        assert "(psql), idle in transaction for" in locked.value.holders[1, 2]
        assert await journal.locked([(1, 99)]) == {}, "a row that is not there is not locked"


async def test_a_table_that_is_locked_is_no_locked_shard(params: dict[str, Any], journal: Watched) -> None:
    async with await connect(params) as holder, holder.transaction():
        await holder.execute("LOCK TABLE sharding_shard")
        with pytest.raises(JournalUnavailable, match="55P03") as waited:
            await journal.append([event_row(1, "a", 1)])
        assert not isinstance(waited.value, ShardsLocked)
    await journal.append([event_row(1, "a", 1)])


async def test_what_was_thrown_away_meanwhile_does_not_wait_for_the_row(
    params: dict[str, Any], journal: Watched
) -> None:
    writer = JournalWriter(journal, lambda: True)
    ends: Ends = []
    slot = Resident("a", Shard("shop.Cart", 0, 1, Resident))
    task = asyncio.ensure_future(writer.run())
    async with await connect(params) as holder, holder.transaction():
        await holder.execute("SELECT FROM sharding_shard FOR UPDATE")
        writer.put(Noted(ends, slot, 1))
        await until(lambda: writer._backlog.locked.shards == 1)
        slot.generation += 1
        await until(lambda: bool(ends))
        assert ends == [("a", 1, NotCommitted.SUPERSEDED)]
    task.cancel()
