"""xoscar: a thousand actors in one process of a pool, asked from another one, as entities on a node
are here.

An actor handles one message at a time, as an entity does. It brings no journal: the durable command
inserts its event on a pooled connection of its process and answers after the commit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.measuring import ENTITIES, PYTHONPATH, Calls
from benchmarks.peer.store import CONNECTIONS, create_table, drop_table
from sharding_app.embedded.ports import free_port

NAME = "xoscar"
WORKLOADS = ("ask", "durable")
MOST_IN_FLIGHT = 1000
NOTE = f"1,000 actors in one process of a pool, asked from another; {CONNECTIONS} pooled connections"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Calls]:
    import xoscar
    from xoscar.backends.allocate_strategy import ProcessIndex

    from benchmarks.peer.xoscar_actor import Account, Opener

    create_table(url)
    pool = await xoscar.create_actor_pool(
        f"127.0.0.1:{free_port()}", n_process=1, envs=[{"PYTHONPATH": PYTHONPATH}]
    )
    try:
        address = pool.external_address
        inside = ProcessIndex(1)
        opener = await xoscar.create_actor(Opener, uid="opener", address=address, allocate_strategy=inside)
        await opener.open(url)
        accounts: list[Any] = [
            await xoscar.create_actor(
                Account, f"c{number}", uid=f"c{number}", address=address, allocate_strategy=inside
            )
            for number in range(ENTITIES)
        ]

        def ask(number: int) -> Awaitable[int]:
            answer: Awaitable[int] = accounts[number % ENTITIES].ask()
            return answer

        def durable(number: int) -> Awaitable[int]:
            answer: Awaitable[int] = accounts[number % ENTITIES].durable()
            return answer

        yield {"ask": ask, "durable": durable}
        await opener.close()
    finally:
        await pool.stop()
        drop_table(url)
