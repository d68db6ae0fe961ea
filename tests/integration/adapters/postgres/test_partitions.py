"""A journal that is partitioned by type: each hot statement and each append touches one partition,
the fence stands before all of them, and one type's events go at once.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from sharding_app.adapters.postgres.appending import copy_events_within
from sharding_app.adapters.postgres.deletion import count_journal, remove_journal
from sharding_app.adapters.postgres.sql import HIGHEST
from sharding_app.bench.database import REMOVAL
from sharding_app.embedded import Servers
from sharding_app.ports.journal import Erasure
from tests.integration.adapters.postgres.journals import divide, insert, partition, store, types
from tests.integration.adapters.postgres.plans import scanned
from tests.support.given import event_row
from tests.support.scratch import make_tables, scratch_database

TYPES = 6
MINE = 3
VALUES: dict[str, Any] = {
    "type_id": MINE, "types": [MINE, MINE], "entity": "e1", "entities": ["e1", "e2"], "seq": 5, "epoch": 1, "epochs": [1, 1], "payload": "{}", "command_id": "c",
    "shard": 0, "shards": [0], "small": 1000, "events": 100, "rows": 1000, "bytes": 10**6, "after": 0, "froms": [1, 2],
    "limits": [5, 5], "command_ids": ["c3", "c4"], "ages": [10**9, 10**9], "window": 0, "before": 8, "keep": 1, "limit": 10,
    "sinces": [1, 1], "befores": [3, 3], "firsts": [1, 1], "lasts": [4, 4], "first": "", "last": HIGHEST, "at_most": 10,
    "by": "me", "events_before": 0, "snapshots_before": 0, "prefix": "e", "upto": HIGHEST, "number": 3, "type": "T3", "entity_after": "",
    "name": "p", "version": 1, "slice": 0,
}  # fmt: skip
HOT = (
    "read", "read_large", "read_last", "read_from", "last_seq", "outcome", "outcome_of_ours", "settled", "follow",
    "trim_events", "forget_states", "erase", "erase_count", "erase_find", "projection_events", "projection_newest",
    "sample_length", "sample_events",
)  # fmt: skip
OF_A_TYPE: dict[str, dict[str, Any]] = {
    "trimmable": {"after": ""},
    "ids": {"after": ""},
    "projection_keys": {"after": "", "first": 0, "last": 127},
    "export_events": {"entity": "", "seq": 0},
    "sample_next": {},
    "sample_newest": {"place": "(0,0)"},
    "journal_events": {},
}
"""They go through the entities of a type, in the order of their ids."""
CACHED = ("force_custom_plan", "force_generic_plan")


@pytest.fixture(scope="module")
def partitioned(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=20, events=10)
        partition(params)
        yield params


@pytest.fixture(scope="module")
def divided(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=600, events=20)
        partition(params, T3=4)
        yield params


@pytest.mark.parametrize("mode", CACHED)
@pytest.mark.parametrize("query", [*HOT, *OF_A_TYPE])
def test_a_hot_statement_reads_one_partition(partitioned: dict[str, Any], query: str, mode: str) -> None:
    with psycopg.connect(**partitioned, autocommit=True) as connection:
        found = scanned(connection, query, {**VALUES, **OF_A_TYPE.get(query, {})}, mode)
    assert set(found) == {f"sharding_event_{MINE}"}


@pytest.mark.parametrize("mode", CACHED)
@pytest.mark.parametrize("query", HOT)
def test_a_hot_statement_about_an_entity_reads_one_part_of_a_divided_type(
    divided: dict[str, Any], query: str, mode: str
) -> None:
    values = {**VALUES, "entities": ["e1", "e1"]}
    with psycopg.connect(**divided, autocommit=True) as connection:
        found = scanned(connection, query, values, mode)
    parts = {f"sharding_event_{MINE}_4_{part}" for part in range(4)}
    assert set(found) <= parts
    if query == "outcome":  # a look at the index on hashes of each part: docs/tables.md
        assert set(found) == parts
    else:
        assert len(found) == 1


@pytest.mark.parametrize("query", ["outcome", "read", "last_seq"])
def test_a_journal_in_one_table_is_read_along_the_same_indexes(servers: Servers, query: str) -> None:
    wanted = {"outcome": "sharding_event_command"}.get(query, "sharding_event_pkey")
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=100, events=20)
        with psycopg.connect(**params, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE sharding_event")
            connection.execute("SET enable_bitmapscan = off")  # which names no index in its scan of the table
            for mode in CACHED:
                assert scanned(connection, query, VALUES, mode) == {"sharding_event": {wanted}}


def test_an_append_touches_one_partition(divided: dict[str, Any]) -> None:
    rows = [event_row(MINE, "new", seq) for seq in (1, 2)]
    with psycopg.connect(**divided) as connection:
        with connection.cursor() as cursor:
            copy_events_within(cursor, rows)
        assert len(locked(connection)) == 1
        connection.rollback()
        store(connection, event_row(1, "new", 1))
        assert locked(connection) == {"sharding_event_1"}
        connection.rollback()


def locked(connection: psycopg.Connection) -> set[str]:
    """The tables of events that this transaction has locked, the parents apart."""
    found = connection.execute(
        "SELECT c.relname FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
        " WHERE l.pid = pg_backend_pid() AND c.relkind = 'r' AND starts_with(c.relname, 'sharding_event')"
    )
    return {name for (name,) in found}


def test_the_fence_stands_before_the_journal_and_before_each_partition(divided: dict[str, Any]) -> None:
    with psycopg.connect(**divided, autocommit=True) as connection:
        for table in ("sharding_event", f"sharding_event_{MINE}", "sharding_event_1"):
            number = 1 if table == "sharding_event_1" else MINE
            with pytest.raises(psycopg.Error, match="not at the epoch"):
                store(connection, event_row(number, "new", 1, epoch=7), table)
        parts = connection.execute(
            "SELECT c.relname FROM pg_class c WHERE starts_with(c.relname, 'sharding_event_3_4_') AND c.relkind = 'r'"
        ).fetchall()
        assert len(parts) == 4
        for (part,) in parts:
            with pytest.raises(psycopg.Error, match=r"not at the epoch|partition constraint"):
                store(connection, event_row(MINE, "new", 1, epoch=7), part)
        unfenced = connection.execute(
            "SELECT c.relname FROM pg_class c WHERE starts_with(c.relname, 'sharding_event') AND c.relkind IN ('r', 'p')"
            " AND (SELECT count(*) FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname IN"
            "  ('sharding_fence', 'sharding_fence_update') AND g.tgenabled = 'O') <> 2"
        )
        assert unfenced.fetchall() == []


def test_a_types_events_go_at_once_with_their_files(servers: Servers) -> None:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=20, events=10)
        partition(params, T3=2)
        with psycopg.connect(**params, autocommit=True) as admin:
            before = files(admin)
            assert count_journal(params, "T3") == Erasure(events=200, snapshots=20)
            with psycopg.connect(**params) as reader:  # a long read of another type does not matter
                assert reader.execute("SELECT FROM sharding_event_1").rowcount == 200
                told: list[int] = []
                done = remove_journal(params, "T3", "me", lambda removed: told.append(removed.events))
            assert done == Erasure(events=200, snapshots=20)
            assert told == [0, 200], "no piece has deleted an event: the first one was of snapshots"
            after = files(admin)
            assert {name for name in before if before[name] != after[name]} == {
                "sharding_event_3_2_0",
                "sharding_event_3_2_1",
            }
            assert admin.execute("SELECT count(*) FROM sharding_event").fetchone() == (200 * (TYPES - 1),)
            # The type may live again.
            admin.execute("UPDATE sharding_shard SET home = 'me', step = 'home'")
            store(admin, event_row(MINE, "again", 1, epoch=2))


def files(admin: psycopg.Connection) -> dict[str, str]:
    found = admin.execute(
        "SELECT c.relname, pg_relation_filepath(c.oid) FROM pg_class c"
        " WHERE starts_with(c.relname, 'sharding_event') AND c.relkind = 'r'"
    )
    return dict(found.fetchall())


def test_events_go_in_pieces_where_the_partition_stays_in_use(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharding_app.adapters.postgres.deletion.EMPTYING_TRIES", 2)
    monkeypatch.setattr("sharding_app.adapters.postgres.deletion.EMPTYING_PAUSE_SECONDS", 0.0)
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=20, events=10)
        partition(params)
        with psycopg.connect(**params) as reader:
            reader.execute("SELECT FROM sharding_event_3")
            assert remove_journal(params, "T3", "me", bool) == Erasure(events=200, snapshots=20)


def test_a_benchmark_removes_its_own_rows_alone(servers: Servers) -> None:
    """Rows of different partitions have the same places in their tables."""
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        types(params, TYPES)
        insert(params, TYPES, entities=20, events=10)
        partition(params)
        with psycopg.connect(**params, autocommit=True) as admin:
            removal = REMOVAL.format(table="sharding_event", rows=150)
            removed = [admin.execute(removal.encode(), [MINE, MINE]).rowcount for _ in range(3)]
            assert removed == [150, 50, 0]
            left = admin.execute(
                "SELECT type_id, count(*) FROM sharding_event GROUP BY 1 ORDER BY 1"
            ).fetchall()
            assert left == [(number, 200) for number in range(1, TYPES + 1) if number != MINE]


def test_a_division_is_taken_back(divided: dict[str, Any]) -> None:
    divide(divided, T3=1)
    with psycopg.connect(**divided, autocommit=True) as admin:
        assert admin.execute(
            "SELECT relkind FROM pg_class WHERE relname = 'sharding_event_3'"
        ).fetchone() == ("r",)
        assert admin.execute("SELECT count(*) FROM sharding_event_3").fetchone() == (12_000,)
    divide(divided, T3=4)
    connections.close_all()
