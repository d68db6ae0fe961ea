"""What finding, reading and removing dormant entities costs: rows of these entities, however large
the journal is.
"""

from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.archive import Archive
from sharding_app.adapters.postgres.sql import HIGHEST
from sharding_app.embedded import Servers
from sharding_app.ports.journal import Archival
from tests.integration.adapters.postgres.journals import insert, partition, types
from tests.integration.adapters.postgres.plans import rows_read
from tests.integration.adapters.postgres.writers import connect, give_homes
from tests.support.scratch import make_tables, scratch_database

pytestmark = pytest.mark.asyncio

ENTITIES, EVENTS, PAGE = 400, 50, 20
FILL = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, at)
SELECT kind, 'e-' || entity, seq, 0, 1, 'E', 1, '{}', now() - interval '1 year'
FROM generate_series(1, 2) AS kind, generate_series(1001, 1000 + %s) AS entity, generate_series(1, %s) AS seq
"""


async def filled(params: dict[str, Any]) -> None:
    async with await connect(params) as admin:
        await give_homes(admin, 1)
        await admin.execute("ALTER TABLE sharding_event DISABLE TRIGGER USER")
        await admin.execute(FILL, [ENTITIES, EVENTS])
        await admin.execute("ALTER TABLE sharding_event ENABLE TRIGGER USER")
        await admin.execute("ANALYZE sharding_event")


async def test_a_divided_type_is_walked_in_the_order_of_ids_and_loses_what_is_removed(
    servers: Servers,
) -> None:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        _walk_and_remove(params)


def _walk_and_remove(params: dict[str, Any]) -> None:
    types(params, 2)
    insert(params, 2, entities=60, events=3)
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute("UPDATE sharding_event SET at = at - interval '1 day'")
    partition(params, T1=4)
    with Archive(params) as archive:
        found = [each.entity for each in archive.dormant(1, None, 60.0)]
        assert found == sorted(f"e{number}" for number in range(1, 61))
        stored = archive.stored(1, dict.fromkeys(found, 0))
        removed = {archive.remove(1, each.entity, 0, each.mark) for each in stored}
        assert removed == {Archival(events=3, snapshots=1)}
        assert not list(archive.dormant(1, None, 60.0))
        assert len(list(archive.dormant(2, None, 60.0))) == 60


async def test_a_page_reads_three_rows_of_an_entity_and_an_entity_its_own(params: dict[str, Any]) -> None:
    await filled(params)
    page = {"type_id": 1, "first": "", "last": HIGHEST, "after": "e-1100", "window": 1.0, "limit": PAGE}
    assert rows_read(params, "archive_page", page) <= 3 * (PAGE + 1)
    chosen = {"type_id": 1, "entities": ["e-1101", "e-1102"], "shards": [0, 0]}
    assert rows_read(params, "archive_events", chosen) == 2 * EVENTS
    assert rows_read(params, "archive_marks", chosen) == 2 * EVENTS
    one = {"type_id": 1, "entity": "e-1101", "shard": 0, "present": 0, "epoch": 1, "mark": ""}
    assert rows_read(params, "archive_find", one) == EVENTS
    assert rows_read(params, "archive_remove", one) <= 3 * EVENTS
    lasts = {"type_id": 1, "entities": ["e-1101"], "seqs": [EVENTS], "ats": ["2026-01-01T00:00:00Z"]}
    assert rows_read(params, "archive_kept", lasts) <= 1
