"""Whatever a forged frame may carry to the journal: it answers, or raises an error of its own, and
others are not concerned.
"""

import asyncio
import itertools
from collections.abc import Awaitable
from typing import Any

import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.ports.journal import (
    Bounds,
    Former,
    JournalUnavailable,
    Mark,
    Outcome,
    RowRefused,
    ShardsFenced,
    Snapshot,
)
from tests.integration.adapters.postgres.writers import connect, give_homes
from tests.support.given import event_row

pytestmark = pytest.mark.asyncio

IDS = ["a", "", "a\0b", "\ud800", "x" * 513, "'; --", "%s"]
COMMAND_IDS = ["known", "", "?", "?n-1:2", "a\0b", "\udfff", "x" * 10_000]
NUMBERS = [0, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1]


async def only_ours(asked: Awaitable[Any]) -> Any:
    try:
        return await asked
    except (RowRefused, ShardsFenced, JournalUnavailable) as error:
        return error


async def test_reads_and_look_ups(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    await journal.append([event_row(1, "a", 1, command_id="known", command="add", reply=b"1")])
    small = Bounds(events=2, rows=4, bytes=100)
    for entity, number in itertools.product(IDS, NUMBERS):
        await only_ours(journal.read_from(1, entity, number))
        await only_ours(journal.read_snapshot(1, entity, number))
        await only_ours(journal.forget_states(1, [Former(entity, 0, number, number, number)], 3600.0))
        await only_ours(journal.trim(1, entity, number, 1, 3600.0))
        await only_ours(journal.save_snapshots([Snapshot(1, entity, number, 0, number, b"{}")]))
        await only_ours(journal.remember([Mark(1, number, number, entity, True)]))
    for bounds in (Bounds(), small):
        assert "a" in await journal.read(1, IDS, bounds)
        assert "a" in await journal.read_last(1, IDS, bounds)
    await journal.close()


async def test_a_look_up_spoils_no_other_one(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    await journal.append([event_row(1, "a", 1, command_id="known", command="add", reply=b"1")])
    hostile = [
        journal.outcome(1, entity, command_id, age)
        for entity, command_id, age in itertools.product(IDS, COMMAND_IDS, NUMBERS)
    ]
    good = [journal.outcome(1, "a", "known", 60_000) for _ in range(5)]
    found = await asyncio.gather(*hostile, *good)
    assert found[-5:] == [Outcome(1, "add", b"1", False)] * 5
    await journal.close()


async def test_rows_that_a_table_of_the_users_refers_to_are_refused_and_stay(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await journal.append([event_row(1, "a", 1), event_row(1, "a", 2), event_row(1, "a", 3)])
        await journal.save_snapshots([Snapshot(1, "a", 2, 0, 1, b"{}")])
        await admin.execute(
            "CREATE TABLE audit (type_id integer, entity text, seq bigint, FOREIGN KEY (type_id, entity, seq)"
            " REFERENCES sharding_event (type_id, entity, seq))"
        )
        try:
            await admin.execute("INSERT INTO audit VALUES (1, 'a', 1)")
            with pytest.raises(RowRefused, match="audit"):
                await journal.trim(1, "a", 3, 1, 0.0)
            with pytest.raises(RowRefused, match="audit"):
                await journal.forget_states(1, [Former("a", 0, 1, 0, 3)], 0.0)
            assert len((await journal.read_from(1, "a", 0)).events) == 3
        finally:
            await admin.execute("DROP TABLE audit")
    await journal.close()
