"""The virtual server, when shards are closed while a decision about them is under way."""

import asyncio

import pytest

from sharding_app.adapters.memory import MemoryServer, MemoryStore
from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.protocol.records import HomeChange
from tests.contract.factories import MemoryWorld
from tests.support.given import CART, homed

pytestmark = pytest.mark.asyncio

A_FEW = 20
"""Turns of the loop, more than any of these requests takes without a wait."""


async def turns() -> None:
    for _ in range(A_FEW):
        await asyncio.sleep(0)


async def test_a_closing_waits_for_a_decision_under_way() -> None:
    """So the command that has closed a shard sees each home that was given to it before."""
    server = MemoryServer()
    number = await homed(MemoryWorld(server), {0: 4, 1: 4})
    mover, coordinator = MemoryStore(server, "mover"), MemoryStore(server, "coordinator")
    await mover.begin_move(number, [0], "two")
    changes = [HomeChange(CART.name, shard, 4, 5, "next", "home") for shard in (0, 1)]
    outsider = server.locks.hold(shard_key(number, 1), "another session")
    decision = asyncio.create_task(coordinator.decide(1, changes))
    await turns()
    closing = asyncio.create_task(mover.close_shards(number, [0], 600))
    await turns()
    assert not closing.done()
    server.locks.release(outsider)
    assert {row.home for row in await decision} == {"next"}
    assert await closing == [0]
