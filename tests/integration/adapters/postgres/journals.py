"""Journals of a given size, in one table or partitioned."""

from typing import Any

import psycopg

from sharding_app.adapters.postgres.appending import INSERT_EVENT
from sharding_app.adapters.postgres.partitioning import change_layout
from sharding_app.ports.journal import EventRow


def types(params: dict[str, Any], number: int) -> None:
    """Register the types T1, T2 and so on, each with a shard 0 that has no home."""
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
            " SELECT 'T' || n, 'event_sourced', 1, 'x', 'x', '', 'postgres' FROM generate_series(1, %s) n",
            [number],
        )
        admin.execute(
            "INSERT INTO sharding_shard (type_id, shard, epoch, home, step) SELECT id, 0, 1, NULL, 'stopped' FROM sharding_type"
        )


def insert(params: dict[str, Any], number: int, *, entities: int, events: int) -> None:
    """Store events of these types, a third of them with the id of a command, and a snapshot of each
    entity.
    """
    with psycopg.connect(**params, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload, command_id)"
            " SELECT t, 'e' || e, s, 0, 1, 'A', 1, json_build_object('n', s), CASE WHEN s %% 3 = 0 THEN 'c' || s END"
            " FROM generate_series(1, %s) t, generate_series(1, %s) e, generate_series(1, %s) s",
            [number, entities, events],
        )
        admin.execute(
            "INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)"
            " SELECT t, 'e' || e, %s, 0, 1, '{}' FROM generate_series(1, %s) t, generate_series(1, %s) e",
            [events - 2, number, entities],
        )


def partition(params: dict[str, Any], **parts: int) -> None:
    assert [each.name for each in change_layout(params, parts, "me")][-1] == "dropped"


divide = partition


def store(connection: psycopg.Connection, row: EventRow, table: str = "sharding_event") -> None:
    """Insert a row by the statement of an append of one event, into a table of that name."""
    statement = INSERT_EVENT.replace(b"INTO sharding_event ", f"INTO {table} ".encode()).replace(
        b"$8", b"%s::json"
    )
    for place in range(12, 0, -1):
        statement = statement.replace(b"$%d" % place, b"%s")
    connection.execute(statement, row._replace(payload=row.payload.decode()))  # type: ignore[arg-type]
