"""How recovery reads a journal that has grown since its plans were made."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.embedded import Servers
from tests.support.given import until
from tests.support.scratch import make_tables, scratch_database

PLANS = 12
"""More executions than the server takes until it keeps a plan."""
GROWN = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)
SELECT 1, 'e' || n, 1, n % 10, 1, 'Added', 1, '{}' FROM generate_series(1, 5000) n
"""
SCANNED = "SELECT sum(seq_tup_read)::integer FROM pg_stat_user_tables WHERE relname = 'sharding_event'"
SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND starts_with(application_name, 'sharding/')
"""


@pytest.fixture
def params(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as made:
        make_tables(made)
        with psycopg.connect(**made, autocommit=True) as admin:
            admin.execute(
                "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
                " VALUES (1, 'shop.Cart', 'k', 10, 'x', 'h', '', 's')"
            )
            admin.execute(
                "INSERT INTO sharding_shard (type_id, shard, epoch, home, step)"
                " SELECT 1, n, 1, 'me', 'home' FROM generate_series(0, 9) n"
            )
            admin.execute("VACUUM ANALYZE sharding_event")
        yield made


@pytest.mark.asyncio
async def test_entities_are_read_along_the_index(params: dict[str, Any]) -> None:
    """Entities that wake while the journal grows, in bulk, would each read all of it."""
    journal = PostgresJournal(params)
    wanted = [f"e{number}" for number in range(1, 101)]
    try:
        for _ in range(PLANS):
            await journal.read(1, wanted)
            await journal.read_last(1, wanted)
            await journal.last_seq(1, "e1")
        async with await psycopg.AsyncConnection.connect(**params, autocommit=True) as admin:
            await admin.execute(GROWN.encode())
            read = await journal.read(1, wanted)
            await journal.read_last(1, wanted)
            await journal.last_seq(1, "e1")
            await journal.close()

            async def ended() -> bool:
                return await (await admin.execute(SESSIONS.encode())).fetchone() == (0,)

            await until(ended)
            scanned = await (await admin.execute(SCANNED.encode())).fetchone()
    finally:
        await journal.close()
    assert [len(history.events) for history in read.values()] == 100 * [1]
    assert scanned == (0,)
