"""Answers that wait for the commit of a pipelined entity are as many as its mailbox may hold."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sharding_app import BufferFull, ShardingSettings
from sharding_app.entities.registry import registry
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import HotCart
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


class Asked(HotCart, name="answers.Asked"):
    settings = ShardingSettings(number_of_shards=1, pipelined=True)


@pytest.mark.parametrize("fails", [False, True])
async def test_answers_that_wait_for_a_commit_have_the_limit_of_the_mailbox(*, fails: bool) -> None:
    config = NodeConfig(mailbox_size=10)
    async with MemoryCluster([registry.get("answers.Asked")], nodes=1, config=config) as cluster:
        with cluster.in_use():
            cart = Asked.ref("a", timeout=20)
            await cart.nothing()
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["answers.Asked"]
            (shard,) = host.shards.values()
            slot = shard.slots["a"]
            with cluster.writes_wait():
                add = asyncio.ensure_future(cart.add("book"))
                await until(lambda: slot.tail)
                asks = [asyncio.ensure_future(cart.total()) for _ in range(200)]
                await travel(0.5)
                assert len(slot.tail.followers) <= 11
                assert sum(each.done() for each in asks) == 180, "they are refused"
                if fails:
                    cluster.fail_next_write(Asked, "a")
            outcomes = await asyncio.gather(add, *asks, return_exceptions=True)
            assert outcomes.count(1) == (0 if fails else 21)
            assert outcomes.count(0) == (10 if fails else 0), "those of the mailbox"
            assert sum(isinstance(each, BufferFull) for each in outcomes) == 180
            assert await cart.add("book") == (1 if fails else 2)
            assert slot.answers == 0
            assert host.entity_life.forget_idle() == 1
