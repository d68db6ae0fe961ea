"""The test kit, when a type gets another number of shards than its code declares."""

from __future__ import annotations

import asyncio

import pytest

from sharding_app import EventSourced, ShardingSettings, query
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.entities.registry import registry
from sharding_app.protocol.ids import shard_of
from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio

NAME = "resized.Shelf"
MOVED = next(each for each in map(str, range(99)) if shard_of(each, 4) >= 2)
"""Its shard of two is another one than that of four."""


class Shelf(EventSourced, name=NAME):
    settings = ShardingSettings(number_of_shards=2)

    @query
    def is_here(self) -> bool:
        return True


async def test_the_home_of_an_entity_is_found_by_the_numbers_in_force() -> None:
    async with MemoryCluster([registry.get(NAME)], nodes=2) as cluster:
        assert cluster.home_of(Shelf, MOVED) == "", "no call has been made yet"
        with cluster.in_use():
            assert await Shelf.ref(MOVED).is_here()
            assert cluster.home_of(Shelf, MOVED)
            assert await MemoryStore(cluster.server, "p-operator").resize(NAME, 2, 4)
            deadline = cluster.loop.time() + 60
            while cluster.server.cluster.types[NAME].numbering.shards != 4:
                assert cluster.loop.time() < deadline, "the resize does not end"
                await asyncio.sleep(0.01)
            assert await Shelf.ref(MOVED).is_here()
        home = cluster.home_of(Shelf, MOVED)
        assert home
        for name, node in cluster.nodes.items():
            held = {entity for shard in node.hosts[NAME].shards.values() for entity in shard.slots}
            assert held == ({MOVED} if name == home else set())
