"""Entities with personal data, for the tests on PostgreSQL."""

from __future__ import annotations

from sharding_app import (
    DurableState,
    EventSourced,
    Happened,
    Personal,
    Projection,
    ShardingSettings,
    applies,
    command,
    event,
    on,
    query,
)

SEEN: list[str] = []


@event
class Named:
    name: Personal[str]


@event
class BidPlaced:
    bidder: str
    name: Personal[str]
    amount: int


@event
class Closed:
    winner: Personal[str]


class Buyer(EventSourced, name="entities.Buyer"):
    """A person."""

    erased_with_subject = True
    settings = ShardingSettings(snapshot_every=2, keep_snapshots=1)
    name: Personal[str]

    @command
    def register(self, name: Personal[str]) -> Personal[str]:
        self.persist(Named(name))
        return name

    @query
    def shown(self) -> str:
        return self.name.or_else("(erased)")

    @applies(Named)
    def on_named(self, happened: Named) -> None:
        self.name = happened.name


class Sale(EventSourced, name="entities.Sale"):
    """Has data of several persons."""

    settings = ShardingSettings(snapshot_every=2, keep_snapshots=1)
    bids: dict[str, int]
    names: dict[str, Personal[str]]
    greeted: list[Personal[str]]

    def __init__(self) -> None:
        self.bids, self.names, self.greeted = {}, {}, []
        self.welcomed: list[Personal[str]] = []

    @command
    def bid(self, bidder: str, name: str, amount: int) -> int:
        self.persist(BidPlaced(bidder, Personal(name, bidder), amount))
        return len(self.bids)

    @command
    def close(self) -> None:
        best = max(self.bids, key=self.bids.__getitem__)
        self.persist(Closed(self.names[best]))

    @command
    def invite(self, guest: str, name: str) -> None:
        self.schedule(self.ref.greet.bind(Personal(name, guest)), key="invitation", after=3600)

    @command
    def greet(self, guest: Personal[str]) -> None:
        self.welcomed.append(guest)

    @command
    def leave_memory(self) -> None:
        self.context.stop()

    @query
    def shown(self) -> dict[str, str]:
        return {bidder: name.or_else("(erased)") for bidder, name in self.names.items()}

    @query
    def greetings(self) -> list[str]:
        return [each.or_else("(erased)") for each in (*self.greeted, *self.welcomed)]

    @applies(BidPlaced)
    def on_bid(self, happened: BidPlaced) -> None:
        self.bids[happened.bidder] = happened.amount
        self.names[happened.bidder] = happened.name

    @applies(Closed)
    def on_closed(self, happened: Closed) -> None:
        self.greeted.append(happened.winner)


class Wallet(DurableState, name="entities.Wallet"):
    owner: Personal[str]

    @command
    def open(self, owner: Personal[str]) -> None:
        self.owner = owner

    @command
    def leave_memory(self) -> None:
        self.context.stop()

    @query
    def shown(self) -> str:
        return self.owner.or_else("(erased)")


class SaleNames(Projection):
    """Remembers what it was shown."""

    source = Sale

    @on(BidPlaced)
    def bid(self, happened: Happened[BidPlaced]) -> None:
        SEEN.append(happened.event.name.or_else("(erased)"))
