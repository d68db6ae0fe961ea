"""A lot that goes to the highest bid. Its page follows the view `board`."""

from typing import TypedDict

from sharding_app import EventSourced, Rejected, applies, command, event, view

SHOWN = 6
"""The newest bids that the page shows."""


class Bid(TypedDict):
    number: int
    by: str
    amount: int


class Board(TypedDict):
    price: int
    leader: str
    count: int
    bids: list[Bid]


@event
class BidPlaced:
    by: str
    amount: int


class Lot(EventSourced):
    """One lot: one lives for each name."""

    count: int
    bids: list[Bid]

    def __init__(self) -> None:
        self.count = 0
        self.bids = []

    @command
    def bid(self, by: str, amount: int) -> int:
        price = self.bids[0]["amount"] if self.bids else 0
        if amount <= price:
            raise Rejected(f"The price is {price} now: bid more.", code="too_low")
        self.persist(BidPlaced(by, amount))
        return amount

    @view(public=True)
    def board(self) -> Board:
        first = self.bids[0] if self.bids else Bid(number=0, by="", amount=0)
        return Board(price=first["amount"], leader=first["by"], count=self.count, bids=self.bids)

    @applies(BidPlaced)
    def on_bid_placed(self, happened: BidPlaced) -> None:
        self.count += 1
        bid = Bid(number=self.count, by=happened.by, amount=happened.amount)
        self.bids = [bid, *self.bids][:SHOWN]
