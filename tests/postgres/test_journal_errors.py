"""The server answers appends with errors that say nothing of the rows: a trigger of the user's raises for a moment."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.core.shard import Shard, Slot
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.runtime.journal_writer import Commit, JournalWriter, NotCommitted
from tests.contract.given import event_row
from tests.postgres.writers import Connection, connect, events, give_homes

pytestmark = pytest.mark.asyncio

RAISES = """
CREATE FUNCTION closed_today() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'closed today'; END$$;
CREATE TRIGGER closed_today BEFORE INSERT ON sharding_event
FOR EACH ROW WHEN (NEW.entity = 'bad') EXECUTE FUNCTION closed_today()
"""


@contextlib.asynccontextmanager
async def closed(admin: Connection) -> AsyncIterator[None]:
    """For that long nothing of the entity `bad` is taken."""
    await admin.execute(RAISES)
    try:
        yield
    finally:
        await admin.execute("DROP FUNCTION closed_today CASCADE")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_servers_own_error_is_told_from_a_lost_connection(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        async with closed(admin):
            for rows in ([event_row(1, "bad", 1)], [event_row(1, "a", 1), event_row(1, "bad", 1)]):
                with pytest.raises(JournalUnavailable, match=r"closed today \(P0001\)") as failed:
                    await journal.append(rows)
                assert failed.value.answered
                assert not await journal.settle(rows)
        backend, _ = await journal.open()
        await admin.execute("SELECT pg_terminate_backend(%s, 5000)", [backend.pid])
        with pytest.raises(JournalUnavailable) as failed:
            await journal.append([event_row(1, "a", 1)])
        assert not failed.value.answered
    await journal.close()


async def test_a_trigger_that_raises_for_one_entity_holds_up_that_one_alone(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    writer = JournalWriter(journal, lambda: True)
    shard = Shard("shop.Cart", 0, 1)
    ends: list[tuple[str, NotCommitted | None]] = []

    class Noted(Commit):
        def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
            ends.append((self.slot.id, why))

    task = asyncio.ensure_future(writer.run())
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        async with closed(admin):
            for name in ("a", "bad", "b"):
                writer.put(Noted(Slot(name, shard), [event_row(1, name, 1), event_row(1, name, 2)]))
            await until(lambda: len(ends) == 2)
            assert sorted(ends) == [("a", None), ("b", None)]
            assert writer.appends < 20
        await until(lambda: len(ends) == 3)
        assert ends[-1] == ("bad", None)
        stored = [(name, seq, 1) for name in ("a", "b", "bad") for seq in (1, 2)]
        assert await events(admin) == stored
    task.cancel()
    await journal.close()
