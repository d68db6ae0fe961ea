"""Commands of pipelined entities that fail, or wait, behind a commit that is under way.

No object is loaded from a journal that lacks that commit, and no number is used twice or left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar, NamedTuple

import pytest

from sharding_app import Daily, EntityFailed, ShardingSettings, command
from sharding_app.entities.registry import registry
from sharding_app.protocol.shard import SlotState
from sharding_app.runtime.journal.commits import NotCommitted
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
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


class Stage(NamedTuple):
    """A planner that was loaded, its host, and the commits that its writer holds back."""

    cluster: MemoryCluster
    cart: Any
    host: Any
    held: list[Any]
    let_through: Callable[[], None]

    async def at_work(self, call: Coroutine[Any, Any, Any]) -> tuple[asyncio.Future[Any], ...]:
        """Hold a commit back, and let this command's handler wait behind it."""
        add = asyncio.ensure_future(self.cart.add("book"))
        await until(lambda: len(self.held) == 1)
        other = asyncio.ensure_future(call)
        await until(lambda: bool(self.host.execution.waiting))
        return add, other


@asynccontextmanager
async def planner() -> AsyncIterator[Stage]:
    Planner.go_on = asyncio.Event()
    async with MemoryCluster([registry.get("behind.Planner")], nodes=1) as cluster:
        with cluster.in_use():
            cart = Planner.ref("a", timeout=20)
            await cart.nothing()
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["behind.Planner"]
            held: list[Any] = []
            writer, put = host.execution.writer, host.execution.writer.put
            writer.put = held.append
            yield Stage(cluster, cart, host, held, lambda: setattr(writer, "put", put))


async def test_a_command_that_waits_for_the_servers_time_counts_nothing_on_the_next_object() -> None:
    async with planner() as stage:
        cart, host = stage.cart, stage.host
        asks, told, know = asyncio.Event(), asyncio.Event(), host.know_server_time

        async def know_later() -> None:
            asks.set()
            await told.wait()
            await know()

        host.know_server_time = know_later
        calls = await stage.at_work(cart.plan())
        Planner.go_on.set()
        await until(asks.is_set)
        stage.held[0].resolved(NotCommitted.ERASED)  # the object is dropped, and rebuilt
        (shard,) = host.shards.values()
        await until(lambda: shard.slots["a"].state is SlotState.IDLE)
        stage.let_through()
        told.set()
        await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 15 * SLACK)
        assert await cart.add("book") == 1
        assert list(stage.cluster._rows(Planner, "a")) == [1], "the journal has a gap"
        assert host.entity_life.forget_idle() == 1, "it is busy for ever"
        assert await cart.total() == 1


async def test_a_step_that_was_taken_behind_a_commit_under_way_loads_no_stale_object() -> None:
    """As `Appender._write` does: the step fails, and the commit before it is appended anew."""
    async with planner() as stage:
        held = stage.held
        add, step = await stage.at_work(stage.cart.step())
        Planner.go_on.set()
        await until(lambda: len(held) == 2)
        held[1].resolved(NotCommitted.TAKEN)
        await travel(0.3)
        await stage.host.journal.append(held[0].rows)
        held[0].resolved(None)
        stage.let_through()
        assert await add == 1
        assert await stage.cart.total() == 1
        await asyncio.gather(step, return_exceptions=True)
