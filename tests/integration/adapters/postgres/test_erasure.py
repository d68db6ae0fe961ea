"""What `sharding_erase` stands on: it takes one entity's all, fences the past, and leaves its home
alone while it lives.
"""

import asyncio
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from sharding_app.adapters.postgres import deletion
from sharding_app.adapters.postgres.deletion import NodesAlive, count_entity, erase_entity
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.ports.journal import Erasure, ShardsFenced, Snapshot
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.records import HomeChange, ShardRow
from tests.integration.adapters.postgres.writers import RAISE, connect, value
from tests.support.given import CART, event_row, member, message

pytestmark = pytest.mark.asyncio

ALL = Erasure(events=2, snapshots=1)


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


async def erased(params: dict[str, Any], entity: str = "alice", **options: Any) -> Erasure:
    return await asyncio.to_thread(erase_entity, params, CART.name, entity, "an operator", **options)


async def test_one_entity_is_erased_and_nothing_else(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    assert await asyncio.to_thread(count_entity, params, CART.name, "alice") == ALL
    assert len((await journal.read_from(number, "alice", 0)).events) == 2
    assert await erased(params) == ALL
    found = await journal.read(number, ["alice", "bob"])
    assert (found["alice"].events, found["alice"].snapshot) == ([], None)
    assert [each.seq for each in found["bob"].events] == [1, 2]
    assert await erased(params) == Erasure()
    await store.close()
    await journal.close()


async def test_a_count_waits_for_no_lock_and_takes_none(params: dict[str, Any]) -> None:
    store, journal, _ = await ran(params)
    async with await connect(params) as holder, holder.transaction():
        await holder.execute("SELECT FROM sharding_shard FOR UPDATE")
        assert await asyncio.to_thread(count_entity, params, CART.name, "alice") == ALL
    async with await connect(params) as admin:
        assert await value(admin, "SELECT max(epoch) FROM sharding_shard") == 1
    await store.close()
    await journal.close()


@pytest.mark.parametrize("extractor", ["hash:crc32-1", "of its own"])
async def test_an_entity_that_has_left_nothing_but_messages_is_erased(
    params: dict[str, Any], extractor: str
) -> None:
    """Its id leads to a shard by its hash, or by an extractor that is not known here."""
    config = replace(CART, name="shop.Order", extractor=extractor)
    store, journal, _ = await ran(params)
    numbers, _ = await store.register_types([config])
    shard = shard_of("alice", config.number_of_shards)
    await store.decide(1, [HomeChange(config.name, shard, 0, 1, "a", "home")])
    rows = [message(numbers[config.name], each, each, shard=shard) for each in ("alice", "bob")]
    await journal.stage([*rows, message(numbers[config.name], "timer", "alice", shard=shard, key="k")])
    assert await asyncio.to_thread(count_entity, params, config.name, "alice") == Erasure(messages=2)
    assert await asyncio.to_thread(erase_entity, params, config.name, "alice", "me") == Erasure(messages=2)
    async with await connect(params) as admin:
        assert await value(admin, "SELECT array_agg(entity) FROM sharding_message") == ["bob"]
    await store.close()
    await journal.close()


async def test_a_message_that_was_stored_by_a_former_number_of_shards_is_erased(
    params: dict[str, Any],
) -> None:
    """Its transaction knew the number of before the resize, so it stands in a shard of others."""
    config = replace(CART, name="shop.Order", extractor="hash:crc32-1")
    store, journal, _ = await ran(params)
    numbers, _ = await store.register_types([config])
    former, present = config.number_of_shards, 3 * config.number_of_shards
    await store.resize(config.name, former, present)
    (before,) = [each.numbering for each in await store.types() if each.name == config.name]
    await store.renumber(1, config.name, before, before.groups, 1)
    shard = shard_of("bob", former)
    assert shard != shard_of("bob", present)
    await store.decide(1, [HomeChange(config.name, shard, 0, 1, "a", "home")])
    rows = [message(numbers[config.name], each, each, shard=shard, epoch=None) for each in ("bob", "alice")]
    await journal.stage(rows)
    assert await asyncio.to_thread(count_entity, params, config.name, "bob") == Erasure(messages=1)
    assert await asyncio.to_thread(erase_entity, params, config.name, "bob", "me") == Erasure(messages=1)
    async with await connect(params) as admin:
        assert await value(admin, "SELECT array_agg(entity) FROM sharding_message") == ["alice"]
    await store.close()
    await journal.close()


async def test_a_process_that_still_holds_it_in_memory_is_fenced(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    await erased(params)
    assert await store.shards([CART.name]) == [ShardRow(CART.name, 0, 2, None, "stopped")]
    with pytest.raises(ShardsFenced):
        await journal.append([event_row(number, "alice", 3)])
    await store.close()
    await journal.close()


async def test_while_its_home_lives_it_is_left_alone_and_nothing_is_locked(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    session = PostgresLifelineSession(params, cluster_id="c", ttl_seconds=30)
    await session.open()
    await session.lock(12)
    async with await connect(params) as holder, holder.transaction():
        await holder.execute("SELECT FROM sharding_shard FOR UPDATE")
        with pytest.raises(NodesAlive, match="node-a"):
            await erased(params)
    assert len((await journal.read_from(number, "alice", 0)).events) == 2
    await session.close()
    await store.close()
    await journal.close()


async def test_it_stops_where_the_entity_has_got_another_shard(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home of that one may hold it in memory. The command stood still before its fence."""
    store, journal, number = await ran(params)
    async with await connect(params) as admin:
        await admin.execute(
            "UPDATE sharding_type SET extractor = 'hash:crc32-1', number_of_shards = 2, shards_revision = 0"
        )
        await admin.execute("UPDATE sharding_shard SET home = NULL, step = 'stopped'")

    def stands_still(*args: Any) -> list[str]:
        with psycopg.connect(**params, autocommit=True) as coordinator:
            coordinator.execute("UPDATE sharding_type SET number_of_shards = 2000, shards_revision = 2")
        return []

    monkeypatch.setattr(deletion, "_journals_of", stands_still)
    with pytest.raises(NodesAlive):
        await erased(params)
    assert len((await journal.read_from(number, "alice", 0)).events) == 2
    await store.close()
    await journal.close()


async def test_it_goes_in_pieces_and_stops_when_the_shard_has_a_home_again(params: dict[str, Any]) -> None:
    store, journal, number = await ran(params)
    async with await connect(params) as admin:
        raised = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def give_a_home() -> None:
            await admin.execute(RAISE.replace("type_id = 1", f"type_id = {number}"), [0])
            raised.set()

        def progress(_: Erasure) -> None:
            asyncio.run_coroutine_threadsafe(give_a_home(), loop).result(10)

        with pytest.raises(NodesAlive, match="just joined"):
            await erased(params, progress=progress, events_at_once=1)
        assert raised.is_set()
        assert [each.seq for each in (await journal.read_from(number, "alice", 0)).events] == [1], "no gap"
        assert await journal.read_snapshot(number, "alice", before=1000) is None, "it would bring all back"
        notes = "SELECT array_agg(action || ' ' || detail ORDER BY id) FROM sharding_decision"
        assert await value(admin, notes) == ["entity_erasing by an operator"]
        assert await erased(params, events_at_once=1) == Erasure(events=1)
    await store.close()
    await journal.close()


async def test_it_stops_when_any_of_the_entitys_shards_has_a_home_again(params: dict[str, Any]) -> None:
    """An extractor that has changed leaves rows of one entity in two shards: it may begin to live
    in either.
    """
    store, journal, number = await ran(params)
    await store.decide(1, [HomeChange(CART.name, 1, 0, 1, "a", "home")])
    await journal.append([event_row(number, "alice", 3, shard=1), event_row(number, "alice", 4, shard=1)])
    async with await connect(params) as admin:
        loop = asyncio.get_running_loop()

        async def give_a_home() -> None:
            await admin.execute(RAISE.replace("type_id = 1", f"type_id = {number}"), [1])

        def progress(_: Erasure) -> None:
            asyncio.run_coroutine_threadsafe(give_a_home(), loop).result(10)

        with pytest.raises(NodesAlive, match="just joined"):
            await erased(params, progress=progress, events_at_once=1)
    assert [each.seq for each in (await journal.read_from(number, "alice", 0)).events] == [1, 2, 3]
    await store.close()
    await journal.close()


async def test_the_timeline_notes_who_erased_something_but_not_of_whom(params: dict[str, Any]) -> None:
    store, journal, _ = await ran(params)
    await erased(params, events_at_once=1)
    async with await connect(params) as admin:
        cursor = await admin.execute("SELECT action, subject, detail FROM sharding_decision ORDER BY id")
        noted = await cursor.fetchall()
    assert noted == [
        ("entity_erasing", CART.name, "by an operator"),
        ("entity_erased", CART.name, "2 events, 1 snapshots, by an operator"),
    ]
    await store.close()
    await journal.close()
