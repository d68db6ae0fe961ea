"""The load generator: bots of this process that bid on open auctions, as often as the page asks.

A bid has a command id and is sent again until it is acknowledged. So an answer that was lost with
its node leaves no doubt, and the bid counts once. The bots of each run have names of their own: in
the journal the bids of these names are those of the run. The bids of people count as well. An
account numbers its bids, so those before the first acknowledged one are known, and left out.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from dataclasses import dataclass, field, replace

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.db.models import Count

from project.auctions.entities import STEP_CENTS, WELCOME_CENTS, Bidder
from project.auctions.models import OpenAuction
from sharding_app import Rejected, ShardingError
from sharding_app.models import Event

MOST_PER_SECOND = 100
"""The most bids a second that a page may ask for."""
RUN_SECONDS = 300.0
"""A run ends after this time, if its page was forgotten."""
BOTS = 24
UNDER_WAY = 64
"""The most bids that wait for an answer at a time. Beyond it no bid is sent."""
ATTEMPTS = 100
chance = random.SystemRandom()
PAUSE_SECONDS = 0.25
CHART_SECONDS = 60
MOST_PEOPLE = 200
"""The bids of more people are not counted in one run."""


@dataclass
class Run:
    """The bids since bots were last asked for, or since the process began."""

    name: str = field(default_factory=lambda: secrets.token_hex(3))
    rate: int = 0
    ends: float = 0.0
    acknowledged: int = 0
    refused: int = 0
    "The account has refused them, for want of free credit. Nothing was stored."
    again: int = 0
    "Attempts after the first one of a bid."
    unknown: int = 0
    "No attempt was answered."
    under_way: int = 0
    people: dict[str, int] = field(default_factory=dict)
    "Names of people, with the number of their last bid before this run."
    per_second: dict[int, int] = field(default_factory=dict)
    "Acknowledged bids in each of the last seconds, by that clock."
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def bots(self) -> list[str]:
        return [f"bot-{self.name}-{number}" for number in range(BOTS)]

    def acknowledge(self, person: str = "", number: int = 0) -> None:
        """Count a bid that was answered; those of people with their own numbers."""
        second = int(time.monotonic())
        with self.lock:
            if person and person not in self.bots:
                if person not in self.people and len(self.people) >= MOST_PEOPLE:
                    return
                self.people[person] = min(number - 1, self.people.get(person, number))
            self.acknowledged += 1
            self.per_second[second] = self.per_second.get(second, 0) + 1
            for past in [each for each in self.per_second if each < second - CHART_SECONDS]:
                del self.per_second[past]

    def give_up(self) -> None:
        """Count a bid that was never answered."""
        with self.lock:
            self.unknown += 1

    def look(self) -> Run:
        """Return the figures of one moment."""
        with self.lock:
            return replace(self, people=dict(self.people), per_second=dict(self.per_second))

    def last_seconds(self) -> list[int]:
        """Return the acknowledged bids of each whole second, the latest one last."""
        now = int(time.monotonic())
        return [self.per_second.get(each, 0) for each in range(now - CHART_SECONDS, now)]

    def in_journal(self) -> int:
        """Count the bids of this run in the journal."""
        bids = Event.objects.filter(type__name="auctions.Bidder", name="Held")
        found = int(bids.filter(entity__in=self.bots).count())
        by_name = bids.filter(entity__in=self.people).values_list("entity").annotate(Count("seq"))
        return found + sum(int(count) - self.people[name] for name, count in by_name.order_by())


def open_auctions() -> list[tuple[str, int]]:
    """Return the ids and prices of the open auctions, as the list has them."""
    close_old_connections()
    return list(OpenAuction.objects.values_list("id", "price")[:BOTS])


class Generator:
    """One for a process: its thread runs while bids are wanted."""

    def __init__(self) -> None:
        self.run = Run()
        self._lock = threading.Lock()

    def ask(self, rate: int) -> None:
        """Bid so often from now on: 0 ends the run, and the first bid after it begins a new one."""
        with self._lock:
            begins = not self.run.rate
            if begins and rate:
                self.run = Run()
            self.run.rate = min(rate, MOST_PER_SECOND)
            self.run.ends = time.monotonic() + RUN_SECONDS
            if begins and rate:
                drive = threading.Thread(target=asyncio.run, args=(_drive(self.run),), daemon=True)
                drive.start()


async def _drive(run: Run) -> None:
    auctions: list[tuple[str, int]] = []
    looked = 0.0
    async with asyncio.TaskGroup() as bids:
        while run.rate and (now := time.monotonic()) < run.ends:
            if now - looked > 1:
                auctions, looked = await sync_to_async(open_auctions)(), now
            if run.rate and auctions and run.under_way < UNDER_WAY:
                run.under_way += 1
                bids.create_task(_bid(run, *chance.choice(auctions)))
            await asyncio.sleep(1 / max(1, run.rate))
        run.rate = 0


async def _bid(run: Run, auction: str, price: int) -> None:
    """Bid until there is an answer."""
    bot, cents = chance.choice(run.bots), price + STEP_CENTS * chance.randint(1, 5)
    bidder = Bidder.ref(bot, command_id=secrets.token_hex(8), timeout=5)
    try:
        for _ in range(ATTEMPTS):
            try:
                await bidder.bid(auction, cents)
            except Rejected as refused:
                run.refused += 1
                if refused.code == "short":
                    await Bidder.ref(bot).deposit(WELCOME_CENTS)
                return
            except ShardingError:
                run.again += 1
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                run.acknowledge()
                return
        run.give_up()
    except ShardingError:
        return  # The deposit: the next bid of this bot asks for one again.
    finally:
        run.under_way -= 1


generator = Generator()
