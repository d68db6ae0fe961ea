"""Errors in unexpected places: they cost one command, and nothing of any other entity."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest

from sharding_app import (
    DurableState,
    Entity,
    EntityFailed,
    PartiallyApplied,
    Rejected,
    ShardingSettings,
    command,
    query,
)
from sharding_app.adapters.memory import MemoryJournal
from sharding_app.entities.registry import registry
from sharding_app.errors import from_wire, to_wire
from sharding_app.runtime.journal.commits import NotCommitted
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.one_of_each import Added, Cart, HotCart
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio


class Racer(HotCart, name="unexpected.Racer"):
    settings = ShardingSettings(number_of_shards=1, pipelined=True)
    go_on: ClassVar[asyncio.Event]
    fail: ClassVar[Callable[[], None]]

    @command
    async def add_with_rows(self) -> None:
        await Racer.go_on.wait()
        asyncio.get_running_loop().call_soon(Racer.fail)
        await self.persist(Added("pen", 1), in_transaction=lambda: None)


class Order(DurableState, name="unexpected.Order"):
    """It takes nothing more once it is closed."""

    closed: bool = False
    settings = ShardingSettings(number_of_shards=1)

    def __setattr__(self, name: str, value: object) -> None:
        if self.__dict__.get("closed"):
            raise AttributeError(f"{name}: it is closed")
        super().__setattr__(name, value)

    @command
    def close(self) -> None:
        self.closed = True

    @query
    def is_closed(self) -> bool:
        return self.closed


class Stepper(Cart, name="unexpected.Stepper"):
    settings = ShardingSettings(number_of_shards=1)

    @command
    async def raise_over_a_step(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._kept = asyncio.ensure_future(self._step())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, task.cancel)
        raise LookupError("while its step is under way")

    async def _step(self) -> None:
        await self.persist(Added("pen", 1))


class Sender(Entity, name="unexpected.Sender"):
    settings = ShardingSettings(number_of_shards=1)

    @command
    def send_on(self) -> None:
        self.send(Sender.ref("other").hello)

    @command
    async def send_on_later(self) -> None:
        self.send(Sender.ref("other").hello)

    @command
    def hello(self) -> str:
        return "hello"


class Computed(Rejected):
    """Its text follows from its own attribute; its constructor calls none of ours."""

    def __init__(self, left: int) -> None:
        self.left = left

    @property
    def message(self) -> str:  # type: ignore[override]
        return f"only {self.left}"


class Mute:
    """A text that cannot be shown, as a lazy translation with a mistake in it."""

    def __str__(self) -> str:
        raise KeyError("left")


class Shop(Cart, name="unexpected.Shop"):
    settings = ShardingSettings(number_of_shards=1)

    @command
    def refuse(self) -> None:
        raise Computed(3)

    @command
    async def refuse_in_the_middle(self) -> None:
        await self.persist(Added("pen", 1))
        raise Rejected(cast(str, Mute()))


def one(name: str) -> MemoryCluster:
    return MemoryCluster([registry.get(f"unexpected.{name}")], nodes=1)


@pytest.mark.parametrize("before", [1, 2])
async def test_a_step_with_rows_goes_over_no_numbers_of_a_commit_that_failed(before: int) -> None:
    """The failure comes after the step was begun, and before its own task has begun."""
    Racer.go_on = asyncio.Event()
    async with one("Racer") as cluster:
        with cluster.in_use():
            racer = Racer.ref("a", timeout=20)
            await racer.nothing()
            (node,) = cluster.nodes.values()
            host: Any = node.hosts["unexpected.Racer"]
            held: list[Any] = []
            put, host.execution.writer.put = host.execution.writer.put, held.append
            adds = [asyncio.ensure_future(racer.add("book")) for _ in range(before)]
            await until(lambda: len(held) == before)

            def others() -> None:
                for each in held[1:]:
                    each.resolved(NotCommitted.SUPERSEDED)

            def fail() -> None:
                held[0].resolved(NotCommitted.ERASED)
                asyncio.get_running_loop().call_later(0.1, others)

            monkey: Any = Racer
            monkey.fail = staticmethod(fail)
            racing = asyncio.ensure_future(racer.add_with_rows())
            await until(lambda: bool(host.execution.waiting))
            Racer.go_on.set()
            found = await asyncio.wait_for(asyncio.gather(*adds, racing, return_exceptions=True), 15 * SLACK)
            assert all(isinstance(each, Exception) for each in found)
            host.execution.writer.put = put
            assert cluster.events(Racer, "a") == []
            assert await racer.add("book") == 1


async def test_a_class_that_refuses_writes_gives_no_other_entity_its_state() -> None:
    async with one("Order") as cluster:
        with cluster.in_use():
            with pytest.raises(EntityFailed):
                await Order.ref("a").close()
            assert not await Order.ref("b").is_closed()
            assert cluster.events_raw(Order, "b") == []
            assert cluster.events_raw(Order, "a") == []


async def test_a_cancellation_behind_a_handler_that_raised_ends_no_entity() -> None:
    async with one("Stepper") as cluster:
        with cluster.in_use():
            stepper = Stepper.ref("a", timeout=20)
            await stepper.nothing()
            with cluster.writes_wait():
                asked = asyncio.ensure_future(stepper.raise_over_a_step())
                await asyncio.sleep(0.3)
            with pytest.raises(PartiallyApplied):
                await asked
            assert await stepper.add("book") == 1
            assert len(cluster.events(Stepper, "a")) == 2


@pytest.mark.parametrize("way", ["send_on", "send_on_later"])
async def test_a_bug_of_an_adapter_costs_the_command(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    async with one("Sender") as cluster:
        with cluster.in_use():
            await Sender.ref("a").hello()
            with monkeypatch.context() as patched:

                async def stage(*_: object, **__: object) -> None:
                    raise ZeroDivisionError("a bug")

                patched.setattr(MemoryJournal, "stage", stage)
                with pytest.raises(EntityFailed, match="a bug"):
                    await getattr(Sender.ref("a", timeout=20), way)()
            assert await Sender.ref("a").hello() == "hello"


async def test_a_refusal_that_cannot_be_made_again_arrives_as_one() -> None:
    @dataclasses.dataclass(frozen=True)
    class TooFew(Rejected):
        left: int

    for error in (Computed(3), TooFew(3)):
        found = from_wire(*to_wire(error))
        assert isinstance(found, Rejected)
    async with one("Shop") as cluster:
        with cluster.in_use(), pytest.raises(Rejected):
            await Shop.ref("a", timeout=20).refuse()


async def test_a_refusal_without_a_text_costs_its_own_command() -> None:
    async with one("Shop") as cluster:
        with cluster.in_use():
            with pytest.raises(PartiallyApplied):
                await Shop.ref("a", timeout=20).refuse_in_the_middle()
            assert await Shop.ref("a").add("book") == 1
            assert len(cluster.events(Shop, "a")) == 2
