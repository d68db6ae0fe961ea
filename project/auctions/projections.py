"""Turns the events of all auctions into the list of those that are open."""

from project.auctions.entities import Auction, BidPlaced, Closed, ClosingMoved, Opened
from project.auctions.models import OpenAuction
from sharding_app import Happened, Projection, on


class OpenAuctions(Projection):
    """Each row commits together with the position in the journal, so none is lost or made twice."""

    source = Auction
    parts = 2

    @on(Opened)
    def opened(self, happened: Happened[Opened]) -> None:
        new = happened.event
        OpenAuction.objects.create(
            id=happened.entity_id, title=new.title, price=new.cents, closes_at=new.closes_at
        )

    @on(BidPlaced)
    def bid(self, happened: Happened[BidPlaced]) -> None:
        OpenAuction.objects.filter(id=happened.entity_id).update(price=happened.event.cents)

    @on(ClosingMoved)
    def moved(self, happened: Happened[ClosingMoved]) -> None:
        OpenAuction.objects.filter(id=happened.entity_id).update(closes_at=happened.event.closes_at)

    @on(Closed)
    def closed(self, happened: Happened[Closed]) -> None:
        OpenAuction.objects.filter(id=happened.entity_id).delete()

    def clear(self) -> None:
        OpenAuction.objects.all().delete()
