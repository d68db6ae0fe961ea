"""Steps that come after the end of what they belong to: of a node, a shard, a worker's run."""

import asyncio
from typing import ClassVar

import pytest

from sharding_app import (
    Entity,
    ShardingSettings,
    command,
)
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio

LEAVE_SECONDS = 20.0
SOON = 5.0


class Slow(Entity, name="late.Slow"):
    settings = ShardingSettings(number_of_shards=1)
    goes_on: ClassVar[asyncio.Event]

    @command
    async def work(self) -> None:
        await Slow.goes_on.wait()

    @command
    def hello(self) -> int:
        return 1


# -- A node that leaves ----------------------------------------------------------------------------


async def test_a_node_whose_shards_are_dropped_while_it_leaves_waits_no_longer() -> None:
    Slow.goes_on = asyncio.Event()
    async with MemoryCluster([Slow], nodes=1) as cluster:
        with cluster.in_use():
            working = asyncio.ensure_future(Slow.ref("a", timeout=60).work())
            node = cluster.nodes.pop("node1")
            host = node.hosts["late.Slow"]
            await until(lambda: bool(host.execution.waiting))
            leaving = asyncio.ensure_future(node.stop(LEAVE_SECONDS))
            await until(lambda: host.shards[0].stopping)
            node.end("cut off")
            async with asyncio.timeout(SOON):
                await leaving
            Slow.goes_on.set()
            working.cancel()
            await asyncio.wait([working])
