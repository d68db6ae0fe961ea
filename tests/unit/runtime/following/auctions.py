"""Entities to follow, and a follower."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from sharding_app import DurableState, Entity, EventSourced, ShardingError, applies, command, event, query


@event
class Bid:
    amount: int


class Auction(EventSourced, name="following.Auction"):
    price: int = 0

    @command
    def bid(self, amount: int) -> int:
        self.persist(Bid(amount))
        return self.price

    @command
    def bid_twice(self, first: int, second: int) -> None:
        self.persist(Bid(first), Bid(second))

    @command
    async def bid_in_steps(self, first: int, second: int) -> None:
        await self.persist(Bid(first))
        self.persist(Bid(second))

    @command
    def bid_together(self, amount: int) -> None:
        self.persist(Bid(amount), in_transaction=lambda: None)

    @query
    def current(self) -> int:
        return self.price

    @applies(Bid)
    def on_bid(self, happened: Bid) -> None:
        self.price = happened.amount


class Lamp(DurableState, name="following.Lamp"):
    on: bool = False

    @command
    def switch(self, on: bool) -> None:
        self.on = on

    @query
    def state(self) -> bool:
        return self.on


class Clicks(Entity, name="following.Clicks"):
    count: int = 0

    @command
    def click(self) -> int:
        self.count += 1
        return self.count

    @command
    async def click_slowly(self) -> None:
        await asyncio.sleep(0.01)
        self.count += 1

    @query
    def total(self) -> int:
        return self.count


class Collected:
    """A follower in a task of its own."""

    def __init__(self, source: AsyncIterator[Any]) -> None:
        self.found: list[Any] = []
        self.error: BaseException | None = None
        self.task = asyncio.ensure_future(self._run(source))

    async def _run(self, source: AsyncIterator[Any]) -> None:
        try:
            async for each in source:
                self.found.append(each)
        except ShardingError as error:
            self.error = error

    @property
    def amounts(self) -> list[int]:
        return [each.event.amount for each in self.found]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def follow(name: str = "1", after: int = 0) -> Collected:
    return Collected(Auction.ref(name).events(after=after))


async def bid(name: str, *amounts: int) -> None:
    for each in amounts:
        await Auction.ref(name).bid(each)
