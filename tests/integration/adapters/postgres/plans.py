"""How many rows of a table a statement of ours reads: a bound that holds on every machine."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from sharding_app.adapters.postgres.sql import QUERIES


def rows_read(
    params: dict[str, Any], query: str, values: dict[str, Any], table: str = "sharding_event"
) -> int:
    """Run one of the named statements, take it back, and count the rows that its scans of that
    table gave or dropped.
    """
    with psycopg.connect(**params) as connection:
        statement = b"EXPLAIN (ANALYZE, FORMAT JSON) " + QUERIES[query]
        row = connection.execute(statement, values).fetchone()
        connection.rollback()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return sum(
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in _nodes(plan[0]["Plan"])
        if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)
