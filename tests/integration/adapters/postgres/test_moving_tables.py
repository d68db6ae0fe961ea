"""The tables of moves in a source: commands that move shards of two types make and drop them at
once, while homes take shards there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres import moving
from tests.integration.adapters.postgres.writers import Connection, blocked, connect, value

pytestmark = pytest.mark.asyncio

TABLE = "SELECT to_regclass('sharding_moving_message') IS NOT NULL"


async def make(params: dict[str, Any]) -> None:
    with psycopg.connect(**params) as connection:
        moving._make_tables(connection)


async def behind(
    watcher: Connection, first: psycopg.Connection[Any], second: psycopg.Connection[Any], work: Any
) -> None:
    """Do it in the second session, which waits for the first one, and end that then."""
    task = asyncio.create_task(asyncio.to_thread(work))
    await blocked(watcher, second.info.backend_pid)
    first.commit()
    await task
    second.commit()


async def test_two_commands_make_the_tables_at_once(params: dict[str, Any]) -> None:
    async with await connect(params) as watcher:
        with psycopg.connect(**params) as first, psycopg.connect(**params) as second:
            moving._make_tables(first)
            await behind(watcher, first, second, lambda: moving._make_tables(second))
        assert await value(watcher, TABLE)


async def test_a_command_needs_the_tables_that_another_one_drops(params: dict[str, Any]) -> None:
    """It lets a journal say that shards have left it, while the move of another type ends."""
    await make(params)

    def leaves() -> None:
        moving._make_tables(second)
        second.execute("SELECT FROM sharding_moving_message")

    async with await connect(params) as watcher:
        with psycopg.connect(**params) as first, psycopg.connect(**params) as second:
            moving._unwatch(first, 1)
            await behind(watcher, first, second, leaves)
        assert await value(watcher, TABLE)


async def test_a_home_takes_shards_while_the_tables_are_dropped(params: dict[str, Any]) -> None:
    await make(params)
    async with await connect(params) as watcher:
        with psycopg.connect(**params) as first, psycopg.connect(**params) as second:
            moving._unwatch(first, 1)
            take = "SELECT taken FROM sharding_take_v1(1, 'shop.Cart', 8, 0, 0, 0, '{3}', '{5}', 'home')"
            await behind(watcher, first, second, lambda: second.execute(take))
        assert not await value(watcher, TABLE)
        assert await value(watcher, "SELECT count(*) FROM sharding_shard") == 1


async def test_messages_that_are_taken_out_are_found_by_their_ids(params: dict[str, Any]) -> None:
    """Homes of all journals ask for a thousand ids at once."""
    await make(params)
    async with await connect(params) as watcher:
        keys = "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'sharding_moving_message'::regclass"
        assert str(await value(watcher, keys)).endswith("(id)")
