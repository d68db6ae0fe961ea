"""What questions about shards read of a table with many of them."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.embedded import Servers
from tests.integration.adapters.postgres.plans import rows_read
from tests.support.scratch import make_tables, scratch_database

TYPES, SHARDS = 20, 500


@pytest.fixture(scope="module")
def params(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as made:
        make_tables(made)
        with psycopg.connect(**made, autocommit=True) as admin:
            admin.execute(
                "INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
                " SELECT n, 'shop.T' || n, 'k', %s, 'x', 'h', '', 's' FROM generate_series(1, %s) n",
                [SHARDS, TYPES],
            )
            admin.execute(
                "INSERT INTO sharding_shard (type_id, shard, epoch, home, step)"
                " SELECT t, n, 1, 'n-' || n %% 3, 'home' FROM generate_series(1, %s) t, generate_series(0, %s) n",
                [TYPES, SHARDS - 1],
            )
            admin.execute("VACUUM ANALYZE sharding_shard, sharding_type")
        yield made


@pytest.mark.parametrize(
    ("query", "values", "rows"),
    [
        ("homes", {"type": "shop.T7", "shards": [3, 99]}, 2),
        ("snapshot_type_shards", {"type_id": 7, "first": 100, "beyond": 120}, 20),
    ],
)
def test_a_question_reads_the_shards_that_it_is_about(
    params: dict[str, Any], query: str, values: dict[str, Any], rows: int
) -> None:
    assert rows_read(params, query, values, "sharding_shard") == rows


def test_a_look_gets_counts_and_no_row_of_a_shard_at_home(params: dict[str, Any]) -> None:
    with psycopg.connect(**params) as connection:
        groups = connection.execute(QUERIES["snapshot_shards"]).fetchall()
        assert len(groups) == TYPES * 3
        assert sum(row[4] for row in groups) == TYPES * SHARDS
        unsettled = QUERIES["snapshot_unsettled"]
        assert connection.execute(unsettled).fetchall() == [], "no node hosts any type"
        node = (
            "INSERT INTO sharding_node (incarnation, name, host, pid, age, state, lock_key_1, lock_key_2, types)"
            " SELECT 'n-' || n, 'n', 'h', 1, n, 'up', n, -n, '[\"shop.T7\"]' FROM generate_series(%s::integer, %s::integer) n"
        )
        connection.execute(node, [0, 1])
        lost = connection.execute(unsettled).fetchall()
        assert {(row[0], row[3]) for row in lost} == {("shop.T7", "n-2")}
        connection.execute(node, [2, 2])
        assert connection.execute(unsettled).fetchall() == []
        assert dict(connection.execute(QUERIES["home_counts"]).fetchall()) == {
            row[0]: TYPES * row[1] for row in [("n-0", 167), ("n-1", 167), ("n-2", 166)]
        }
