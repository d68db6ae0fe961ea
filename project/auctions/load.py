"""The load generator: bots of this process that bid on open auctions, as often as the page asks.

A bid has a command id and is sent again until it is acknowledged. So an answer that was lost with
its node leaves no doubt, and the bid counts once. The bots of each run have names of their own: in
the journal the bids of these names are those of the run.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import threading
import time
from dataclasses import dataclass, field

from asgiref.sync import sync_to_async
from django.db import close_old_connections

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


@dataclass
class Run:
    """The bids since the rate was last zero."""

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

    @property
    def bots(self) -> list[str]:
        return [f"bot-{self.name}-{number}" for number in range(BOTS)]

    def in_journal(self) -> int:
        """Count the bids of this run in the journal."""
        bids = Event.objects.filter(type__name="auctions.Bidder", entity__in=self.bots, name="Held")
        return int(bids.count())


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
                run.acknowledged += 1
                return
        run.unknown += 1
    except ShardingError:
        return  # The deposit: the next bid of this bot asks for one again.
    finally:
        run.under_way -= 1


generator = Generator()
