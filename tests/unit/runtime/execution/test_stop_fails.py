"""A stop handler whose commit fails, while messages wait for its entity."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from sharding_app import Passivate, ShardingSettings, message
from sharding_app.entities.registry import registry
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.one_of_each import Added, Cart
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


@message
class Close: ...


class Closing(Cart, name="stops.Closing"):
    settings = ShardingSettings(number_of_shards=1, stop_message=Close())
    begun: ClassVar[asyncio.Event]
    go_on: ClassVar[asyncio.Event]
    awaits: ClassVar[bool]

    async def receive(self, message: object) -> object:
        Closing.begun.set()
        await Closing.go_on.wait()
        staged = self.persist(Added("last", 1))
        if Closing.awaits:
            await staged
        return Passivate()


@pytest.mark.parametrize("awaits", [False, True])
async def test_messages_that_came_while_a_stop_handler_failed_to_commit_are_handled(*, awaits: bool) -> None:
    Closing.begun, Closing.go_on, Closing.awaits = asyncio.Event(), asyncio.Event(), awaits
    async with MemoryCluster([registry.get("stops.Closing")], nodes=1) as cluster:
        with cluster.in_use():
            cart = Closing.ref("a", timeout=20)
            assert await cart.add("book") == 1
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["stops.Closing"]
            host.entity_life.forget_idle()
            await until(Closing.begun.is_set)
            waits = asyncio.ensure_future(cart.add("book"))
            (shard,) = host.shards.values()
            await until(lambda: shard.slots["a"].mailbox)
            cluster.fail_next_write(Closing, "a")
            Closing.go_on.set()
            assert await asyncio.wait_for(waits, 25 * SLACK) == 2
