"""The auction house: auctions, the accounts of those who bid, and the house that opens auctions.

    Bidder ──bid──────> Auction      the credit is held before the auction hears of the bid
    Bidder <──release── Auction      another bid is higher, or the auction has refused this one
    Bidder <──pay────── Auction      the auction is over, and this bid has won
    House  ──open─────> Auction
    House  <──over───── Auction

Each arrow is a durable message: it is stored with the events of its sender, and takes effect once.
So no credit stays held for a bid that has lost, whichever node dies. Money is a whole number of
cents.
"""

from datetime import UTC, datetime, timedelta
from typing import TypedDict

from django.conf import settings

from sharding_app import EventSourced, Failure, Rejected, Singleton, applies, command, event, every, view

WELCOME_CENTS = 1_000_000
"""The play money that each new bidder has."""
MOST_HOLDS = 20
"""Bids of one bidder that may be under way or leading at a time."""
STEP_CENTS = 100
"""A bid has to be this much higher than the price."""
LATE = timedelta(seconds=15)
"""A bid in the last seconds moves the closing, so that others can answer it."""
LAST_CALL = timedelta(minutes=1)
"""The closing moves no further than this."""
SHOWN = 6
"""The newest bids that a page shows."""


def money(cents: int) -> str:
    """Return an amount as people read it."""
    return f"{cents // 100:,}.{cents % 100:02}"


# -- Bidders ---------------------------------------------------------------------------------------


@event
class Deposited:
    cents: int


@event
class Held:
    """Credit is held for a bid. The account numbers its own bids, from 1 on."""

    number: int
    auction: str
    cents: int


@event
class Released:
    number: int
    why: str


@event
class Paid:
    number: int


class Hold(TypedDict):
    auction: str
    cents: int


class Account(TypedDict):
    """What the page of a bidder shows."""

    credit: int
    held: int
    bids: int
    news: str


class Bidder(EventSourced):
    """The account of one bidder. Its credit is never below what is held."""

    credit: int
    bids: int
    holds: dict[int, Hold]
    news: str

    def __init__(self) -> None:
        self.credit = WELCOME_CENTS
        self.bids = 0
        self.holds = {}
        self.news = ""

    @command
    def deposit(self, cents: int) -> int:
        """Take money in, and return the credit."""
        if not 0 < cents <= WELCOME_CENTS:
            raise Rejected(f"Deposit at most {money(WELCOME_CENTS)}.", code="amount")
        self.persist(Deposited(cents))
        return self.credit

    @command
    def bid(self, auction: str, cents: int) -> int:
        """Hold the credit and send the bid, both or neither. Return the number of the bid."""
        if cents <= 0:
            raise Rejected("Bid more than nothing.", code="amount")
        if len(self.holds) >= MOST_HOLDS:
            raise Rejected(f"{MOST_HOLDS} of your bids are under way.", code="busy")
        if cents > self.credit - self._held():
            raise Rejected(f"Your free credit is {money(self.credit - self._held())}.", code="short")
        number = self.bids + 1
        self.persist(Held(number, auction, cents))
        self.send(Auction.ref(auction).bid, self.entity_id, number, cents).on_failure(self.refused)
        return number

    @command
    def refused(self, failure: Failure) -> None:
        """Release the credit of a bid that the auction did not take."""
        self._release(failure.arguments["number"], failure.message)

    @command
    def release(self, number: int) -> None:
        """Release the credit of a bid that another one has beaten."""
        self._release(number, "another bid is higher.")

    @command
    def pay(self, number: int) -> None:
        """Pay for a bid that has won."""
        if number in self.holds:
            self.persist(Paid(number))

    @view(public=True)
    def account(self) -> Account:
        return Account(credit=self.credit, held=self._held(), bids=self.bids, news=self.news)

    def _held(self) -> int:
        return sum(hold["cents"] for hold in self.holds.values())

    def _release(self, number: int, why: str) -> None:
        if number in self.holds:
            self.persist(Released(number, why))

    @applies(Deposited)
    def on_deposited(self, happened: Deposited) -> None:
        self.credit += happened.cents

    @applies(Held)
    def on_held(self, happened: Held) -> None:
        self.bids = happened.number
        self.holds[happened.number] = Hold(auction=happened.auction, cents=happened.cents)

    @applies(Released)
    def on_released(self, happened: Released) -> None:
        hold = self.holds.pop(happened.number)
        self.news = f"{money(hold['cents'])} is free again: {happened.why}"

    @applies(Paid)
    def on_paid(self, happened: Paid) -> None:
        hold = self.holds.pop(happened.number)
        self.credit -= hold["cents"]
        self.news = f"You have won an auction for {money(hold['cents'])}."


# -- Auctions --------------------------------------------------------------------------------------


@event
class Opened:
    title: str
    cents: int
    closes_at: datetime
    by_house: bool


@event
class BidPlaced:
    by: str
    number: int
    cents: int


@event
class ClosingMoved:
    closes_at: datetime


@event
class Closed:
    by: str
    cents: int


class Bid(TypedDict):
    by: str
    number: int
    cents: int


class Board(TypedDict):
    """What the page of an auction shows."""

    title: str
    price: int
    next: int
    leader: str
    count: int
    bids: list[Bid]
    closes_at: datetime | None
    closed: bool


class Auction(EventSourced):
    """One auction. The highest bid at its closing wins."""

    title: str
    start: int
    closes_at: datetime | None
    last_call: datetime | None
    closed: bool
    by_house: bool
    count: int
    bids: list[Bid]

    def __init__(self) -> None:
        self.title = ""
        self.start = 0
        self.closes_at = None
        self.last_call = None
        self.closed = False
        self.by_house = False
        self.count = 0
        self.bids = []

    @command
    def open(self, title: str, cents: int, seconds: int, by_house: bool = False) -> None:
        """Open it. A durable timer closes it, even if all nodes are down for a while."""
        if self.closes_at is not None:
            raise Rejected("This auction was opened before.", code="opened")
        closes_at = datetime.now(UTC) + timedelta(seconds=seconds)
        self.persist(Opened(title, cents, closes_at, by_house))
        self.schedule(self.ref.close, key="closing", at=closes_at)

    @command
    def bid(self, by: str, number: int, cents: int) -> None:
        """Take a bid, whose credit is held, and release the one that it beats."""
        if self.closes_at is None or self.last_call is None:
            raise Rejected("there is no such auction.", code="unknown")
        now = datetime.now(UTC)
        if self.closed or now >= self.closes_at:
            raise Rejected("the auction is over.", code="over")
        if cents < self._next():
            raise Rejected(f"bid at least {money(self._next())}.", code="too_low")
        beaten = self.bids[:1]
        self.persist(BidPlaced(by, number, cents))
        for former in beaten:
            self.send(Bidder.ref(former["by"]).release, former["number"])
        later = min(now + LATE, self.last_call)
        if later > self.closes_at:
            # The timer of the same key takes the place of the former one.
            self.persist(ClosingMoved(later))
            self.schedule(self.ref.close, key="closing", at=later)

    @command
    def close(self) -> None:
        """End it: the leader pays. The timer calls this."""
        if self.closes_at is None or self.closed:
            return
        self.persist(Closed(self._leader(), self._price()))
        for winner in self.bids[:1]:
            self.send(Bidder.ref(winner["by"]).pay, winner["number"])
        if self.by_house:
            self.send(House.the().over, self.entity_id)

    @view(public=True)
    def board(self) -> Board:
        return Board(
            title=self.title,
            price=self._price(),
            next=self._next(),
            leader=self._leader(),
            count=self.count,
            bids=self.bids,
            closes_at=self.closes_at,
            closed=self.closed,
        )

    def _leader(self) -> str:
        return self.bids[0]["by"] if self.bids else ""

    def _price(self) -> int:
        return self.bids[0]["cents"] if self.bids else self.start

    def _next(self) -> int:
        return self._price() + STEP_CENTS if self.bids else self.start

    @applies(Opened)
    def on_opened(self, happened: Opened) -> None:
        self.title, self.start, self.by_house = happened.title, happened.cents, happened.by_house
        self.closes_at = happened.closes_at
        self.last_call = happened.closes_at + LAST_CALL

    @applies(BidPlaced)
    def on_bid_placed(self, happened: BidPlaced) -> None:
        self.count += 1
        bid = Bid(by=happened.by, number=happened.number, cents=happened.cents)
        self.bids = [bid, *self.bids][:SHOWN]

    @applies(ClosingMoved)
    def on_closing_moved(self, happened: ClosingMoved) -> None:
        self.closes_at = happened.closes_at

    @applies(Closed)
    def on_closed(self, happened: Closed) -> None:
        self.closed = True


# -- The house -------------------------------------------------------------------------------------

GOODS = (
    "A brass clock", "A blue vase", "A painted chair", "An old atlas", "A ship in a bottle", "A silver spoon",
    "A globe with a lamp", "A music box", "A green typewriter", "A map of the coast", "A glass bird", "A tin robot",
)  # fmt: skip
START_CENTS = 1_000
SECONDS = 150


@event
class Offered:
    number: int
    auction: str


@event
class Over:
    auction: str


class House(Singleton, EventSourced):
    """The house itself: it lives once in the cluster, and opens auctions when few are open."""

    offered: int
    running: list[str]

    def __init__(self) -> None:
        self.offered = 0
        self.running = []

    @every(seconds=4, missed="skip")
    @command
    def tend(self) -> None:
        """Open one auction if few are open, so that they do not all close at the same time."""
        if len(self.running) >= settings.AUCTIONS_OPEN:
            return
        number = self.offered + 1
        name = f"lot-{number}"
        self.persist(Offered(number, name))
        title = GOODS[number % len(GOODS)]
        self.send(Auction.ref(name).open, title, START_CENTS, SECONDS, by_house=True)

    @command
    def over(self, auction: str) -> None:
        """Hear that an auction of the house is over."""
        if auction in self.running:
            self.persist(Over(auction))

    @applies(Offered)
    def on_offered(self, happened: Offered) -> None:
        self.offered = happened.number
        self.running.append(happened.auction)

    @applies(Over)
    def on_over(self, happened: Over) -> None:
        self.running.remove(happened.auction)
