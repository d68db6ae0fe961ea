"""A journal that is partitioned by type, as docs/tables.md says: fenced, and one type's events
detached at once.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from sharding_app.adapters.postgres.deletion import count_journal, remove_journal
from sharding_app.adapters.postgres.journal import PostgresJournal
from sharding_app.adapters.postgres.store import PostgresStore
from sharding_app.embedded import Servers
from sharding_app.ports.journal import Erasure, RowRefused, ShardsFenced, Snapshot
from sharding_app.protocol.records import HomeChange
from tests.integration.adapters.postgres.writers import INSERT, connect
from tests.support.given import CART, event_row
from tests.support.scratch import make_tables, scratch_database

pytestmark = pytest.mark.asyncio

PAGE = (Path(__file__).parents[4] / "docs" / "tables.md").read_text()
ORDER = msgspec.structs.replace(CART, name="shop.Order")
PARTITIONED = """
ALTER TABLE sharding_event RENAME TO sharding_event_before;
CREATE TABLE sharding_event (LIKE sharding_event_before INCLUDING ALL) PARTITION BY LIST (type_id);
DROP TABLE sharding_event_before;
CREATE TABLE sharding_event_carts PARTITION OF sharding_event FOR VALUES IN (1);
CREATE TABLE sharding_event_orders PARTITION OF sharding_event FOR VALUES IN (2);
"""


def statements(beginning: str) -> str:
    """Return the block of SQL on the page that begins so."""
    section = PAGE.partition("## Room for partitions")[2].partition("\n## ")[0]
    (found,) = [
        each for each in re.findall(r"```sql\n(.*?)```", section, re.DOTALL) if each.startswith(beginning)
    ]
    return str(found)


@pytest.fixture
def partitioned(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        triggers = statements("CREATE TRIGGER")
        with psycopg.connect(**params, autocommit=True) as connection:
            for table in ("sharding_event", "sharding_event_carts"):
                made = triggers.replace("sharding_event_carts", table)
                connection.execute((made if table != "sharding_event" else PARTITIONED + made).encode())
        yield params


async def test_the_fence_stands_before_the_parent_and_before_a_partition(partitioned: dict[str, Any]) -> None:
    store, journal = await two_types(partitioned)
    await journal.append([event_row(1, "a", 1), event_row(1, "a", 2), event_row(2, "a", 1)])
    with pytest.raises(ShardsFenced):
        await journal.append([event_row(1, "a", 3, epoch=7)])
    async with await connect(partitioned) as admin:
        with pytest.raises(psycopg.Error, match="not at the epoch"):
            await admin.execute(INSERT.replace("sharding_event", "sharding_event_carts"), ["a", 3, 0, 7])
    await journal.append([event_row(1, "a", 3)])
    assert len((await journal.read_from(1, "a", 0)).events) == 3
    await store.close()
    await journal.close()


async def test_a_partition_that_is_detached_takes_its_types_events_with_it(
    partitioned: dict[str, Any],
) -> None:
    store, journal = await two_types(partitioned)
    await journal.append([event_row(number, "a", seq) for number in (1, 2) for seq in (1, 2, 3)])
    await journal.save_snapshots([Snapshot(1, "a", 3, 0, 1, b"{}")])
    async with await connect(partitioned) as admin:
        for each in filter(None, map(str.strip, statements("ALTER TABLE").split(";"))):
            await admin.execute(each)
        with pytest.raises(RowRefused, match="no partition"):
            await journal.append([event_row(1, "a", 4)])
        assert await asyncio.to_thread(count_journal, partitioned, CART.name) == Erasure(snapshots=1)
        removed = await asyncio.to_thread(remove_journal, partitioned, CART.name, "me", lambda done: None)
        assert removed == Erasure(snapshots=1)
        rows = await admin.execute("SELECT type_id, epoch, home FROM sharding_shard ORDER BY type_id")
        assert await rows.fetchall() == [(1, 2, None), (2, 1, "n")], "no other type has lost its homes"
    await journal.append([event_row(2, "a", 4)])
    assert len((await journal.read_from(2, "a", 0)).events) == 4
    await store.close()
    await journal.close()


async def two_types(params: dict[str, Any]) -> tuple[PostgresStore, PostgresJournal]:
    """Two types, each with a shard at home in a node that is dead."""
    store = PostgresStore(params)
    assert (await store.register_types([CART, ORDER]))[0] == {CART.name: 1, ORDER.name: 2}
    async with await connect(params) as admin:
        await admin.execute("INSERT INTO sharding_coordinator (term, incarnation) VALUES (1, 'n')")
    await store.decide(1, [HomeChange(each.name, 0, 0, 1, "n", "home") for each in (CART, ORDER)])
    return store, PostgresJournal(params)
