"""`eventsourcing`: aggregates in an `Application`, its Postgres recorder, its cache of aggregates.

It is a synchronous library without processes of its own, so the callers are threads of this process
and no message crosses a process border: an advantage over all others here. Each command saves one
event in one transaction. The library locks the events' table for each save so that its
notifications have no gaps; that is part of what it offers, and is left as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from benchmarks.measuring import ENTITIES, Calls

NAME = "eventsourcing"
WORKLOADS = ("durable",)
THREADS = 64
MOST_IN_FLIGHT = THREADS
NOTE = (
    f"threads of one process, at most {THREADS}; pooled connections; all aggregates cached; no process border"
)


def environment(url: str) -> dict[str, str]:
    """How the library is told where its database is: persistent connections, one for each
    thread.
    """
    parts = urlsplit(url)
    return {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": parts.path.lstrip("/"),
        "POSTGRES_HOST": parts.hostname or "127.0.0.1",
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": unquote(parts.username or ""),
        "POSTGRES_PASSWORD": unquote(parts.password or ""),
        "POSTGRES_POOL_SIZE": str(THREADS),
        "POSTGRES_MAX_OVERFLOW": "0",
        "POSTGRES_PRE_PING": "n",
        "AGGREGATE_CACHE_MAXSIZE": str(2 * ENTITIES),
        # No other process writes: the cache is always up to date.
        "AGGREGATE_CACHE_FASTFORWARD": "n",
        "DEEPCOPY_FROM_AGGREGATE_CACHE": "n",
    }


def make_application(url: str) -> Any:
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Account(Aggregate):  # type: ignore[misc]
        def __init__(self, number: int) -> None:
            self.number = number
            self.count = 0

        @staticmethod
        def create_id(number: int) -> Any:
            return uuid5(NAMESPACE_URL, f"/benchmark/{number}")

        @event("Increased")  # type: ignore[untyped-decorator]
        def increase(self, by: int) -> None:
            self.count += by

    class Accounts(Application):  # type: ignore[misc]
        name = "benchmark_peer"

        def open_all(self) -> None:
            for number in range(ENTITIES):
                self.save(Account(number))

        def increase(self, number: int) -> int:
            account = self.repository.get(Account.create_id(number))
            account.increase(1)
            self.save(account)
            return int(account.count)

    return Accounts(env=environment(url))


def remove_tables(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("benchmark_peer_events", "benchmark_peer_snapshots", "benchmark_peer_tracking"):
            connection.execute(f"DROP TABLE IF EXISTS {name}")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Calls]:
    remove_tables(url)
    accounts = make_application(url)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(THREADS) as threads:
        await loop.run_in_executor(threads, accounts.open_all)

        def durable(number: int) -> Awaitable[int]:
            return loop.run_in_executor(threads, accounts.increase, number % ENTITIES)

        try:
            yield {"durable": durable}
        finally:
            await loop.run_in_executor(threads, accounts.close)
    remove_tables(url)
