"""A cluster whose shards are closed for a move to another journal, and opened again."""

import asyncio

import pytest

from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.place_cluster import id_in, until
from tests.unit.runtime.places import Plain

pytestmark = pytest.mark.asyncio

NAME = "allocation.Plain"
SHARD = 1
LONG = 600.0
OVER = -1.0
"""Seconds of a closing that nothing renews."""


async def closed(cluster: MemoryCluster, seconds: float) -> tuple[MemoryStore, int]:
    """Let the shard be at home, and close it."""
    assert await hello(SHARD)
    mover = MemoryStore(cluster.server, "p-mover")
    number = cluster.server.cluster.type_ids[NAME]
    assert await mover.begin_move(number, [SHARD], "two") == [SHARD]
    assert await mover.close_shards(number, [SHARD], seconds) == [SHARD]
    return mover, number


async def hello(shard: int) -> str:
    return await Plain.ref(id_in(shard)).hello()


def home(cluster: MemoryCluster) -> str | None:
    return cluster.server.cluster.shards[NAME, SHARD].home


async def test_calls_wait_while_a_shard_is_closed_and_go_on_when_it_is_opened(cluster: MemoryCluster) -> None:
    mover, number = await closed(cluster, LONG)
    await until(lambda: home(cluster) is None)
    assert await hello(SHARD + 1), "the other shards live on"
    call = asyncio.create_task(hello(SHARD))
    await asyncio.wait([call], timeout=1)
    assert not call.done()
    assert home(cluster) is None
    assert await mover.open_shards(number, [SHARD]) == [SHARD]
    assert await call
    assert home(cluster)


async def test_a_shard_is_opened_if_nothing_renews_its_closing(cluster: MemoryCluster) -> None:
    mover, number = await closed(cluster, OVER)
    lines = cluster.server.cluster.timeline
    await until(lambda: any(each.action == "shards_opened" for each in lines))
    assert await mover.renew_closings(number, [SHARD], LONG) == []
    assert await hello(SHARD)


async def test_the_next_coordinator_keeps_it_closed_and_opens_it(cluster: MemoryCluster) -> None:
    mover, number = await closed(cluster, LONG)
    await until(lambda: home(cluster) is None)
    leader = cluster.server.cluster.coordinator.incarnation
    (name,) = [name for name, node in cluster.nodes.items() if node.incarnation == leader]
    await cluster.kill_node(name)
    await until(lambda: cluster.server.cluster.coordinator.incarnation != leader, 30)
    call = asyncio.create_task(hello(SHARD))
    await asyncio.wait([call], timeout=1)
    assert not call.done()
    assert await mover.close_shards(number, [SHARD], LONG) == []
    assert await mover.open_shards(number, [SHARD]) == [SHARD]
    assert await call
