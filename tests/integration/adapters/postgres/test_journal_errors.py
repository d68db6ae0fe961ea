"""The server answers appends with errors that say nothing of the rows: a trigger of the user's
raises for a moment.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import EventRow, JournalUnavailable
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal.commits import Commit, NotCommitted, Resident
from sharding_app.runtime.journal.writer import JournalWriter
from tests.integration.adapters.postgres.writers import Connection, connect, events, give_homes, lost
from tests.support.given import event_row
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

RAISES = """
CREATE FUNCTION closed_today() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN {does}; RETURN NEW; END$$;
CREATE TRIGGER closed_today BEFORE INSERT ON sharding_event
FOR EACH ROW WHEN ({to}) EXECUTE FUNCTION closed_today()
"""


@contextlib.asynccontextmanager
async def closed(
    admin: Connection,
    does: str = "RAISE EXCEPTION 'closed today'",
    to: str = "NEW.entity = 'bad'",
) -> AsyncIterator[None]:
    """For that long nothing of the entity `bad` is taken."""
    await admin.execute(RAISES.format(does=does, to=to).encode())
    try:
        yield
    finally:
        await admin.execute("DROP FUNCTION closed_today CASCADE")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20 * SLACK):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_servers_own_error_is_told_from_a_lost_connection(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, lock_timeout_seconds=60)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        async with closed(admin):
            for rows in ([event_row(1, "bad", 1)], [event_row(1, "a", 1), event_row(1, "bad", 1)]):
                with pytest.raises(JournalUnavailable, match=r"closed today \(P0001\)") as failed:
                    await journal.append(rows)
                assert failed.value.answered
                assert not await journal.settle(rows)
        assert not (await lost(params, journal, event_row(1, "a", 1))).answered
    await journal.close()


class Noted(Commit):
    def __init__(
        self, ends: list[tuple[str, NotCommitted | None]], slot: Resident, *seqs: int, type_id: int = 1
    ) -> None:
        super().__init__(slot, [event_row(type_id, slot.id, seq) for seq in seqs])
        self._ends = ends

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        self._ends.append((self.slot.id, why))


class Counted(PostgresJournal):
    """Counts the appends that failed, or of these the ones with an event of one entity."""

    failed = 0
    counted = ""

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        try:
            return await super().append(rows)
        except JournalUnavailable:
            self.failed += not self.counted or any(each.entity == self.counted for each in rows)
            raise


ANSWERS = {
    "a trigger that raises": "RAISE EXCEPTION 'closed today'",
    "a deadlock": "RAISE EXCEPTION USING ERRCODE = '40P01'",
    "a serialization failure": "RAISE EXCEPTION USING ERRCODE = '40001'",
    "a full disk": "RAISE EXCEPTION USING ERRCODE = '53100'",
    "too little memory": "RAISE EXCEPTION USING ERRCODE = '53200'",
    "an internal error": "RAISE EXCEPTION USING ERRCODE = 'XX000'",
    "a server that only reads": "RAISE EXCEPTION USING ERRCODE = '25006'",
    "a missing function": "PERFORM not_there()",
    "a lock that is none of a shard": "RAISE EXCEPTION USING ERRCODE = '55P03'",
}


@pytest.mark.parametrize("does", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_that_is_about_one_entity_holds_up_that_one_alone(
    params: dict[str, Any], does: str
) -> None:
    """Nothing of it is lost: it is stored when the server takes it."""
    journal = PostgresJournal(params)
    writer = JournalWriter(journal, lambda: True)
    shard = Shard("shop.Cart", 0, 1, Resident)
    ends: list[tuple[str, NotCommitted | None]] = []
    task = asyncio.ensure_future(writer.run())
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        async with closed(admin, does):
            for name in ("a", "bad", "b"):
                writer.put(Noted(ends, Resident(name, shard), 1, 2))
            await until(lambda: len(ends) == 2)
            assert sorted(ends) == [("a", None), ("b", None)]
            assert writer.figures.appends < 20
        await until(lambda: len(ends) == 3)
        assert ends[-1] == ("bad", None)
        stored = [(name, seq, 1) for name in ("a", "b", "bad") for seq in (1, 2)]
        assert await events(admin) == stored
    task.cancel()
    await journal.close()


async def test_a_trigger_that_raises_for_one_type_does_not_slow_the_others_down(
    params: dict[str, Any],
) -> None:
    """Once it is known that some are to blame, a batch that fails is tried in parts at once."""
    journal = Counted(params)
    writer = JournalWriter(journal, lambda: True)
    carts, clubs = Shard("shop.Cart", 0, 1, Resident), Shard("shop.Club", 0, 1, Resident)
    ends: list[tuple[str, NotCommitted | None]] = []
    task = asyncio.ensure_future(writer.run())
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute(
            "INSERT INTO sharding_shard SELECT 2, shard, epoch, home, step FROM sharding_shard"
        )
        async with closed(admin, to="NEW.type_id = 2"):
            for number in range(20):
                journal.failed, journal.counted = 0, f"cart {number}"
                writer.put(Noted(ends, Resident(f"club {number}", clubs), 1, type_id=2))
                writer.put(Noted(ends, Resident(f"cart {number}", carts), 1))
                await until(lambda number=number: len(ends) == number + 1)  # type: ignore[misc]
                if number:
                    assert journal.failed <= 1, "the two together, and no other append with the cart"
            assert {name.split()[0] for name, _ in ends} == {"cart"}
        await until(lambda: len(ends) == 40)
        assert all(why is None for _, why in ends)
    task.cancel()
    await journal.close()


async def test_a_statement_that_is_too_slow_for_one_entity_has_a_small_part_of_the_time(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharding_app.runtime.journal.appender.SLOW_SECONDS", 0.2 * SLACK)
    journal = Counted(params, answer_seconds=0.3 * SLACK)
    writer = JournalWriter(journal, lambda: True)
    shard = Shard("shop.Cart", 0, 1, Resident)
    ends: list[tuple[str, NotCommitted | None]] = []
    rests: list[float] = []
    keep = writer._backlog.stuck.keep

    def noted(commits: list[Commit], seconds: float = 0.0) -> None:
        rests.append(seconds)
        keep(commits, seconds)

    monkeypatch.setattr(writer._backlog.stuck, "keep", noted)
    task = asyncio.ensure_future(writer.run())
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        async with closed(admin, "PERFORM pg_sleep(60)"):
            for name in ("a", "bad", "b", "c", "d"):
                writer.put(Noted(ends, Resident(name, shard), 1))
            await until(lambda: len(ends) == 4)
            assert journal.failed == 2, "all together once, and the slow one by itself"
            await until(lambda: len(rests) == 2)
            assert journal.failed == 3, "once more, to see whether the server takes the others alone"
            assert rests[0] == 0.0, "all others might have failed too"
            assert rests[1] >= 3.0, "it rests ten times as long as its attempt has lasted"
        await until(lambda: len(ends) == 5)
        assert ends[-1] == ("bad", None)
    task.cancel()
    await journal.close()


async def test_a_server_that_reads_only_for_a_while_loses_nothing(params: dict[str, Any]) -> None:
    """As after a demotion, or by an operator's ALTER SYSTEM: every append fails, and goes on by
    itself afterwards.
    """
    journal = PostgresJournal(params)
    writer = JournalWriter(journal, lambda: True)
    shard = Shard("shop.Cart", 0, 1, Resident)
    ends: list[tuple[str, NotCommitted | None]] = []
    task = asyncio.ensure_future(writer.run())
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        async with closed(admin, "RAISE EXCEPTION USING ERRCODE = '25006'", to="true"):
            for name in ("a", "b", "c"):
                writer.put(Noted(ends, Resident(name, shard), 1))
            await until(lambda: writer.figures.appends > 8)
            assert not ends
        await until(lambda: len(ends) == 3)
        assert all(why is None for _, why in ends)
        assert await events(admin) == [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]
    task.cancel()
    await journal.close()
