"""What the store does when the server fails it, and how it keeps a frozen process from blocking a
failover.
"""

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.connection import application_name
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import TIMELINE_LINES, PostgresStore
from sharding_app.embedded import OwnPostgres
from sharding_app.ports.store import StaleTerm, StoreUnavailable
from sharding_app.protocol.records import Decision, HomeChange
from tests.integration.adapters.postgres.writers import INSERT, blocked, connect, events, gone, value
from tests.support.given import CART, member, with_type
from tests.support.scratch import make_tables, scratch_database

pytestmark = pytest.mark.asyncio

TERM = 1


async def cluster(params: dict[str, Any], **options: Any) -> PostgresStore:
    """Return a store of a cluster with a coordinator of term 1 and one shard at epoch 1."""
    store = PostgresStore(params, **options)
    assert await with_type(store) == 1
    async with await connect(params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'me')")
    await store.decide(TERM, [HomeChange(CART.name, 0, 0, 1, "dead", "home")])
    return store


async def test_a_process_frozen_after_the_fence_does_not_block_failover(params: dict[str, Any]) -> None:
    store = await cluster(params, lock_timeout_seconds=0.3)
    patient = PostgresStore(params, lock_timeout_seconds=60, answer_seconds=60)
    move = [HomeChange(CART.name, 0, 1, 2, "next", "home")]
    frozen = await connect(params, application_name=application_name("dead", "journal"))
    await frozen.execute("BEGIN")
    await frozen.execute(INSERT, ["a", 1, 0, 1])
    with pytest.raises(StoreUnavailable, match="55P03"):
        await store.decide(TERM, move)
    # Its row does not know of this connection: it was opened again since. Its name gives it away.
    await store.join(member("dead"), (1, 2))
    await store.bury(TERM, "dead")
    # The server has told it to end, which takes a moment.
    assert [row.epoch for row in await patient.decide(TERM, move)] == [2]
    with pytest.raises(psycopg.OperationalError):
        await frozen.execute("COMMIT")
    async with await connect(params) as admin:
        assert await events(admin) == []
    await frozen.close()
    await patient.close()
    await store.close()


async def test_a_server_that_refuses_is_told_from_one_that_is_not_reached(params: dict[str, Any]) -> None:
    store = await cluster(params, lock_timeout_seconds=0.1)
    async with await connect(params) as admin, admin.transaction():
        await admin.execute("LOCK TABLE sharding_node IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(StoreUnavailable, match="55P03") as refused:
            await store.news("me")
    assert refused.value.answered
    await store.close()
    elsewhere = PostgresStore({**params, "port": 1})
    with pytest.raises(StoreUnavailable) as unreached:
        await elsewhere.news("me")
    assert not unreached.value.answered


async def test_burial_spares_the_connections_of_others(params: dict[str, Any]) -> None:
    store = await cluster(params)
    async with (
        await connect(params, application_name=application_name("dead2", "journal")) as other,
        await connect(params, application_name="sharding/dead") as stranger,
    ):
        await store.bury(TERM, "dead")
        assert await value(other, "SELECT 1") == 1
        assert await value(stranger, "SELECT 1") == 1
    await store.close()


async def test_a_decision_waits_for_an_election_and_loses(params: dict[str, Any]) -> None:
    store = await cluster(params, lock_timeout_seconds=60, answer_seconds=60)
    async with await connect(params) as election, await connect(params) as watcher:
        (backend,) = await store.open()
        async with election.transaction():
            await election.execute("UPDATE sharding_coordinator SET term = term + 1")
            decision = asyncio.create_task(store.decide(TERM, [HomeChange(CART.name, 0, 1, 2, "me", "home")]))
            await blocked(watcher, backend.pid)
        with pytest.raises(StaleTerm):
            await decision
        assert [row.epoch for row in await store.shards()] == [1]
    await store.close()


async def test_an_election_waits_for_a_decision_under_way(params: dict[str, Any]) -> None:
    """A new coordinator raises the term before it reads: it sees all that the former one has
    decided.
    """
    store = await cluster(params)
    cluster_id = await store.cluster_id()
    await store.join(member("next"), (1, 2))
    session = PostgresLifelineSession(params, cluster_id=cluster_id, ttl_seconds=60)
    backend = await session.open()
    async with await connect(params) as former, await connect(params) as watcher:
        async with former.transaction():
            await former.execute(
                "SELECT sharding_decide_v1(1, '{shop.Cart}', '{0}', '{1}', '{2}', '{last}', '{home}', ARRAY[''])"
            )
            election = asyncio.create_task(session.elect("next"))
            await blocked(watcher, backend.pid)
        assert await election == TERM + 1
    assert [row.home for row in await store.shards()] == ["last"]
    with pytest.raises(StaleTerm):
        await store.decide(TERM, [])
    await session.close()
    await store.close()


async def test_no_server_is_unavailable(own_postgres: OwnPostgres) -> None:
    params: dict[str, Any] = conninfo_to_dict(own_postgres.url)
    make_tables(params)
    store = await cluster(params)
    before, _ = await store.members()
    own_postgres.stop()
    with pytest.raises(StoreUnavailable):
        await store.members()
    with pytest.raises(StoreUnavailable):
        await store.decide(TERM, [])
    own_postgres.start()
    after, _ = await store.members()
    assert after.started != before.started
    assert after.timeline == before.timeline
    await store.close()


async def test_a_copy_of_the_database_is_another_cluster(params: dict[str, Any], servers: Any) -> None:
    store = PostgresStore(params)
    original = await store.cluster_id()
    await store.close()
    name = f"{params['dbname']}_copy"
    admin_params: dict[str, Any] = conninfo_to_dict(servers.database_url)
    async with await connect(admin_params) as admin:
        async with await connect(params) as last:
            pid = last.info.backend_pid
        await gone(admin, pid)
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{params["dbname"]}"'.encode())
        try:
            copy = PostgresStore({**params, "dbname": name})
            copied = await copy.cluster_id()
            assert copied == await copy.cluster_id()
            assert copied != original
            await copy.close()
        finally:
            await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
    again = PostgresStore(params)
    assert await again.cluster_id() == original
    await again.close()


async def test_the_timeline_forgets_what_is_old_of_each_kind(params: dict[str, Any]) -> None:
    """A storm of one kind pushes out no other. What other statements have noted is forgotten
    too.
    """
    store = PostgresStore(params)
    await store.record([Decision("node_up", "n-a", "a, version 7")])
    async with await connect(params) as admin:
        await admin.execute(
            b"INSERT INTO sharding_decision (action, subject) SELECT 'entity_erased', n::text"
            b" FROM generate_series(1, %s) n",
            [TIMELINE_LINES + 7],
        )
        for _ in range(3):
            await store.record([Decision("moved", f"{number}") for number in range(TIMELINE_LINES // 2)])
        kept = await (
            await admin.execute(
                b"SELECT action, count(*), min(subject::integer) FILTER (WHERE action = 'entity_erased')"
                b" FROM sharding_decision GROUP BY action ORDER BY action"
            )
        ).fetchall()
    assert kept == [
        ("entity_erased", TIMELINE_LINES, 8),
        ("moved", TIMELINE_LINES, None),
        ("node_up", 1, None),
    ]
    await store.close()


async def test_shards_beyond_the_present_number_are_not_shown(params: dict[str, Any]) -> None:
    store = await cluster(params)
    await store.decide(TERM, [HomeChange(CART.name, 49, 0, 1, "me", "home")])
    async with await connect(params) as admin:
        await admin.execute("UPDATE sharding_type SET number_of_shards = 49")
    assert [row.shard for row in await store.shards()] == [0]
    await store.close()


async def test_missing_tables_are_named_with_what_to_do(servers: Any) -> None:
    with scratch_database(servers.database_url) as params:
        store = PostgresStore(params)
        with pytest.raises(StoreUnavailable, match=r"run `manage.py migrate`"):
            await store.cluster_id()
        await store.close()


async def test_connections_say_whose_they_are(params: dict[str, Any]) -> None:
    store = PostgresStore(params, owner="abc")
    (backend,) = await store.open()
    assert list(store.backends) == [backend]
    async with await connect(params) as admin:
        name = await value(
            admin,
            "SELECT application_name FROM pg_stat_activity WHERE pid = %s AND backend_start = %s::timestamptz",
            backend.pid,
            backend.started,
        )
    assert name == "sharding/abc/control"
    await store.close()
    assert list(store.backends) == []
