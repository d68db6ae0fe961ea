"""The health of the database, read from a real one."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from sharding_app.embedded import Servers
from sharding_app.operations.database_health import read_health, read_lock_waits, read_longest_histories
from sharding_app.operations.each_journal import Copies
from tests.integration.adapters.postgres.plans import rows_read
from tests.support import live
from tests.support.given import until
from tests.support.scratch import make_tables, scratch_database

EVENTS = 20_000


@pytest.mark.django_db(transaction=True)
def test_a_wait_is_told_with_its_holder() -> None:
    ours = connection.get_connection_params()
    for each in ("cursor_factory", "context"):
        ours.pop(each, None)

    async def scene() -> None:
        async with (
            await psycopg.AsyncConnection.connect(**{**ours, "application_name": "a-dba"}) as holder,
            await psycopg.AsyncConnection.connect(**{**ours, "application_name": "a-node"}) as waiter,
        ):
            await holder.execute("LOCK TABLE sharding_lease")
            waiting = asyncio.ensure_future(waiter.execute("SELECT FROM sharding_lease"))

            async def seen() -> bool:
                return bool(await asyncio.to_thread(_waits))

            await until(seen)
            (found,) = await asyncio.to_thread(_waits)
            assert (found.application, found.holder, found.tables) == ("a-node", "a-dba", "sharding_lease")
            assert found.holder_state == "idle in transaction"
            assert found.seconds >= 0
            await holder.rollback()
            await waiting

    asyncio.run(scene())
    health = read_health()
    assert health.waits == []
    assert {each.name for each in health.tables} >= {"sharding_event", "sharding_shard", "sharding_message"}
    assert 0 < health.age < health.freeze_max_age
    assert health.wal_bytes > 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_queued", [False, True])
def test_a_table_that_is_locked_whole_is_told_with_the_others(is_queued: bool) -> None:
    """VACUUM FULL, ALTER TABLE: its size would be given when that has ended. One that waits for a
    reader holds up all others too.
    """
    with connection.cursor() as cursor:
        cursor.execute("VACUUM sharding_event")
    sizes = {each.name: each.index_bytes for each in read_health().tables}
    ours = connection.get_connection_params()
    for each in ("cursor_factory", "context"):
        ours.pop(each, None)
    whole = "LOCK TABLE sharding_event IN ACCESS EXCLUSIVE MODE"
    with psycopg.connect(**ours) as holder, psycopg.connect(**ours) as second:
        holder.execute("LOCK TABLE sharding_event IN ACCESS SHARE MODE" if is_queued else whole)
        waiter = threading.Thread(target=second.execute, args=[whole.encode()])
        if is_queued:
            waiter.start()
            live.until(_waits, 30, "it waits for the reader")
        try:
            found = {each.name: each.index_bytes for each in read_health().tables}
        finally:
            connection.close()
            holder.rollback()
            if is_queued:
                waiter.join()
    assert found.pop("sharding_event") > 0
    assert found == {name: size for name, size in sizes.items() if name != "sharding_event"}


def _waits() -> list[Any]:
    try:
        return read_lock_waits()
    finally:
        connection.close()


@pytest.fixture
def params(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as made:
        make_tables(made)
        with psycopg.connect(**made, autocommit=True) as admin:
            admin.execute(
                "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
                " VALUES (1, 'shop.Cart', 'k', 10, 'x', 'h', '', 's'), (2, 'shop.Order', 'k', 10, 'x', 'h', '', 's')"
            )
            admin.execute(
                "INSERT INTO sharding_shard (type_id, shard, epoch, step) VALUES (1, 0, 1, 'stopped'),"
                " (2, 0, 1, 'stopped')"
            )
            admin.execute(
                "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, at)"
                " SELECT 1 + n %% 2, 'e' || n %% 500, n, 0, 1, 'Added', 1, json_build_object('text', repeat('x', 200)),"
                " now() - (%s - n) * interval '1 minute' FROM generate_series(1, %s) n",
                [EVENTS, EVENTS],
            )
            admin.execute("VACUUM ANALYZE sharding_event")
        yield made


def test_what_was_written_lately_is_counted_without_the_older_parts(params: dict[str, Any]) -> None:
    values = {"seconds": 3600, "limit": 20, **Copies().parameters("")}
    assert rows_read(params, "recent_writes", values) < EVENTS / 4
    with psycopg.connect(**params) as reader:
        size = reader.execute("SELECT pg_relation_size('sharding_event_at')").fetchone()
    assert size is not None
    assert size[0] < 100_000


def test_a_command_is_found_without_reading_other_events(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id, command)"
            " VALUES (1, 'e7', 99999, 0, 1, 'Added', 1, '{}', 'night-7', 'add')"
        )
    values = {"type_id": 1, "entity": "e7", "command_id": "night-7"}
    assert rows_read(params, "command_event", values) == 1
    assert rows_read(params, "command_lately", {"command_id": "night-7", "seconds": 3600}) < EVENTS / 4


def test_the_longest_histories_of_a_sample_cost_three_look_ups_each(params: dict[str, Any]) -> None:
    values = {"places": [f"({page},{line})" for page in range(100) for line in (1, 8)], "limit": 10}
    assert rows_read(params, "longest_histories", values) <= 3 * 200
    assert rows_read(params, "longest_histories", values, "sharding_snapshot") == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("rows")
def test_a_recovery_reads_the_events_after_the_newest_snapshot() -> None:
    found = {each.entity: each for each in read_longest_histories(seed=1)}
    assert len(found) == 10
    assert (found["alice"].events, found["alice"].recovered) == (5, 3)
