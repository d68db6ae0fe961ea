"""Columns of an append as the server reads them, whichever way they are packed."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres.arrays import (
    Array,
    Bigints,
    Binaries,
    Booleans,
    Documents,
    Doubles,
    Integers,
    Texts,
    Times,
    register_arrays,
)
from sharding_app.embedded import Servers

LATE = datetime(2026, 11, 23, 18, 40, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Integers, 1, -2),
        (Bigints, 1 << 40, -(1 << 40)),
        (Booleans, True, False),
        (Doubles, 0.0, 1.5),
        (Times, LATE, LATE - timedelta(days=20_000, microseconds=3)),
        (Texts, "ä" * 600, ""),
        (Binaries, b"\0" * 2000, b""),
    ],
)
def test_the_server_reads_what_was_packed(servers: Servers, kind: type[Array], one: Any, other: Any) -> None:
    columns: list[list[Any]] = [
        [one],
        [one, one],
        [one, other, one],
        [None, one],
        [one, None, None, other],
        [],
    ]
    with psycopg.connect(servers.database_url) as connection:
        register_arrays(connection.adapters)
        for column in columns:
            assert read(connection, kind(column)) == column
        # A column without any value is empty: unnested beside others it is null in each row.
        assert read(connection, kind([None, None])) == []


def test_documents_are_texts(servers: Servers) -> None:
    with psycopg.connect(servers.database_url) as connection:
        register_arrays(connection.adapters)
        assert read(connection, Documents([b'{"by":1}', None])) == ['{"by":1}', None]


def read(connection: psycopg.Connection[tuple[Any, ...]], array: Array) -> Sequence[Any]:
    found = connection.execute(b"SELECT %b", [array], binary=True).fetchone()
    assert found is not None
    value: Sequence[Any] = found[0]
    return [each.astimezone(UTC) if isinstance(each, datetime) else each for each in value]
