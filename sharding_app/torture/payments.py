"""The load on the accounts: payments, timers, and gifts that are stored from outside. Each order is
recorded as one line of JSON, with its outcome.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from asgiref.sync import sync_to_async
from django.db import Error, close_old_connections, transaction

from sharding_app import Rejected, ShardingError
from sharding_app.settings.load import get_settings

ACCOUNTS = 60
"""Of one round."""
MOST_SECONDS = 4.0
"""Of a timer."""
MOST_INTERVAL_SECONDS = 1.5
"""Of a repeating timer: it ends itself about as late as the others fire. The least is a second."""
What = Literal["pay", "set_timer", "unset_timer", "set_repeating", "give", "give in vain"]
Done = Literal["stored", "unknown", "nothing"]


class Order(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One order of the load.

    `stored`: it was acknowledged. `nothing`: it was refused, or its transaction was rolled back.
    `unknown`: it may be stored or not.
    """

    what: What
    token: str
    account: str
    done: Done = "unknown"
    error: str = ""


class RollBack(Exception):
    """The application changes its mind."""


def accounts_of(round_number: int) -> list[str]:
    """Return the names of a round's accounts."""
    return [f"r{round_number}a{number}" for number in range(ACCOUNTS)]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Order).decode


def read_orders(paths: Iterable[Path]) -> list[Order]:
    """Return the orders of all files. A line that was cut off is ignored."""
    return [
        _decode(line)
        for path in paths
        if path.exists()
        for line in path.read_bytes().split(b"\n")[:-1]
        if line
    ]


class Payments:
    """Makes one order at a time, for the load."""

    def __init__(self, account: Any, seed: int, process: int, patience: float) -> None:
        """`account` is the class of the accounts."""
        self._account = account
        self._chance = random.Random(f"payments {seed}")
        self._process = process
        self._patience = patience
        self._numbers = 0
        self._timers: list[tuple[str, str]] = []
        "Timers that may wait still: account and token."
        self._accounts: list[str] = []

    def new_round(self, number: int, file: Path) -> None:
        self._accounts = accounts_of(number)
        self._timers.clear()
        self._file = file.open("ab", buffering=0)

    def next(self) -> Any:
        """Choose an order; return the coroutine that carries it out."""
        chance = self._chance
        self._numbers += 1
        token = f"{self._process}.{self._numbers}"
        account, other = chance.sample(self._accounts, 2)
        cents, seconds = chance.randrange(1, 10_000), chance.choice([0.0, chance.uniform(0.0, MOST_SECONDS)])
        dice = chance.random()
        if dice < 0.5:
            return self._ask("pay", account, token, other, cents, chance.random() < 0.2)
        if dice < 0.55:
            return self._ask("set_repeating", account, token, chance.uniform(1.0, MOST_INTERVAL_SECONDS))
        if dice < 0.75:
            self._timers.append((account, token))
            return self._ask("set_timer", account, token, seconds)
        if dice < 0.85 and self._timers:
            account, token = self._timers.pop(chance.randrange(len(self._timers)))
            return self._ask("unset_timer", account, token)
        return self._give("give in vain" if chance.random() < 0.3 else "give", account, token, cents)

    async def _ask(self, what: What, account: str, token: str, *args: object) -> None:
        order = Order(what=what, token=token, account=account)
        ref = self._account.ref(account, timeout=self._patience)
        try:
            await getattr(ref, what)(token, *args)
        except Rejected:
            order.done = "nothing"
        except ShardingError as error:
            order.error = f"{error.code}: {error}"
        else:
            order.done = "stored"
        self._note(order)

    async def _give(self, what: What, account: str, token: str, cents: int) -> None:
        """Store a gift in a transaction of this process, and roll some of them back."""
        order = Order(what=what, token=token, account=account)
        try:
            await sync_to_async(self._store)(account, token, cents, in_vain=what == "give in vain")
        except RollBack:
            order.done = "nothing"
        except (ShardingError, Error) as error:
            order.error = repr(error)
        else:
            order.done = "stored"
        self._note(order)

    def _store(self, account: str, token: str, cents: int, *, in_vain: bool) -> None:
        close_old_connections()
        with transaction.atomic(using=get_settings().database):
            self._account.ref(account).sync.give.durably(token, cents)
            if in_vain:
                raise RollBack

    def _note(self, order: Order) -> None:
        self._file.write(_encode(order) + b"\n")
