"""Commands of pipelined entities that fail, or wait, behind a commit that is under way.

No object is loaded from a journal that lacks that commit, and no number is used twice or left out.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from sharding_app import Daily, EntityFailed, ShardingSettings, command
from sharding_app.entities.registry import registry
from sharding_app.protocol.shard import SlotState
from sharding_app.runtime.journal.commits import NotCommitted
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Added, HotCart
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


class Shut(HotCart, name="behind.Shut"):
    settings = ShardingSettings(number_of_shards=1, pipelined=True)

    def __setattr__(self, name: str, value: object) -> None:
        if self.__dict__.get("shut"):
            raise AttributeError(name)
        super().__setattr__(name, value)

    @command
    def shut_it(self) -> None:
        self.__dict__["shut"] = True


async def test_a_broken_command_behind_a_commit_under_way_loads_no_stale_object() -> None:
    async with MemoryCluster([registry.get("behind.Shut")], nodes=1) as cluster:
        with cluster.in_use():
            cart = Shut.ref("a", timeout=20)
            await cart.nothing()
            with cluster.writes_wait():
                add = asyncio.ensure_future(cart.add("book"))
                await asyncio.sleep(0.2)
                with pytest.raises(EntityFailed):
                    await cart.shut_it()
                await asyncio.sleep(0.2)
            assert await add == 1
            assert await cart.total() == 1  # its caller was told so
            assert await cart.add("book") == 2


class Planner(HotCart, name="behind.Planner"):
    settings = ShardingSettings(number_of_shards=1, pipelined=True)
    go_on: ClassVar[asyncio.Event]

    @command
    async def plan(self) -> None:
        await Planner.go_on.wait()
        self.schedule(self.ref.nothing, key="daily", every=Daily("07:00", tz="UTC"))

    @command
    async def step(self) -> None:
        await Planner.go_on.wait()
        await self.persist(Added("pen", 1))


def slot_of(host: Any) -> Any:
    (shard,) = host.shards.values()
    return shard.slots["a"]


async def test_a_command_that_waits_for_the_servers_time_counts_nothing_on_the_next_object() -> None:
    Planner.go_on = asyncio.Event()
    async with MemoryCluster([registry.get("behind.Planner")], nodes=1) as cluster:
        with cluster.in_use():
            cart = Planner.ref("a", timeout=20)
            await cart.nothing()
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["behind.Planner"]
            held: list[Any] = []
            put, host.execution.writer.put = host.execution.writer.put, held.append
            asks, told, know = asyncio.Event(), asyncio.Event(), host.know_server_time

            async def know_later() -> None:
                asks.set()
                await told.wait()
                await know()

            host.know_server_time = know_later
            add = asyncio.ensure_future(cart.add("book"))
            await until(lambda: len(held) == 1)
            plan = asyncio.ensure_future(cart.plan())
            await until(lambda: bool(host.execution.waiting))
            Planner.go_on.set()
            await until(asks.is_set)
            held[0].resolved(NotCommitted.ERASED)  # the object is dropped, and rebuilt
            slot = slot_of(host)
            await until(lambda: slot.state is SlotState.IDLE)
            host.execution.writer.put = put
            told.set()
            await asyncio.wait_for(asyncio.gather(add, plan, return_exceptions=True), 15)
            assert await cart.add("book") == 1
            assert list(cluster._rows(Planner, "a")) == [1], "the journal has a gap"
            assert host.entity_life.forget_idle() == 1, "it is busy for ever"
            assert await cart.total() == 1


async def test_a_step_that_was_taken_behind_a_commit_under_way_loads_no_stale_object() -> None:
    """As `Appender._write` does: the step fails, and the commit before it is appended anew."""
    Planner.go_on = asyncio.Event()
    async with MemoryCluster([registry.get("behind.Planner")], nodes=1) as cluster:
        with cluster.in_use():
            cart = Planner.ref("a", timeout=20)
            await cart.nothing()
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["behind.Planner"]
            held: list[Any] = []
            put, host.execution.writer.put = host.execution.writer.put, held.append
            add = asyncio.ensure_future(cart.add("book"))
            await until(lambda: len(held) == 1)
            step = asyncio.ensure_future(cart.step())
            await until(lambda: bool(host.execution.waiting))
            Planner.go_on.set()
            await until(lambda: len(held) == 2)
            held[1].resolved(NotCommitted.TAKEN)
            await travel(0.3)
            await host.journal.append(held[0].rows)
            held[0].resolved(None)
            host.execution.writer.put = put
            assert await add == 1
            assert await cart.total() == 1
            await asyncio.gather(step, return_exceptions=True)
