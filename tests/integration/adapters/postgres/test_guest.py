"""A guest in the database: nothing of ours waits inside the server or holds up its housekeeping
(promise 14).
"""

import asyncio
from typing import Any

import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.adapters.postgres.store import PostgresStore
from tests.integration.adapters.postgres.writers import connect, give_homes, value
from tests.support.given import event_row, member

pytestmark = pytest.mark.asyncio


async def test_vacuum_and_index_builds_work_beside_connections_at_rest(params: dict[str, Any]) -> None:
    store, journal = PostgresStore(params, owner="a"), PostgresJournal(params, owner="a")
    cluster_id = await store.cluster_id()
    await store.join(member("a"), (11, 12))
    sessions = [PostgresLifelineSession(params, cluster_id=cluster_id, ttl_seconds=60) for _ in range(3)]
    for key, session in enumerate(sessions, 11):
        await session.open()
        await session.lock(key)
        await session.ping()
    assert await sessions[0].elect("a") == 1
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await journal.append([event_row(1, "a", 1)])
        await journal.read(1, ["a"])
        # A candidate that does not get the lock goes away at once: it does not wait for it in the
        # server.
        assert await sessions[1].elect("a") is None
        waiting = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'sharding/%%' AND ({})"
        )
        open_transaction = "backend_xmin IS NOT NULL OR xact_start IS NOT NULL OR wait_event_type = 'Lock'"
        assert await value(admin, waiting.format(open_transaction)) == 0
        assert await value(admin, waiting.format("true")) == 6
        async with asyncio.timeout(30):
            await admin.execute("VACUUM (FREEZE) sharding_event")
            await admin.execute("CREATE INDEX CONCURRENTLY beside ON sharding_event (at)")
            await admin.execute("DROP INDEX CONCURRENTLY beside")
    for session in sessions:
        await session.close()
    await store.close()
    await journal.close()
