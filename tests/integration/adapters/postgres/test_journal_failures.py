"""What the journal does when the server, the network or time fails it: nothing is ever appended
twice or half.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.embedded import OwnPostgres
from sharding_app.ports.journal import (
    Erasure,
    EventRow,
    JournalUnavailable,
    Mark,
    RowRefused,
    Snapshot,
)
from tests.integration.adapters.postgres.silent_proxy import proxy_to
from tests.integration.adapters.postgres.writers import (
    RAISE,
    blocked,
    connect,
    events,
    give_homes,
    gone,
    lost,
    value,
)
from tests.support.given import event_row, until
from tests.support.scratch import make_tables
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio

ROW = event_row(1, "a", 1)
SNAPSHOT = Snapshot(1, "a", 1, 0, 1, b"{}")
HOLD = "UPDATE sharding_shard SET updated_at = now()"
ANSWER_SECONDS = 1.5 * SLACK
"""A server that answers does so in less, on a busy machine too."""
FROZEN_SECONDS = 2 * SLACK
"""A server process is given up after that, and not before it has been frozen."""
LOCK_SECONDS = 60
"""An append waits for the row that a test holds."""


async def test_a_lost_connection_is_settled_and_the_next_append_connects_again(
    params: dict[str, Any],
) -> None:
    journal = PostgresJournal(params, lock_timeout_seconds=LOCK_SECONDS)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await journal.open()
        await lost(params, journal, ROW)
        assert not await journal.settle([ROW])
        await journal.append([ROW])
        assert await journal.settle([ROW])
        assert await events(admin) == [("a", 1, 1)]
    await journal.close()


async def test_an_answer_that_is_lost_after_the_commit(params: dict[str, Any]) -> None:
    async with await connect(params) as admin, proxy_to(params) as proxy:
        await give_homes(admin, 1)
        journal = PostgresJournal(
            proxy.params, answer_seconds=ANSWER_SECONDS, lock_timeout_seconds=LOCK_SECONDS
        )
        await journal.open()
        async with admin.transaction():
            await admin.execute(HOLD)
            append = asyncio.create_task(journal.append([ROW]))
            await blocked(admin, journal.backends[0].pid)
            proxy.mute()
        with pytest.raises(JournalUnavailable, match="no answer within"):
            await append
        # The reading connection is mute too: that is the next thing to fail, and no reason to
        # guess.
        with pytest.raises(JournalUnavailable):
            await journal.settle([ROW])
        assert await journal.settle([ROW])
        await journal.append([event_row(1, "a", 2)])
        assert await events(admin) == [("a", 1, 1), ("a", 2, 1)]
        await journal.close()


async def test_a_statement_that_is_still_under_way_is_ended_before_the_verdict(
    params: dict[str, Any],
) -> None:
    """The network is silent and the statement waits: without an end to it, it would commit after
    the verdict.
    """
    async with await connect(params) as admin, await connect(params) as holder, proxy_to(params) as proxy:
        await give_homes(admin, 1)
        journal = PostgresJournal(
            proxy.params, answer_seconds=ANSWER_SECONDS, lock_timeout_seconds=LOCK_SECONDS
        )
        backend, _ = await journal.open()
        async with holder.transaction():
            await holder.execute(HOLD)
            proxy.mute()
            with pytest.raises(JournalUnavailable):
                await journal.append([ROW])
            with pytest.raises(JournalUnavailable):
                await journal.settle([ROW])
            assert not await journal.settle([ROW])
            await gone(admin, backend.pid)
        assert await events(admin) == []
        await journal.append([ROW])
        await journal.close()


async def test_a_statement_that_was_never_sent_costs_no_connection(params: dict[str, Any]) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        journal = PostgresJournal(params)
        await journal.open()
        before = journal.backends
        with pytest.raises(RowRefused):
            await journal.remember([Mark(1, 0, 1, "\ud800", True)])
        await journal.remember([Mark(1, 0, 1, "a", True)])
        assert journal.backends == before
        await journal.close()


async def erase(journal: PostgresJournal) -> Erasure:
    return await journal.erase(1, 0, 1, "a", at_most=100, before=Erasure(), by="an operator")


@pytest.mark.parametrize("in_line", [False, True], ids=["asked_for_later", "in_line_behind_it"])
@pytest.mark.parametrize("late", ["erase", "snapshot"])
async def test_no_late_statement_executes_after_an_erasure(tmp_path: Path, late: str, in_line: bool) -> None:
    """Its server process is frozen, so it is given up; it goes on when the entity has
    begun anew. The erasure may wait for its turn already when that happens.
    """
    with OwnPostgres(tmp_path) as server:
        params: dict[str, Any] = conninfo_to_dict(server.url)
        make_tables(params)
        async with await connect(params) as admin, await connect(params) as holder:
            await give_homes(admin, 1)
            await admin.execute(
                "INSERT INTO sharding_type VALUES (1, 'T', 'event sourced', 1, 'x', 'x', '', 'postgres')"
            )
            journal = PostgresJournal(
                params, answer_seconds=FROZEN_SECONDS, lock_timeout_seconds=LOCK_SECONDS
            )
            _, stale = await journal.open()
            await journal.append([ROW])
            async with holder.transaction():
                await holder.execute(HOLD)
                given_up: asyncio.Task[object] = asyncio.create_task(
                    erase(journal) if late == "erase" else journal.save_snapshots([SNAPSHOT])
                )
                await blocked(admin, stale.pid)
                erasing = asyncio.create_task(erase(journal)) if in_line else None
                os.kill(stale.pid, signal.SIGSTOP)
            with pytest.raises(JournalUnavailable):
                await given_up
            erasing = erasing or asyncio.create_task(erase(journal))
            done, _ = await asyncio.wait({erasing}, timeout=0.5)
            assert not done, "the former statement may still execute"
            os.kill(stale.pid, signal.SIGCONT)
            assert await erasing == Erasure(events=1)
            await journal.append([ROW])
            await gone(admin, stale.pid)
            assert await events(admin) == [("a", 1, 1)]
            assert await value(admin, "SELECT count(*) FROM sharding_snapshot") == 0
            await journal.close()


async def test_settle_waits_until_a_frozen_server_process_is_gone(tmp_path: Path) -> None:
    with OwnPostgres(tmp_path) as server:
        params: dict[str, Any] = conninfo_to_dict(server.url)
        make_tables(params)
        async with await connect(params) as admin, await connect(params) as holder:
            await give_homes(admin, 1)
            journal = PostgresJournal(
                params, answer_seconds=FROZEN_SECONDS, lock_timeout_seconds=LOCK_SECONDS
            )
            backend, _ = await journal.open()
            async with holder.transaction():
                await holder.execute(HOLD)
                append = asyncio.create_task(journal.append([ROW]))
                await blocked(admin, backend.pid)
                os.kill(backend.pid, signal.SIGSTOP)
            # The lock is free now: as soon as it can run, the process may commit.
            with pytest.raises(JournalUnavailable):
                await append
            settle = asyncio.create_task(journal.settle([ROW]))
            done, _ = await asyncio.wait({settle}, timeout=0.3)
            assert not done
            os.kill(backend.pid, signal.SIGCONT)
            committed = await settle
            assert await events(admin) == ([("a", 1, 1)] if committed else [])
        await journal.close()


async def test_a_newer_mark_waits_until_an_older_one_can_do_nothing_more(tmp_path: Path) -> None:
    """An entity goes to rest, the answer is lost, and it is needed again: it must not be forgotten
    later.
    """
    with OwnPostgres(tmp_path) as server:
        params: dict[str, Any] = conninfo_to_dict(server.url)
        make_tables(params)
        async with await connect(params) as admin, await connect(params) as holder:
            await give_homes(admin, 1)
            journal = PostgresJournal(
                params, answer_seconds=FROZEN_SECONDS, lock_timeout_seconds=LOCK_SECONDS
            )
            _, backend = await journal.open()
            await journal.remember([Mark(1, 0, 1, "a", True)])
            async with holder.transaction():
                await holder.execute(HOLD)
                forget = asyncio.create_task(journal.remember([Mark(1, 0, 1, "a", False)]))
                await blocked(admin, backend.pid)
                os.kill(backend.pid, signal.SIGSTOP)
            with pytest.raises(JournalUnavailable):
                await forget
            remember = asyncio.create_task(journal.remember([Mark(1, 0, 1, "a", True)]))
            done, _ = await asyncio.wait({remember}, timeout=0.3)
            assert not done
            os.kill(backend.pid, signal.SIGCONT)
            await remember
            await gone(admin, backend.pid)
            assert await journal.recall(1, [0]) == {0: ["a"]}
        await journal.close()


async def once_it_is_back(request: Callable[[], Awaitable[bool]]) -> bool:
    """Ask again until the pause after the refused attempts is over."""
    found: list[bool] = []

    async def answered() -> bool:
        with suppress(JournalUnavailable):
            found.append(await request())
        return bool(found)

    await until(answered, 30)
    return found[0]


async def test_a_restarted_server(own_postgres: OwnPostgres) -> None:
    params: dict[str, Any] = conninfo_to_dict(own_postgres.url)
    make_tables(params)
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    await journal.append([ROW])
    own_postgres.stop()
    for _ in range(2):
        with pytest.raises(JournalUnavailable):
            await journal.append([event_row(1, "a", 2)])
    with pytest.raises(JournalUnavailable):
        await journal.settle([event_row(1, "a", 2)])
    own_postgres.start()
    assert not await once_it_is_back(lambda: journal.settle([event_row(1, "a", 2)]))
    assert await journal.settle([ROW])
    await journal.append([event_row(1, "a", 2)])
    await journal.close()


async def test_a_shard_that_stays_locked_does_not_hold_an_append_up_for_ever(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, lock_timeout_seconds=0.2)
    async with await connect(params) as holder:
        await give_homes(holder, 1)
        backend, _ = await journal.open()
        async with holder.transaction():
            await holder.execute(HOLD)
            with pytest.raises(JournalUnavailable, match="55P03"):
                await journal.append([ROW])
        # The server has said that it failed: the connection is as good as before, and there is
        # nothing to end.
        assert not await journal.settle([ROW])
        await journal.append([ROW])
        assert journal.backends[0] == backend
    await journal.close()


async def test_a_cancelled_append_is_settled_too(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params, lock_timeout_seconds=LOCK_SECONDS)
    async with await connect(params) as holder, await connect(params) as watcher:
        await give_homes(holder, 1)
        backend, _ = await journal.open()
        async with holder.transaction():
            await holder.execute(HOLD)
            append = asyncio.create_task(journal.append([ROW]))
            await blocked(watcher, backend.pid)
            append.cancel()
            with pytest.raises(asyncio.CancelledError):
                await append
            assert not await journal.settle([ROW])
        assert await events(watcher) == []
        await journal.append([ROW])
    await journal.close()


async def test_refusals_do_not_cost_the_connection(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 1)
    backend, _ = await journal.open()
    for bad in (event_row(1, "\ud800", 1), event_row(1, "a", 2**70), event_row(1, "a", 1, payload=b"{")):
        with pytest.raises(RowRefused):
            await journal.append([bad])
    await journal.append([ROW])
    assert journal.backends[0] == backend
    await journal.close()


async def test_missing_tables_are_named_with_what_to_do(servers: Any) -> None:
    params: dict[str, Any] = {**conninfo_to_dict(servers.database_url), "dbname": "template1"}
    journal = PostgresJournal(params)
    with pytest.raises(JournalUnavailable, match=r"run `manage.py migrate`"):
        await journal.append([ROW])
    await journal.close()


async def test_no_server_is_unavailable_at_once() -> None:
    nowhere = {"host": "127.0.0.1", "port": 1, "user": "nobody", "dbname": "none"}
    journal = PostgresJournal(nowhere, connect_seconds=3600.0, answer_seconds=3600.0)
    async with asyncio.timeout(60):
        with pytest.raises(JournalUnavailable):
            await journal.append([ROW])
        with pytest.raises(JournalUnavailable):
            await journal.read(1, ["a"])
    await journal.close()


@pytest.mark.parametrize(
    ("default", "expected"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")],
)
async def test_commits_are_durable_whatever_the_default(
    params: dict[str, Any], default: str, expected: str
) -> None:
    async with await connect(params, options=f"-c synchronous_commit={default}") as plain:
        assert await value(plain, "SHOW synchronous_commit") == default
    journal = PostgresJournal({**params, "options": f"-c synchronous_commit={default}"})
    await journal.open()

    async def ask(connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> Any:
        return await value(connection, "SHOW synchronous_commit")

    assert await journal._appends[0].run(ask) == expected
    await journal.close()


async def test_a_batch_that_is_large_goes_as_one(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    async with await connect(params) as admin:
        await give_homes(admin, 50)
        rows: list[EventRow] = [
            event_row(1, f"e{number}", 1, shard=number % 50, payload=b'"%s"' % (b"x" * 2000))
            for number in range(5000)
        ]
        await journal.append(rows)
        assert await value(admin, "SELECT count(*) FROM sharding_event") == 5000
        assert await value(admin, "SELECT count(DISTINCT xmin::text) FROM sharding_event") == 1
        await admin.execute(RAISE, [49])
        histories = await journal.read(1, [row.entity for row in rows])
        assert all(len(histories[row.entity].events) == 1 for row in rows)
    await journal.close()
