"""Entities that the tests of this folder share: one of each kind."""

from __future__ import annotations

import asyncio

from sharding_app import (
    DurableState,
    Entity,
    EventSourced,
    Rejected,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)


@event
class Added:
    sku: str
    quantity: int


@event
class Emptied: ...


class Cart(EventSourced, name="entities.Cart"):
    """Plain event sourcing, with handlers that fail in every way."""

    items: dict[str, int]

    def __init__(self) -> None:
        self.items = {}

    @command
    def add(self, sku: str, quantity: int = 1) -> int:
        if quantity < 1:
            raise Rejected("quantity must be at least 1", code="quantity")
        self.persist(Added(sku, quantity))
        return self.items[sku]

    @command
    def add_all(self, skus: list[str]) -> int:
        for sku in skus:
            self.persist(Added(sku, 1))
        return len(self.items)

    @command
    def add_then_empty(self, sku: str) -> int:
        self.persist(Added(sku, 1), Emptied())
        return len(self.items)

    @command
    def nothing(self) -> str:
        return "nothing"

    @command
    def add_then_raise(self, sku: str) -> None:
        self.persist(Added(sku, 1))
        raise RuntimeError("after persist")

    @command
    async def add_in_two(self, sku: str) -> int:
        await self.persist(Added(sku, 1))
        self.persist(Added(sku, 10))
        return self.items[sku]

    @command
    async def add_then_raise_later(self, sku: str) -> None:
        await self.persist(Added(sku, 1))
        self.persist(Added(sku, 10))
        raise RuntimeError("after the second persist")

    @command
    async def slow_add(self, sku: str, seconds: float) -> int:
        await asyncio.sleep(seconds)
        self.persist(Added(sku, 1))
        return self.items[sku]

    @query
    def total(self) -> int:
        return sum(self.items.values())

    @query
    def content(self) -> dict[str, int]:
        return self.items

    @applies(Added)
    def on_added(self, happened: Added) -> None:
        self.items[happened.sku] = self.items.get(happened.sku, 0) + happened.quantity

    @applies(Emptied)
    def on_emptied(self, happened: Emptied) -> None:
        self.items = {}


class HotCart(Cart, name="entities.HotCart"):
    """The same, pipelined."""

    settings = ShardingSettings(pipelined=True)


class Profile(DurableState, name="entities.Profile"):
    """The last value instead of events."""

    name: str = ""
    visits: int = 0

    @command
    def rename(self, name: str) -> str:
        if not name:
            raise Rejected("a name is needed")
        former, self.name = self.name, name
        return former

    @command
    def visit(self) -> int:
        self.visits += 1
        return self.visits

    @command
    def visit_then_raise(self) -> None:
        self.visits += 1
        raise RuntimeError("after the change")

    @command
    def visit_then_reject(self) -> None:
        self.visits += 1
        raise Rejected("changed my mind")

    @command
    async def visit_in_two(self) -> int:
        self.visits += 1
        await self.persist()
        self.visits += 10
        return self.visits

    @command
    def break_state(self) -> None:
        self.visits = "not a number"  # type: ignore[assignment]

    @query
    def show(self) -> tuple[str, int]:
        return self.name, self.visits


class Room(Entity, name="entities.Room"):
    """In memory only."""

    count: int = 0

    @command
    def enter(self) -> int:
        self.count += 1
        return self.count

    @command
    async def enter_slowly(self) -> None:
        await asyncio.sleep(0)
        self.count += 1

    @command(thread=True)
    def enter_in_a_thread(self) -> None:
        self.count += 1

    @command
    def trip(self) -> None:
        raise RuntimeError("somebody fell")

    @query
    def people(self) -> int:
        return self.count
