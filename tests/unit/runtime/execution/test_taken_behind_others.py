"""A message that has taken effect before fails alone, whatever shares its append."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharding_app import ShardingSettings
from sharding_app.entities.registry import registry
from sharding_app.protocol.delivery.outcome import GONE, encode
from sharding_app.protocol.messages import Answer, Deliver, Delivery
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import HotCart
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


class Taker(HotCart, name="taken.Taker"):
    settings = ShardingSettings(number_of_shards=1, pipelined=True)


async def test_it_fails_no_commit_that_its_entity_made_before() -> None:
    async with MemoryCluster([registry.get("taken.Taker")], nodes=1) as cluster:
        with cluster.in_use():
            cart = Taker.ref("a", timeout=20)
            await cart.nothing()
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["taken.Taker"]
            (shard,) = host.shards.values()
            sent: list[Any] = []
            send = host.send

            def sends(target: str, message: Any) -> None:
                if target == "me":
                    sent.append(message)
                else:
                    send(target, message)

            host.send = sends
            with cluster.writes_wait():
                first = asyncio.ensure_future(cart.add("pen"))
                await until(lambda: host.execution.writer.under_way)
                before = asyncio.ensure_future(cart.add("pen"))
                await until(lambda: host.execution.writer.waiting)
                args = host.type.commands["add"].encode(("pen", 10), {})
                again = Deliver(
                    "taken.Taker", 0, shard.epoch, "a", 1, "add", args,
                    deadline_ms=int(host.now() * 1000) + 20_000, delivery=Delivery("gone"),
                )  # fmt: skip
                host.receive("me", (again,))
                assert host.execution.writer.waiting == 2
            assert (await first, await before) == (1, 2)
            await until(lambda: sent)
            assert sent == [Answer(1, encode(GONE))]
            assert await cart.total() == 2
