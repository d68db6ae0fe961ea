"""A lifeline session ends when its process is frozen or cut off, and says so in time."""

import asyncio
import logging
import os
import signal
import time
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres import lifeline_session
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.embedded import OwnPostgres
from sharding_app.ports.lifeline import SessionLost
from tests.integration.adapters.postgres.silent_proxy import proxy_to
from tests.integration.adapters.postgres.writers import connect, value
from tests.support.given import member, until
from tests.support.scratch import TABLES, make_tables
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


def session(params: dict[str, Any], ttl: float = 60.0, number: int = 0) -> PostgresLifelineSession:
    return PostgresLifelineSession(
        params, cluster_id="cluster", owner="me", number=number, ttl_seconds=ttl, connect_seconds=30.0
    )


async def test_silence_ends_a_session_after_its_ttl(params: dict[str, Any]) -> None:
    ttl = 2.0 * SLACK
    silent, other = session(params, ttl), session(params)
    await other.open()
    await silent.open()
    started = time.monotonic()
    assert await silent.lock(11)

    async def freed() -> bool:
        return await other.lock(11)

    await until(freed, 30)
    assert time.monotonic() - started > 0.95 * ttl
    with pytest.raises(SessionLost):
        await silent.ping()
    await other.close()


async def test_pings_keep_a_session(params: dict[str, Any]) -> None:
    pinging, other = session(params, 1.5 * SLACK), session(params)
    await other.open()
    await pinging.open()
    assert await pinging.lock(11)
    deadline = time.monotonic() + 3.0 * SLACK
    while time.monotonic() < deadline:
        await pinging.ping()
        assert not await other.lock(11)
        await asyncio.sleep(0.1)
    await pinging.close()
    await other.close()


async def test_a_ping_waits_for_no_lock_on_any_table(params: dict[str, Any]) -> None:
    """A migration that waits for a dump, and `VACUUM FULL`, hold such locks for as long as they
    like.
    """
    pinging = session(params)
    await pinging.open()
    async with await connect(params) as other, other.transaction():
        for table in TABLES:
            await other.execute(f"LOCK TABLE sharding_{table} IN ACCESS EXCLUSIVE MODE".encode())
        for _ in range(3):
            await pinging.ping()
    await pinging.close()


async def test_a_ping_reads_nothing_that_grows_with_the_cluster(params: dict[str, Any]) -> None:
    async with await connect(params) as other:
        ping = QUERIES["ping"].replace(b"%(coordinator_key)s", b"1")
        plan = [line for (line,) in await (await other.execute(b"EXPLAIN (VERBOSE) " + ping)).fetchall()]
    scanned = {line.split(" on ")[1].split()[0] for line in plan if "Scan on" in line}
    assert scanned <= {"pg_catalog.pg_control_system", "pg_catalog.pg_control_checkpoint"}, (
        "files of one size"
    )
    assert not any(word in " ".join(plan) for word in ("pg_lock_status", "pg_stat_get_activity")), plan


async def test_looks_at_the_coordinators_lock_take_it_from_no_session(params: dict[str, Any]) -> None:
    looking, standing = session(params), session(params, number=1)
    await looking.open()
    await standing.open()
    store = PostgresStore(params)
    await store.join(member("me"), (1, 2))

    async def look() -> None:
        for _ in range(50):
            await looking.ping()

    async def stand() -> None:
        terms = 0
        while terms < 20:
            if await standing.elect("me") is not None:
                terms += 1
                assert (await standing.ping()).coordinator_locked
                await standing.resign()

    await asyncio.gather(look(), stand())
    assert not (await looking.ping()).coordinator_locked
    for each in (looking, standing):
        await each.close()
    await store.close()


async def test_a_silent_network_loses_the_session_in_time(params: dict[str, Any]) -> None:
    async with proxy_to(params) as proxy:
        cut = session(proxy.params, 1.0 * SLACK)
        await cut.open()
        proxy.mute()
        with pytest.raises(SessionLost, match="no answer within"):
            await cut.ping()
        await cut.open()
        await cut.ping()
        await cut.close()


async def test_close_ends_the_wait_of_others_and_the_next_session_is_free_of_them(
    params: dict[str, Any],
) -> None:
    async with proxy_to(params) as proxy:
        cut = session(proxy.params, 30)
        await cut.open()
        proxy.mute()
        ping = asyncio.create_task(cut.ping())
        abandoned = asyncio.create_task(cut.ping())
        await asyncio.sleep(0)
        abandoned.cancel()
        await cut.close()
        await asyncio.wait_for(cut.open(), 5 * SLACK)
        with pytest.raises(SessionLost):
            await asyncio.wait_for(ping, 5 * SLACK)
        # What was given up on does not end the session that came after it.
        await cut.ping()
        await asyncio.wait({abandoned}, timeout=10 * SLACK)
        assert abandoned.done()
        await cut.ping()
        await cut.close()


async def test_the_server_is_asked_to_notice_by_itself(params: dict[str, Any]) -> None:
    asking = session(params, 30.0)
    await asking.open()

    async def settings(connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> dict[str, str]:
        cursor = await connection.execute(
            "SELECT name, setting FROM pg_settings WHERE name IN ('idle_session_timeout', 'statement_timeout',"
            " 'lock_timeout', 'tcp_keepalives_idle', 'client_connection_check_interval', 'application_name')"
        )
        return dict(await cursor.fetchall())

    assert await asking._line.run(settings) == {
        "application_name": "sharding/me/lifeline-0",
        "client_connection_check_interval": "10000",
        "idle_session_timeout": "30000",
        "lock_timeout": "30000",
        "statement_timeout": "30000",
        "tcp_keepalives_idle": "10",
    }
    await asking.close()


async def test_what_the_server_lacks_is_left_out_and_said_once(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lifeline_session, "_left_out", set())
    monkeypatch.setattr(lifeline_session, "WISHES", {"no_such_setting": 1.0, "tcp_keepalives_idle": 0.0001})
    caplog.set_level(logging.INFO, "sharding.lifeline")
    for number in (0, 1):
        asking = session(params, number=number)
        await asking.open()
        await asking.ping()
        await asking.close()
    assert [record.getMessage() for record in caplog.records if "no_such_setting" in record.getMessage()] == [
        caplog.records[0].getMessage()
    ]


async def test_a_crash_inside_the_server_shows_as_another_run(own_postgres: OwnPostgres) -> None:
    """Postgres then ends all sessions and frees all locks, and its start time stays: the processes
    are not dead.
    """
    params: dict[str, Any] = conninfo_to_dict(own_postgres.url)
    make_tables(params)
    watching = session(params, 30)
    await watching.open()
    before = (await watching.ping()).server
    victim = await connect(params)
    started = await value(victim, "SELECT pg_postmaster_start_time()")
    os.kill(victim.info.backend_pid, signal.SIGKILL)

    async def lost() -> bool:
        try:
            await watching.ping()
        except SessionLost:
            return True
        return False

    await until(lost)

    async def back() -> bool:
        try:
            await watching.open()
        except SessionLost:
            return False
        return True

    await until(back, 30)
    after = (await watching.ping()).server
    assert after.started != before.started
    assert after.timeline == before.timeline
    async with await connect(params) as admin:
        assert await value(admin, "SELECT pg_postmaster_start_time()") == started
    await victim.close()
    await watching.close()


async def test_an_election_that_could_not_raise_the_term_holds_no_lock(params: dict[str, Any]) -> None:
    standing, other = session(params, 0.5 * SLACK), session(params)
    async with await connect(params) as holder:
        await holder.execute("INSERT INTO sharding_coordinator (term) VALUES (4)")
        await holder.execute("INSERT INTO sharding_cluster (cluster_id) VALUES ('cluster')")
        store_row = member("me")
        await holder.execute(
            "INSERT INTO sharding_node (incarnation, name, host, pid, age, state, lock_key_1, lock_key_2)"
            " VALUES (%s, 'n', 'h', 1, 1, 'up', 1, 2)",
            [store_row.incarnation],
        )
        await standing.open()
        await other.open()
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM sharding_coordinator FOR SHARE")
            with pytest.raises(SessionLost):
                await standing.elect("me")

        async def free() -> bool:
            return not (await other.ping()).coordinator_locked

        await until(free)
        assert await other.elect("me") == 5
    await other.close()


async def test_the_end_of_a_session_is_heard_without_a_question(params: dict[str, Any]) -> None:
    ears = session(params)
    backend = await ears.open()
    heard = asyncio.Event()
    ends = ears.watch(heard.set)
    await asyncio.sleep(0)
    assert not heard.is_set()
    async with await connect(params) as admin:
        assert await value(admin, "SELECT pg_terminate_backend(%s)", backend.pid)
    await asyncio.wait_for(heard.wait(), 5 * SLACK)
    ends()
    with pytest.raises(SessionLost):
        await ears.ping()
    end_watch = ears.watch(heard.clear)  # nothing to hear where nothing is open
    end_watch()
    assert heard.is_set()
