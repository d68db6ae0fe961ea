"""A copy that takes a database's name: the server, its timeline and all names are the same, and the
last events are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.lifeline_session import PostgresLifelineSession
from sharding_app.embedded import Servers
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.liveness.node_lease import after_return
from tests.integration.adapters.postgres.writers import connect, events, give_homes
from tests.support.given import event_row
from tests.support.scratch import make_tables, scratch_database

pytestmark = pytest.mark.asyncio


@pytest.fixture
def two(servers: Servers) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Two databases of one server, with tables."""
    with scratch_database(servers.database_url) as one, scratch_database(servers.database_url) as other:
        make_tables(one)
        make_tables(other)
        yield one, other


def exchange(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Let two databases take each other's name, as a restore beside the former one ends."""
    first, second = one["dbname"], other["dbname"]
    with psycopg.connect(**{**one, "dbname": "postgres"}, autocommit=True) as admin:
        for name in (first, second):
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            admin.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = %s", [name]
            )
        for former, name in ((first, "between"), (second, first), ("between", second)):
            admin.execute(f'ALTER DATABASE "{former}" RENAME TO "{name}"')
        for name in (first, second):
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


async def test_a_copy_in_its_place_is_another_system(
    two: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    params, copy = two
    session = PostgresLifelineSession(params, cluster_id="c", ttl_seconds=60)
    journal = PostgresJournal(params, owner="me")
    for each in two:
        async with await connect(each) as admin:
            await give_homes(admin, 1)
    await session.open()
    lived = (await session.ping()).server.lineage
    journal.live_in(lived)
    await journal.append([event_row(1, "a", 1)])

    exchange(params, copy)
    await session.close()
    await session.open()
    found = (await session.ping()).server.lineage
    assert after_return(lived, found) == "begin_anew"
    with pytest.raises(JournalUnavailable):  # of the objects in memory
        await journal.append([event_row(1, "a", 2)])
    with pytest.raises(JournalUnavailable, match="what is in memory on"):
        await journal.append([event_row(1, "a", 2)])
    async with await connect(params) as admin:
        assert await events(admin) == [], "an event without those before it would leave a gap"
    await session.close()
    await journal.close()
