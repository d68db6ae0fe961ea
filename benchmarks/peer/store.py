"""A journal for peers that bring none: one row for each command, committed before the answer, on
pooled connections.

The table has what an event needs and no more: its primary key keeps an entity's numbers without
repetition.
"""

from __future__ import annotations

from typing import Self

import psycopg
from psycopg_pool import AsyncConnectionPool

CREATE = (
    "CREATE TABLE benchmark_peer_event (entity text, seq bigint, payload jsonb, PRIMARY KEY (entity, seq))"
)
INSERT = "INSERT INTO benchmark_peer_event (entity, seq, payload) VALUES (%s, %s, %s)"
DROP = "DROP TABLE IF EXISTS benchmark_peer_event"
CONNECTIONS = 16
PAYLOAD = '{"by":1}'


def create_table(url: str) -> None:
    """Make the table anew, and empty."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DROP)
        connection.execute(CREATE)


def drop_table(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DROP)


class Journal:
    """One process's connections."""

    def __init__(self, url: str) -> None:
        self._pool = AsyncConnectionPool(
            url,
            min_size=CONNECTIONS,
            max_size=CONNECTIONS,
            timeout=60,
            open=False,
            kwargs={"autocommit": True, "prepare_threshold": 0},
        )

    async def open(self) -> Self:
        await self._pool.open(wait=True)
        return self

    async def append(self, entity: str, seq: int) -> None:
        """Return when it is committed."""
        async with self._pool.connection() as connection:
            await connection.execute(INSERT, (entity, seq, PAYLOAD))

    async def close(self) -> None:
        await self._pool.close()
