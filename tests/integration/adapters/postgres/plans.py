"""What a statement of ours reads, by its plan: bounds that hold on every machine."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer

from sharding_app.adapters.postgres.sql import QUERIES


def rows_read(
    params: dict[str, Any],
    query: str,
    values: dict[str, Any],
    table: str = "sharding_event",
    *,
    recovers: bool = False,
) -> int:
    """Run one of the named statements, take it back, and count the rows that its scans of that
    table gave or dropped. `recovers`: as on a connection for recoveries, which scans no table from
    end to end, also where that is cheaper for the rows that are in it now.
    """
    with psycopg.connect(**params) as connection:
        if recovers:
            connection.execute("SET LOCAL enable_seqscan = off")
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


def scanned(
    connection: psycopg.Connection, query: str, values: dict[str, Any], mode: str
) -> dict[str, set[str]]:
    """Run one of the named statements as a prepared one, with a plan of that kind, and take it
    back. Return the tables of events that were read, each with the indexes that were used.
    """
    with connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("SET LOCAL plan_cache_mode = {}").format(sql.Identifier(mode)))
        parsed = PostgresQuery(Transformer(connection))
        parsed.convert(QUERIES[query], values)
        kinds = [
            connection.execute("SELECT format_type(%s, NULL)", [oid or 705]).fetchone()
            for oid in parsed.types or ()
        ]
        given = ", ".join(str(kind and kind[0]) for kind in kinds)
        connection.execute(
            b"PREPARE tried%s AS %s"
            % (f" ({given})".encode() if given else b"", parsed.query.rstrip().rstrip(b";"))
        )
        arguments = sql.SQL(", ").join(sql.Literal(values[name]) for name in parsed._order or ())
        explain = sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE tried ({})").format(arguments)
        row = connection.execute(explain).fetchone()
        connection.execute("DEALLOCATE tried")
    assert row is not None
    found: dict[str, set[str]] = {}
    for node in _nodes(row[0][0]["Plan"]):
        table = node.get("Relation Name", "")
        if table.startswith("sharding_event") and "Scan" in node["Node Type"] and node["Actual Loops"]:
            found.setdefault(table, set()).add(node.get("Index Name", ""))
    return found


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)
