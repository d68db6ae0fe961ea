"""Ray: an asyncio actor in a process of its own, asked from this one.

A Ray actor is a process; a thousand of them do not fit on a small machine. As is usual there, one
actor holds all entities, as one node does here; a lock for each keeps its commands one after the
other. Ray brings no journal: the durable command inserts its event on a pooled connection and
answers after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.measuring import ENTITIES, PYTHONPATH, Calls
from benchmarks.peer.store import CONNECTIONS, create_table, drop_table

NAME = "ray"
WORKLOADS = ("ask", "durable")
MOST_IN_FLIGHT = 1000
START_SECONDS = 60.0
NOTE = f"one asyncio actor in a process of its own holds all entities; {CONNECTIONS} pooled connections"


def _entities(ray: Any) -> Any:
    @ray.remote(max_concurrency=2 * MOST_IN_FLIGHT)
    class Entities:
        def __init__(self, url: str) -> None:
            self.url = url
            self.journal: Any = None

        async def open(self) -> None:
            from benchmarks.peer.store import Journal

            self.journal = await Journal(self.url).open()
            self.counts = [0] * ENTITIES
            self.numbers = [0] * ENTITIES
            self.locks = [asyncio.Lock() for _ in range(ENTITIES)]

        async def ask(self, number: int) -> int:
            self.counts[number] += 1
            return self.counts[number]

        async def durable(self, number: int) -> int:
            async with self.locks[number]:
                self.numbers[number] += 1
                await self.journal.append(f"c{number}", self.numbers[number])
                return self.numbers[number]

        async def close(self) -> None:
            await self.journal.close()

    return Entities


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Calls]:
    import ray

    create_table(url)
    ray.init(
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        num_cpus=2,
        runtime_env={"env_vars": {"PYTHONPATH": PYTHONPATH}},
    )
    try:
        entities = _entities(ray).remote(url)
        async with asyncio.timeout(START_SECONDS):
            await entities.open.remote()

        def ask(number: int) -> Awaitable[int]:
            answer: Awaitable[int] = entities.ask.remote(number % ENTITIES)
            return answer

        def durable(number: int) -> Awaitable[int]:
            answer: Awaitable[int] = entities.durable.remote(number % ENTITIES)
            return answer

        yield {"ask": ask, "durable": durable}
        await entities.close.remote()
    finally:
        ray.shutdown()
        drop_table(url)
