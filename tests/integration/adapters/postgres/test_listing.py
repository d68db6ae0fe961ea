"""A page of ids reads a row for each of them, however many events they have; also with a plan that
was made when the table was empty.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.embedded import Servers
from tests.integration.adapters.postgres.plans import rows_read
from tests.support.given import until
from tests.support.scratch import make_tables, scratch_database

ENTITIES = 2_000
EVENTS = 20
PLAN_BECOMES_GENERIC = 6
FILL = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)
SELECT type_id, 'e-' || lpad(n::text, 4, '0'), seq, 0, 1, 'x', 1, '{}'
FROM generate_series(1, 3) type_id, generate_series(1, %(entities)s) n, generate_series(1, %(events)s) seq
"""


@pytest.fixture
def params(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as made:
        make_tables(made)
        yield made


def fill(params: dict[str, Any]) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute("SET session_replication_role = replica")  # no shards: the fence is not asked
        admin.execute(FILL, {"entities": ENTITIES, "events": EVENTS})
        admin.execute("VACUUM ANALYZE sharding_event")


@pytest.mark.parametrize(
    ("prefix", "after", "limit", "most"),
    [
        ("", "", 1000, 1001),
        ("", "e-1999", 1000, 2),
        ("e-01", "", 1000, 102),
        ("e-01", "e-0150", 10, 11),
        ("f", "", 1000, 1),
        ("", "e-2000", 1000, 1),
        ("d", "", 1000, 2),
    ],
)
def test_a_page_reads_one_row_for_each_id(
    params: dict[str, Any], prefix: str, after: str, limit: int, most: int
) -> None:
    fill(params)
    values = {"type_id": 2, "prefix": prefix, "after": after, "limit": limit}
    assert rows_read(params, "ids", values) <= most


@pytest.mark.asyncio
async def test_a_plan_of_an_empty_table_serves_a_full_one(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)
    try:
        for _ in range(PLAN_BECOMES_GENERIC):
            assert await journal.ids(2, "", "", 1000) == []
        fill(params)
        with psycopg.connect(**params, autocommit=True) as admin:
            before = rows_fetched(admin)
            found: list[str] = []
            while page := await journal.ids(2, "e-", found[-1] if found else "", 500):
                found += page
            await journal.close()

            async def ended() -> bool:
                return not sessions(admin)

            await until(ended)  # a session reports its figures at its end
            assert len(found) == ENTITIES
            assert found == sorted(found)
            assert ENTITIES <= rows_fetched(admin) - before <= 2 * ENTITIES, (
                "it has read events that lie between"
            )
    finally:
        await journal.close()


def sessions(admin: "psycopg.Connection[Any]") -> int:
    """Return how many sessions of ours there are."""
    row = admin.execute(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND starts_with(application_name, 'sharding/')"
    ).fetchone()
    assert row is not None
    return int(row[0])


def rows_fetched(admin: "psycopg.Connection[Any]") -> int:
    """Return the rows of the events that index scans have given so far."""
    admin.execute("SELECT pg_stat_clear_snapshot()")
    row = admin.execute(
        "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'sharding_event'"
    ).fetchone()
    assert row is not None
    return int(row[0])
