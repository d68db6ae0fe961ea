"""What `sharding_erase` stands on: it takes one entity's all, fences the past, and leaves its home alone while it lives."""

import asyncio
from typing import Any

import pytest

from sharding_app.adapters.postgres.erasure import Erased, HomeAlive, erase_entity
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.core.records import HomeChange, ShardRow
from sharding_app.ports.journal import ShardsFenced, Snapshot
from tests.contract.given import CART, event_row, member
from tests.postgres.writers import connect

pytestmark = pytest.mark.asyncio


async def ran(params: dict[str, Any]) -> tuple[PostgresStore, PostgresJournal, int]:
    """Two entities with a history, in one shard whose home is `a`."""
    store, journal = PostgresStore(params), PostgresJournal(params)
    numbers, _ = await store.register_types([CART])
    number = numbers[CART.name]
    await store.join(member("a"), (11, 12))
    async with await connect(params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'a')")
    await store.decide(1, [HomeChange(CART.name, 0, 0, 1, "a", "home")])
    rows = [event_row(number, entity, seq) for entity in ("alice", "bob") for seq in (1, 2)]
    await journal.append(rows)
    await journal.save_snapshots([Snapshot(number, "alice", 2, 0, 1, b"{}")])
    return store, journal, number


async def test_one_entity_is_erased_and_nothing_else(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    expected = Erased(events=2, snapshots=1)
    assert await asyncio.to_thread(erase_entity, params, CART.name, "alice", dry_run=True) == expected
    assert len(await journal.read_from(number, "alice", 0)) == 2
    assert await asyncio.to_thread(erase_entity, params, CART.name, "alice") == expected
    found = await journal.read(number, ["alice", "bob"])
    assert (found["alice"].events, found["alice"].snapshots) == ([], [])
    assert [each.seq for each in found["bob"].events] == [1, 2]
    assert not (await asyncio.to_thread(erase_entity, params, CART.name, "alice")).anything
    await store.close()
    await journal.close()


async def test_who_still_holds_it_in_memory_is_fenced(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    await asyncio.to_thread(erase_entity, params, CART.name, "alice")
    assert await store.shards([CART.name]) == [ShardRow(CART.name, 0, 2, None, "stopped")]
    with pytest.raises(ShardsFenced):
        await journal.append([event_row(number, "alice", 3)])
    await store.close()
    await journal.close()


async def test_nothing_is_erased_while_its_home_lives(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    session = PostgresLifelineSession(params, cluster_id="c", ttl_seconds=30)
    await session.open()
    await session.lock(12)
    with pytest.raises(HomeAlive, match="node-a"):
        await asyncio.to_thread(erase_entity, params, CART.name, "alice")
    assert len(await journal.read_from(number, "alice", 0)) == 2
    await session.close()
    await store.close()
    await journal.close()


async def test_the_timeline_notes_that_something_was_erased_but_not_of_whom(params: dict[str, Any]) -> None:
    store, journal, _ = await ran(params)
    await asyncio.to_thread(erase_entity, params, CART.name, "alice")
    async with await connect(params) as admin:
        cursor = await admin.execute("SELECT action, subject, detail FROM sharding_decision")
        noted = await cursor.fetchall()
    assert noted == [("entity_erased", CART.name, "2 events, 1 snapshots")]
    await store.close()
    await journal.close()
