"""The fence: no writer gets a row through at a stale epoch, in whatever way and at whatever moment
(promise 1).
"""

import asyncio
import random
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.appending import COPY_EVENTS, TYPES
from tests.integration.adapters.postgres.writers import (
    INSERT,
    RAISE,
    blocked,
    connect,
    events,
    give_homes,
    value,
)
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

FENCED = "SH001"

WAYS = {
    "insert": "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}')",
    "select": "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " SELECT 1, 'a', n, 0, 1, 'E', 1, '{}' FROM generate_series(1, 5) n",
    "with": "WITH written AS (INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}') RETURNING 1) SELECT * FROM written",
    "ignoring conflicts": "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}') ON CONFLICT DO NOTHING",
    "procedure": "DO $$BEGIN INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
    " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}'); END$$",
    "snapshot": "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
    " VALUES (1, 'a', 1, 0, 1, '{}')",
    "remembered": "INSERT INTO sharding_remembered (type_id, shard, entity, epoch) VALUES (1, 0, 'a', 1)",
    "taken": "INSERT INTO sharding_taken (id, type_id, shard, entity, epoch, journal) VALUES ('m', 1, 0, 'a', 1, 'b')",
}


@pytest.mark.parametrize("way", sorted(WAYS))
async def test_every_way_of_writing_is_fenced(params: dict[str, Any], way: str) -> None:
    async with await connect(params) as writer:
        await give_homes(writer, 1)
        await writer.execute(RAISE, [0])
        with pytest.raises(psycopg.Error) as refused:
            await writer.execute(WAYS[way].encode())
        assert refused.value.sqlstate == FENCED
        assert refused.value.diag.message_detail == "[[1, 0]]"
        await writer.execute("UPDATE sharding_shard SET epoch = 1")
        await writer.execute(WAYS[way].encode())


async def test_an_update_at_a_stale_epoch_is_fenced(params: dict[str, Any]) -> None:
    upsert = (
        "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state) VALUES (1, 'a', 1, 0, %s, '{\"n\": 1}')"
        " ON CONFLICT (type_id, entity, seq) DO UPDATE SET epoch = EXCLUDED.epoch, state = json_build_object("
        "'n', (sharding_snapshot.state->>'n')::integer + 1)"
    )
    async with await connect(params) as writer:
        await give_homes(writer, 1)
        await writer.execute(upsert, [1])
        await writer.execute(upsert, [1])
        await writer.execute(RAISE, [0])
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await writer.execute(upsert, [1])
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await writer.execute("UPDATE sharding_snapshot SET state = '{}'")
        await writer.execute(upsert, [2])
        assert await value(writer, "SELECT (state->>'n')::integer FROM sharding_snapshot") == 3


async def test_no_other_table_can_stand_in_for_the_shards(params: dict[str, Any]) -> None:
    async with await connect(params) as writer:
        await give_homes(writer, 1)
        await writer.execute(RAISE, [0])
        await writer.execute(
            "CREATE TEMP TABLE sharding_shard (LIKE public.sharding_shard INCLUDING DEFAULTS)"
        )
        await writer.execute("INSERT INTO sharding_shard VALUES (1, 0, 1, 'me', 'home', now())")
        await writer.execute("SET search_path = pg_temp, public")
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await writer.execute(INSERT, ["a", 1, 0, 1])


async def test_an_epoch_that_is_being_raised_is_waited_for(params: dict[str, Any]) -> None:
    async with await connect(params) as writer, await connect(params) as coordinator:
        await give_homes(coordinator, 2)
        async with coordinator.transaction():
            await coordinator.execute(RAISE, [0])
            write = asyncio.create_task(writer.execute(INSERT, ["a", 1, 0, 1]))
            await blocked(coordinator, writer.info.backend_pid)
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await write
        assert await events(coordinator) == []


async def test_an_epoch_that_is_not_raised_after_all_lets_the_writer_through(params: dict[str, Any]) -> None:
    async with await connect(params) as writer, await connect(params) as coordinator:
        await give_homes(coordinator, 1)
        async with coordinator.transaction(force_rollback=True):
            await coordinator.execute(RAISE, [0])
            write = asyncio.create_task(writer.execute(INSERT, ["a", 1, 0, 1]))
            await blocked(coordinator, writer.info.backend_pid)
        await write
        assert await events(coordinator) == [("a", 1, 1)]


async def test_who_passed_the_fence_commits_before_the_epoch_is_raised(params: dict[str, Any]) -> None:
    async with (
        await connect(params) as writer,
        await connect(params) as coordinator,
        await connect(params) as watcher,
    ):
        await give_homes(coordinator, 1)
        async with writer.transaction():
            await writer.execute(INSERT, ["a", 1, 0, 1])
            raising = asyncio.create_task(coordinator.execute(RAISE, [0]))
            await blocked(watcher, coordinator.info.backend_pid)
            await writer.execute(INSERT, ["a", 2, 0, 1])
        await raising
        assert await events(watcher) == [("a", 1, 1), ("a", 2, 1)]
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await writer.execute(INSERT, ["a", 3, 0, 1])


async def test_a_writer_frozen_in_the_middle_of_a_copy_is_late(params: dict[str, Any]) -> None:
    async with await connect(params) as writer, await connect(params) as coordinator:
        await give_homes(coordinator, 1)

        async def copy_slowly() -> None:
            async with writer.cursor().copy(COPY_EVENTS) as copy:
                copy.set_types(TYPES)
                await copy.write_row([1, "a", 1, 0, 1, "E", 1, b"{}", None, None, None, False])
                # No lock is held yet: the coordinator does not wait for a frozen client.
                await asyncio.wait_for(coordinator.execute(RAISE, [0]), 5 * SLACK)

        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await copy_slowly()
        assert await events(coordinator) == []


@pytest.mark.parametrize(
    "level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
)
async def test_an_old_view_of_the_database_does_not_help(
    params: dict[str, Any], level: psycopg.IsolationLevel
) -> None:
    async with await connect(params) as writer, await connect(params) as coordinator:
        await give_homes(coordinator, 1)
        await writer.set_isolation_level(level)

        async def write_by_an_old_view() -> None:
            async with writer.transaction():
                assert await value(writer, "SELECT epoch FROM sharding_shard") == 1
                await coordinator.execute(RAISE, [0])
                await writer.execute(INSERT, ["a", 1, 0, 1])

        with pytest.raises(psycopg.errors.SerializationFailure):
            await write_by_an_old_view()
        assert await events(coordinator) == []


async def test_one_stale_shard_among_many_fails_the_statement(params: dict[str, Any]) -> None:
    async with await connect(params) as writer:
        await give_homes(writer, 20)
        await writer.execute(RAISE, [13])
        await writer.execute(RAISE, [7])
        with pytest.raises(psycopg.Error) as refused:
            await writer.execute(
                "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
                " SELECT 1, 'e' || s, 1, s, 1, 'E', 1, '{}' FROM generate_series(0, 19) s"
            )
        assert refused.value.diag.message_detail == "[[1, 7], [1, 13]]"
        assert await events(writer) == []


async def test_a_claim_ahead_of_the_table_that_comes_true_meanwhile_is_still_a_fenced_write(
    params: dict[str, Any],
) -> None:
    """A node may know an epoch that a promotion has lost until the table reaches it again: no shard
    is named.
    """
    async with (
        await connect(params) as writer,
        await connect(params) as coordinator,
        await connect(params) as holder,
    ):
        await give_homes(coordinator, 2)
        async with holder.transaction():
            await holder.execute("SELECT FROM sharding_shard WHERE shard = 0 FOR UPDATE")
            write = asyncio.create_task(
                writer.execute(
                    "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
                    " VALUES (1, 'a', 1, 0, 1, 'E', 1, '{}'), (1, 'b', 1, 1, 2, 'E', 1, '{}')"
                )
            )
            await blocked(coordinator, writer.info.backend_pid)
            await coordinator.execute(RAISE, [1])
        with pytest.raises(psycopg.Error) as refused:
            await write
        assert refused.value.sqlstate == FENCED
        assert refused.value.diag.message_detail == "[]"
        assert await events(coordinator) == []


async def test_nothing_is_written_at_an_old_epoch_after_it_was_raised(params: dict[str, Any]) -> None:
    """Writers race with a coordinator: what is there at an epoch when it ends is all that ever will
    be.
    """
    shards, rng, stop = 6, random.Random(7), asyncio.Event()
    totals: dict[tuple[int, int], int] = {}
    fenced = written = 0

    async def write(number: int) -> None:
        nonlocal fenced, written
        mine = random.Random(number)
        known = dict.fromkeys(range(shards), 1)
        seq = 0
        async with await connect(params) as connection:
            while not stop.is_set():
                seq += 1
                chosen = mine.sample(range(shards), mine.randint(1, shards))
                try:
                    async with connection.transaction():
                        for shard in sorted(chosen):
                            await connection.execute(INSERT, [f"w{number}s{shard}", seq, shard, known[shard]])
                    written += 1
                except psycopg.Error as error:
                    if error.sqlstate != FENCED:
                        raise
                    fenced += 1
                    cursor = await connection.execute("SELECT shard, epoch FROM sharding_shard")
                    known = dict(await cursor.fetchall())

    async def raise_epochs() -> None:
        raised = 0
        async with await connect(params) as connection:
            while raised < 60 or not (written and fenced):  # writers may come late
                raised += 1
                shard = rng.randrange(shards)
                await connection.execute(RAISE, [shard])
                epoch = await value(connection, "SELECT epoch FROM sharding_shard WHERE shard = %s", shard)
                totals[shard, epoch - 1] = await value(connection, count, shard, epoch - 1)
        stop.set()

    count = "SELECT count(*) FROM sharding_event WHERE shard = %s AND epoch = %s"
    async with await connect(params) as watcher:
        await give_homes(watcher, shards)
        await asyncio.wait_for(
            asyncio.gather(raise_epochs(), *(write(number) for number in range(3))), 60 * SLACK
        )
        for (shard, epoch), total in totals.items():
            assert await value(watcher, count, shard, epoch) == total
    assert written
    assert fenced


async def test_appends_and_decisions_over_many_shards_do_not_lock_each_other_out(
    params: dict[str, Any],
) -> None:
    """Both lock the shards in one order, whatever order their rows come in."""
    shards, stop, appended = 40, asyncio.Event(), [0, 0, 0]

    async def append(number: int) -> None:
        rng = random.Random(number)
        async with await connect(params) as connection:
            while not stop.is_set():
                chosen = rng.sample(range(shards), shards)
                await connection.execute(
                    "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
                    " SELECT 1, 'w' || %s::text || s, %s, s, 1, 'E', 1, '{}' FROM unnest(%s::int[]) s",
                    [number, appended[number] + 1, chosen],
                )
                appended[number] += 1

    async def decide() -> None:
        rng, step = random.Random(0), 0
        async with await connect(params) as connection:
            while step < 60 or not all(appended):  # they may come late
                step += 1
                chosen = rng.sample(range(shards), shards)
                await connection.execute(
                    "SELECT sharding_decide_v1(1, %s::text[], %s::int[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], "
                    "%s::text[])",
                    [["T"] * shards, chosen, [1] * shards, [1] * shards, ["home"] * shards,
                     [("home", "handoff")[step % 2]] * shards, [""] * shards],
                )  # fmt: skip
        stop.set()

    async with await connect(params) as watcher:
        await give_homes(watcher, shards)
        await watcher.execute("INSERT INTO sharding_coordinator (term) VALUES (1)")
        await watcher.execute(
            "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " VALUES (1, 'T', 'k', 40, 'x', 'h', '', 'm')"
        )
        await asyncio.wait_for(asyncio.gather(decide(), *(append(number) for number in range(3))), 60 * SLACK)
        assert all(appended)


async def test_the_fence_stands_on_partitioned_tables_too(params: dict[str, Any]) -> None:
    async with await connect(params) as writer:
        await give_homes(writer, 1)
        await writer.execute(RAISE, [0])
        async with writer.transaction(force_rollback=True):
            await writer.execute(
                "CREATE TABLE parted (LIKE sharding_event INCLUDING ALL) PARTITION BY LIST (type_id)"
            )
            await writer.execute("CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1)")
            for table in ("parted", "parted_1"):
                await writer.execute(
                    f"CREATE TRIGGER sharding_fence AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows"
                    " FOR EACH STATEMENT EXECUTE FUNCTION sharding_fence_v1()".encode()
                )
            for table in ("parted", "parted_1"):
                for epoch, expected in ((1, FENCED), (2, None)):
                    insert = INSERT.replace("sharding_event", table).encode()
                    assert await outcome(writer, insert, ["a", 1, 0, epoch]) == expected


async def outcome(connection: psycopg.AsyncConnection[Any], query: bytes, args: list[Any]) -> str | None:
    """Try a statement, take it back, and return the SQLSTATE it failed with."""
    try:
        async with connection.transaction(force_rollback=True):
            await connection.execute(query, args)
    except psycopg.Error as error:
        return error.sqlstate
    return None
