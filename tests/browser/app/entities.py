"""Something of each kind: entities with events and snapshots, with a stored state, and a
singleton, and workers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from sharding_app import (
    ClusterSingleton,
    DurableState,
    Entity,
    EventSourced,
    ShardedDaemonProcess,
    ShardingSettings,
    Worker,
    applies,
    command,
    event,
    message,
    view,
)


@event
class Measured:
    celsius: float
    note: str


class Station(EventSourced):
    """Readings of one place."""

    settings = ShardingSettings(snapshot_every=20, number_of_shards=40)
    readings: int
    highest: float
    notes: list[str]

    def __init__(self) -> None:
        self.readings = 0
        self.highest = -273.15
        self.notes = []

    @command
    def measure(self, celsius: float, note: str = "") -> int:
        self.persist(Measured(celsius, note))
        return self.readings

    @command
    def calibrate(self) -> int:
        raise ZeroDivisionError("the reference is gone")

    @applies(Measured)
    def on_measured(self, happened: Measured) -> None:
        self.readings += 1
        self.highest = max(self.highest, happened.celsius)
        if happened.note:
            self.notes.append(happened.note)


class Forecast(DurableState):
    """What is expected at one place."""

    settings = ShardingSettings(number_of_shards=20)
    text: str

    def __init__(self) -> None:
        self.text = ""

    @command
    def say(self, text: str) -> str:
        self.text = text
        return text


@message
class Ring:
    pass


class Bell(Entity):
    """Rings once in the whole cluster."""

    async def receive(self, said: object) -> object:
        return "dong" if isinstance(said, Ring) else None


bell = ClusterSingleton.start("weather.bell", entity=Bell)


class Balloon(Worker):
    """Drifts."""

    async def run(self) -> None:
        await asyncio.Event().wait()


balloons = ShardedDaemonProcess.start("weather.balloons", worker=Balloon, workers=3)


@event
class BidPlaced:
    by: str
    price: int


class Lot(EventSourced):
    """Something that is sold to who bids most; a page follows it."""

    price: int
    bids: list[tuple[str, int]]

    def __init__(self) -> None:
        self.price = 0
        self.bids = []

    @command
    def bid(self, by: str, price: int) -> int:
        self.persist(BidPlaced(by, price))
        return self.price

    @view(public=True)
    def current(self) -> dict[str, Any]:
        last = [{"by": by, "price": price} for by, price in self.bids[-3:]]
        return {"price": self.price, "count": len(self.bids), "last": last}

    @view
    def reserve(self) -> int:
        return self.price + 1000

    @classmethod
    def may_watch(cls, user: Any, entity_id: str, view: str) -> bool:
        return bool(user.is_staff)

    @applies(BidPlaced)
    def on_bid(self, happened: BidPlaced) -> None:
        self.price = happened.price
        self.bids.append((happened.by, happened.price))
