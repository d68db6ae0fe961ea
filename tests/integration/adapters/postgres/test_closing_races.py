"""A shard is closed for a move while a decision about it is under way, and the other way round."""

import asyncio
from typing import Any

import pytest

from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.protocol.records import HomeChange, ShardRow
from tests.integration.adapters.postgres.writers import Connection, blocked, connect
from tests.support.given import CART, with_type

pytestmark = pytest.mark.asyncio

TERM = 1
DECIDE = HomeChange(CART.name, 0, 1, 2, "next", "home")


async def cluster(params: dict[str, Any]) -> PostgresStore:
    """Return a store of a cluster with a shard that is at home, and is being copied."""
    store = PostgresStore(params, lock_timeout_seconds=60, answer_seconds=60)
    assert await with_type(store) == 1
    async with await connect(params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'me')")
    await store.decide(TERM, [HomeChange(CART.name, 0, 0, 1, "last", "home")])
    return store


async def run(connection: Connection, query: str, **params: Any) -> list[tuple[Any, ...]]:
    cursor = await connection.execute(QUERIES[query], {"type_id": 1, "shards": [0], **params})
    return await cursor.fetchall()


async def test_a_decision_that_waits_for_a_closing_gives_no_home(params: dict[str, Any]) -> None:
    """It began before the closing was there, and must not go by its rows of then."""
    store = await cluster(params)
    await store.begin_move(1, [0], "two")
    async with await connect(params) as mover, await connect(params) as watcher:
        async with mover.transaction():
            assert await run(mover, "move_close", seconds=600) == [(0,)]
            decision = asyncio.create_task(store.decide(TERM, [DECIDE]))
            await blocked(watcher, store.backends[0].pid)
        assert await decision == [ShardRow(CART.name, 0, 2, None, "stopped")]
    await store.close()


async def test_a_closing_waits_for_a_decision_under_way(params: dict[str, Any]) -> None:
    """So a home that was decided before is seen by all who look after the closing."""
    store = await cluster(params)
    await store.begin_move(1, [0], "two")
    async with await connect(params) as coordinator, await connect(params) as watcher:
        async with coordinator.transaction():
            await coordinator.execute(
                "SELECT sharding_decide_v1(1, %s, '{0}', '{1}', '{2}', '{next}', '{home}', ARRAY[''])",
                [[CART.name]],
            )
            closing = asyncio.create_task(store.close_shards(1, [0], 600))
            await blocked(watcher, store.backends[0].pid)
        assert await closing == [0]
    assert [row.home for row in await store.shards()] == ["next"]
    await store.close()


async def test_a_resize_that_waits_for_a_move_is_refused(params: dict[str, Any]) -> None:
    store = await cluster(params)
    async with await connect(params) as mover, await connect(params) as watcher:
        async with mover.transaction():
            assert await run(mover, "move_begin", target="two") == [(0,)]
            resize = asyncio.create_task(
                store.resize(CART.name, CART.number_of_shards, 2 * CART.number_of_shards)
            )
            await blocked(watcher, store.backends[0].pid)
        assert not await resize
    await store.close()


async def test_a_move_that_waits_for_a_resize_does_not_begin(params: dict[str, Any]) -> None:
    store = await cluster(params)
    number = CART.number_of_shards
    async with await connect(params) as operator, await connect(params) as watcher:
        async with operator.transaction():
            await operator.execute(
                QUERIES["resize"], {"type": CART.name, "known": number, "wanted": 2 * number, "by": ""}
            )
            move = asyncio.create_task(store.begin_move(1, [0], "two"))
            await blocked(watcher, store.backends[0].pid)
        assert await move == []
    await store.close()
