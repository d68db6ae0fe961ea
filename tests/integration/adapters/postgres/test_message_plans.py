"""What the statements about messages read of a table with many of them, also with a plan that was
made when it was empty.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.journal import PAGE_BYTES, PostgresJournal
from sharding_app.embedded import Servers
from sharding_app.operations.each_journal import Copies
from sharding_app.ports.deliveries import MessageChanges, MessageRow, MessagesGone, Taking
from tests.integration.adapters.postgres.plans import rows_read
from tests.support.given import event_row, until
from tests.support.scratch import make_tables, scratch_database

PER_SHARD = 2_000
SHARDS = 10
MANY = """
INSERT INTO sharding_message (
    id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due, key)
SELECT 'many-' || n, 1, n %% %(shards)s, 'e' || n, 1, 1, 0, 'shop.Cart', 't' || n, 'outbid', '', now() + n * interval '1 second',
    CASE WHEN n %% 2 = 0 THEN 'k' END
FROM generate_series(1, %(rows)s) n
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
        yield made


def fill(params: dict[str, Any], rows: int = PER_SHARD * SHARDS) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(MANY.encode(), {"shards": SHARDS, "rows": rows})
        admin.execute("ANALYZE sharding_message")


def test_a_page_reads_what_is_due(params: dict[str, Any]) -> None:
    fill(params)
    asked = {"types": [1, 1], "shards": [3, 4], "held": [], "limit": 100, "bytes": PAGE_BYTES, "each": 101}
    asked |= {"pairs": 100, "alone": []}
    # 40 rows of these shards are due within this time, of 4,000. A scan may count its rows again.
    assert rows_read(params, "due", {**asked, "horizon": 200}, "sharding_message") <= 4 * 40
    assert rows_read(params, "due", {**asked, "horizon": 1e6}, "sharding_message") <= 6 * 101
    # The time of the next row is looked up once, not for each row of the page.
    assert rows_read(params, "due", {**asked, "horizon": 1000}, "sharding_message") <= 2 * 101 + 2
    assert rows_read(params, "due", {**asked, "horizon": 1e6, "each": 21}, "sharding_message") <= 6 * 21


def test_the_start_of_a_singleton_reads_its_timers_alone(params: dict[str, Any]) -> None:
    fill(params)
    asked = {"type_id": 1, "entity": "e14", "prefix": "k"}
    assert rows_read(params, "timers", asked, "sharding_message") <= 2


@pytest.mark.parametrize("query", ["set_aside", "park", "turn"])
def test_a_decision_reads_its_row(params: dict[str, Any], query: str) -> None:
    fill(params)
    values = {"message": "many-13", "type_id": 1, "shard": 3, "epoch": 1, "error": "no answer"}
    values |= {"failures": 1, "delay": 5.0, "new": "n", "command": "c", "args": b""}
    assert rows_read(params, query, values, "sharding_message") <= 3


@pytest.mark.parametrize("late", [-1e6, 60.0])
@pytest.mark.parametrize("home", ["me", "another"])
def test_overdue_shards_are_found_by_a_few_rows_each(params: dict[str, Any], late: float, home: str) -> None:
    """All rows of a shard are overdue, or none."""
    fill(params)
    if home == "another":
        with psycopg.connect(**params, autocommit=True) as admin:
            admin.execute("DELETE FROM sharding_shard")
    values = {"home": home, "late": late, "limit": 100}
    assert rows_read(params, "overdue", values, "sharding_message") <= 10 * SHARDS


PAGE = {
    "type_id": 1,
    "shards": SHARDS,
    "due": "-infinity",
    "after": "",
    "limit": 51,
    "parked": False,
    "late": None,
    **Copies().parameters(""),
}


@pytest.mark.parametrize(
    ("query", "values", "most"),
    [
        ("operator_page", PAGE, 52 * SHARDS),
        ("operator_page", PAGE | {"due": "2100-01-01", "after": "many-13"}, SHARDS),
        ("operator_page", PAGE | {"parked": True}, SHARDS),
        ("operator_page", PAGE | {"late": 60.0}, SHARDS),
        ("operator_failing", PAGE, 1),
        ("operator_entity", {"type_id": 1, "shard": 3, "entity": "e13", "searched": 100, "limit": 50}, 210),
        ("operator_run", {"ids": ["many-13", "x"], "parked": False}, 2),
        ("operator_discard", {"ids": ["many-13", "x"]}, 2),
        ("snapshot_messages", {"late": 60.0, "limit": 1000, **Copies().parameters("")}, 5 * SHARDS),
        ("snapshot_messages", {"late": -1e9, "limit": 100, **Copies().parameters("")}, 5 * SHARDS + 110),
    ],
)
@pytest.mark.parametrize("vacuumed", [True, False])
def test_what_an_operator_asks_for_reads_a_few_rows_of_each_shard(
    params: dict[str, Any], query: str, values: dict[str, Any], most: int, *, vacuumed: bool
) -> None:
    """Many of them are due in the same moment. VACUUM can do nothing while another session reads
    an old snapshot.
    """
    fill(params)
    with psycopg.connect(**params, autocommit=True) as admin, psycopg.connect(**params) as reader:
        if not vacuumed:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT FROM sharding_type")
        admin.execute("UPDATE sharding_message SET due = now() + interval '1 hour' WHERE key IS NULL")
        admin.execute("VACUUM ANALYZE sharding_message")
        assert rows_read(params, query, values, "sharding_message") <= most


ENTITY = {"type_id": 1, "shard": 3, "entity": "e13"}


@pytest.mark.parametrize("query", ["erase_find", "erase_count"])
@pytest.mark.parametrize("type_id", [1, 2])
def test_messages_of_an_entity_are_looked_for_in_its_shard(
    params: dict[str, Any], query: str, type_id: int
) -> None:
    """The second type has stored none."""
    fill(params)
    most = PER_SHARD if type_id == 1 else 0
    assert rows_read(params, query, ENTITY | {"type_id": type_id}, "sharding_message") <= most


def test_counting_and_removing_read_messages_of_the_type_alone(params: dict[str, Any]) -> None:
    fill(params)
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(
            "UPDATE sharding_message SET type_id = 2 WHERE shard = 3 AND seq = 1 AND entity <= 'e11'"
        )
        moved = admin.execute("SELECT count(*) FROM sharding_message WHERE type_id = 2").fetchone()
        admin.execute("VACUUM ANALYZE sharding_message")
    assert moved is not None
    assert 0 < moved[0] < PER_SHARD
    assert rows_read(params, "journal_count", {"type_id": 2}, "sharding_message") <= moved[0]
    removed = {"type_id": 2, "rows": 10}
    assert rows_read(params, "journal_remove_rest", removed, "sharding_message") <= moved[0] + 10
    removed = {"type_id": 1, "rows": 10}
    assert rows_read(params, "journal_remove_rest", removed, "sharding_message") <= 30


def test_discarding_reads_the_rows_that_it_takes(params: dict[str, Any]) -> None:
    fill(params)
    lists = (
        "repeating", "repeats", "dues", "answered", "ids", "types", "shards", "entities", "epochs", "seqs", "positions",
        "target_types", "targets", "commands", "arguments", "replies_to", "on_failures",
    )  # fmt: skip
    values: dict[str, Any] = {each: [] for each in lists}
    assert rows_read(params, "discard", {**values, "taken": ["many-1", "x"]}, "sharding_message") <= 2


@pytest.mark.asyncio
async def test_no_append_reads_all_of_the_table(params: dict[str, Any]) -> None:
    """Its plans are made while the table is empty, and used when it is full."""
    journal = PostgresJournal(params)

    def everything(seq: int) -> MessageChanges:
        def made(place: int, key: str | None = None) -> MessageRow:
            name = f"m{seq}-{place}"
            return MessageRow(name, 1, 0, "a", 1, seq, place, "shop.Cart", "a", "c", b"", key=key)

        taken = [Taking(f"m{seq - 1}-0"), Taking(f"m{seq - 1}-1", park=True)] if seq > 1 else []
        return MessageChanges([made(0), made(1), made(2, "k")], [(1, "a", "other")], taken)

    try:
        for seq in range(1, 13):
            await journal.append([event_row(1, "a", seq)], everything(seq))
        fill(params)
        for seq in range(13, 16):
            await journal.append([event_row(1, "a", seq)], everything(seq))
    finally:
        await journal.close()
    assert await rows_of_full_scans(params) == 0


MARKS = """
INSERT INTO sharding_taken (id, type_id, shard, entity, epoch, journal)
SELECT 'many-' || n, 1, n %% %(shards)s, 'e' || n, 1, 'b' FROM generate_series(1, %(rows)s) n
"""


@pytest.mark.parametrize(
    ("query", "values", "most"),
    [
        ("marked", {"messages": ["many-13", "x"]}, 2),
        ("marks", {"types": [1, 1], "shards": [3, 4], "after": "", "limit": 50}, 2 * 50),
        ("marks", {"types": [1, 1], "shards": [3, 4], "after": "many-7", "limit": 50}, 2 * 50),
        ("unmark", {"messages": ["many-13", "x"], "type_id": 1, "shard": 3, "epoch": 1}, 2 * 2),
    ],
)
def test_the_marks_of_some_shards_are_read_alone(
    params: dict[str, Any], query: str, values: dict[str, Any], most: int
) -> None:
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(MARKS.encode(), {"shards": SHARDS, "rows": PER_SHARD * SHARDS})
        admin.execute("ANALYZE sharding_taken")
    assert 0 < rows_read(params, query, values, "sharding_taken") <= most


def test_rows_that_are_asked_for_are_read_alone(params: dict[str, Any]) -> None:
    fill(params)
    assert rows_read(params, "standing", {"messages": ["many-13", "x"]}, "sharding_message") <= 2


@pytest.mark.asyncio
async def test_no_append_with_marks_reads_all_of_them(params: dict[str, Any]) -> None:
    journal = PostgresJournal(params)

    def marking(seq: int) -> MessageChanges:
        taking = Taking(f"m{seq}", foreign="b", taker=(1, 0, 1, "a"), park=True)
        former = taking._replace(id=f"m{seq - 1}", resumed=True, park=False)
        return MessageChanges(takes=[taking, former] if seq > 1 else [taking])

    try:
        for seq in range(1, 13):
            await journal.append([event_row(1, "a", seq)], marking(seq))
        with psycopg.connect(**params, autocommit=True) as admin:
            admin.execute(MARKS.encode(), {"shards": SHARDS, "rows": PER_SHARD * SHARDS})
        for seq in range(13, 16):
            await journal.append([event_row(1, "a", seq)], marking(seq))
            with pytest.raises(MessagesGone):
                await journal.append([event_row(1, "a", seq + 1)], marking(seq))
    finally:
        await journal.close()
    assert await rows_of_full_scans(params, "sharding_taken") == 0


def test_ids_are_looked_for_by_the_primary_key_alone(params: dict[str, Any]) -> None:
    """All ways into an empty table that was vacuumed seem to cost the same, and a plan may be
    kept.
    """
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute("VACUUM ANALYZE sharding_message")
        admin.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        for statement in (
            "EXPLAIN DELETE FROM sharding_message WHERE id = ANY ('{a,b}')",
            "EXPLAIN DELETE FROM sharding_message WHERE id = 'a'",
        ):
            plan = admin.execute(statement.encode()).fetchall()
            assert any("sharding_message_pkey" in line for (line,) in plan)


async def rows_of_full_scans(params: dict[str, Any], table: str = "sharding_message") -> int:
    """Return what all sessions of ours have counted. It is to be seen when they have ended."""
    async with await psycopg.AsyncConnection.connect(**params, autocommit=True) as admin:

        async def ended() -> bool:
            cursor = await admin.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND starts_with(application_name, 'sharding/')"
            )
            return await cursor.fetchone() == (0,)

        await until(ended)
        cursor = await admin.execute(
            "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = %s", [table]
        )
        found = await cursor.fetchone()
    assert found is not None
    return int(found[0])
