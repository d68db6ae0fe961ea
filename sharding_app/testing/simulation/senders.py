"""Types whose commands send durable messages and set timers (judged by `message_checker`).

An *order* is a list of texts: what to set in motion, the target or the key, and a token. The event
of a command, the effect of its message and the firing of its timer each have a token of their own,
so the journal alone shows what was set in motion and what came of it. One cent goes with each
message between accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from random import Random
from typing import Any, cast
from zoneinfo import ZoneInfo

from sharding_app.entities.base import DurableState, Entity, EventSourced
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.events import applies, event
from sharding_app.entities.failure import Failure
from sharding_app.entities.handlers import command
from sharding_app.entities.registry import registry
from sharding_app.entities.schedules import Daily
from sharding_app.entities.settings import ShardingSettings
from sharding_app.errors import Rejected
from sharding_app.protocol.delivery.recurrence import Missed
from sharding_app.testing.simulation import own_rows, workload
from sharding_app.testing.simulation.message_checker import (
    AHEAD_SECONDS,
    ANSWERED,
    BEATS,
    FAR_SECONDS,
    Order,
    interval_of,
    is_firing_of,
    is_paid,
    is_replaced_after,
    seconds_of,
)
from sharding_app.testing.simulation.workload import ZONE, Book, made_of, seen

HANDLED_SECONDS = 0.01
STUMBLES = 2
"""So often a handler fails before it succeeds."""

# These classes are for virtual clusters only: a real process must not find them among its types.
with registry.isolated():

    @event
    class Moved:
        token: str
        cents: int

    class Target(Book):
        """Takes messages. Each notes its token once it has taken effect."""

        abstract = True

        def handles(self, token: str) -> None:
            """Report that a message or a timer is handled now."""
            if workload.observer is not None:
                workload.observer.messages.handles(self, token)

        @command
        def take(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                self.keep(token)
                return token

        @command
        def refuse(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                raise Rejected("not for me", code="refused")

    class Account(Target, EventSourced, name="sim.Account"):
        """Pays others by messages, gets what they cannot take back, and sets timers."""

        settings = ShardingSettings(number_of_shards=2, passivate_after_seconds=0.8)
        cents: int

        def __init__(self) -> None:
            super().__init__()
            self.cents = 0

        def keep(self, *tokens: str) -> Awaitable[None]:
            return self.persist(*(Moved(token, 0) for token in tokens))

        def move(self, token: str, cents: int) -> Awaitable[None]:
            return self.persist(Moved(token, cents))

        def move_together(self, token: str, cents: int) -> None:
            """Move cents in one transaction with a row of a user's own, where both lie in one
            database.
            """
            if workload.observer is None or workload.observer.lies_in_the_cluster(self):
                self.persist(Moved(token, cents), in_transaction=lambda: own_rows.insert(token))
            else:
                self.move(token, cents)

        @applies(Moved)
        def on_moved(self, happened: Moved) -> None:
            self.tokens.append(happened.token)
            self.cents += happened.cents

        # -- What a client calls -------------------------------------------------------------------

        @command
        def set_out(self, token: str, orders: list[list[str]]) -> int:
            with seen(self):
                self.move(token, -self.give(token, orders))
                return len(self.tokens)

        @command
        async def set_out_in_steps(self, first: str, second: str, orders: list[list[str]]) -> int:
            with seen(self):
                await self.move(first, -self.give(first, orders[:1]))
                await asyncio.sleep(HANDLED_SECONDS)
                self.move(second, -self.give(second, orders[1:]))
                return len(self.tokens)

        @command
        def set_out_together(self, token: str, orders: list[list[str]]) -> int:
            with seen(self):
                cents = self.give(token, orders)
                self.move_together(token, -cents)
                return len(self.tokens)

        @command
        def set_out_and_fail(self, token: str, orders: list[list[str]]) -> int:
            with seen(self):
                self.move(token, -self.give(token, orders))
                raise ZeroDivisionError(token)

        def give(self, event_token: str, orders: list[list[str]]) -> int:
            """Set all of it in motion; return the cents that go out with it."""
            cents = 0
            for place, order in enumerate(orders):
                what, target, token = order
                if workload.observer is not None:
                    workload.observer.messages.staged(self, event_token, place, Order(what, target, token))
                if what == "cancel":
                    self.cancel(target)
                elif what in SCHEDULES:
                    SCHEDULES[what](self, target, token)
                else:
                    self.send_out(what, target, token)
                    cents += is_paid(what, target)
            return cents

        def send_out(self, what: str, target: str, token: str) -> None:
            type_name, _, entity_id = target.partition("/")
            ref = cast(Any, CLASSES[type_name]).ref(entity_id)
            # What nothing is done about when it fails is parked.
            sent = self.send(getattr(ref, METHODS[what]), token)
            if what in ANSWERED:
                sent.reply_to(self.thanked)
            if what not in UNHEEDED:
                sent.on_failure(self.give_back if is_paid(what, target) else self.note_failure)

        # -- What comes back -----------------------------------------------------------------------

        @command
        def thanked(self, token: str) -> None:
            with seen(self):
                self.handles(f"{token}~")
                self.keep(f"{token}~")

        @command
        def give_back(self, failure: Failure) -> None:
            self.fails(failure, 1)

        @command
        def note_failure(self, failure: Failure) -> None:
            self.fails(failure, 0)

        def fails(self, failure: Failure, cents: int) -> None:
            with seen(self):
                token = f"{failure.arguments['token']}!"
                self.handles(token)
                self.move(token, cents)

        # -- As the target of another account ------------------------------------------------------

        @command
        def take(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                self.move(token, 1)
                return token

        @command
        async def take_slowly(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                await asyncio.sleep(HANDLED_SECONDS)
                self.move(token, 1)
                return token

        @command
        async def take_in_steps(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                await self.move(token, 1)
                await asyncio.sleep(HANDLED_SECONDS)
                self.keep(f"{token}+")
                return token

        @command
        def take_together(self, token: str) -> str:
            """Take a cent in one transaction with a row of a user's own."""
            with seen(self):
                self.handles(token)
                self.move_together(token, 1)
                return token

        @command
        def burst(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                self.move(token, 1)
                raise ZeroDivisionError(token)

        @command
        def stumble(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                self.move(token, 1)
                if workload.observer is not None and workload.observer.messages.tries(token) <= STUMBLES:
                    raise ZeroDivisionError(token)
                return token

        @command
        def hesitate(self, token: str) -> str:
            """Reject a message until an operator lets it come again."""
            with seen(self):
                self.handles(token)
                if workload.observer is not None and workload.observer.messages.tries(token) == 1:
                    raise Rejected("not now", code="later")
                self.keep(token)
                return token

        @command
        def pass_on(self, token: str) -> str:
            """Keep the cent, and send a message of its own to itself."""
            with seen(self):
                self.handles(token)
                me = f"{made_of(type(self)).name}/{self.entity_id}"
                self.move(token, 1 - self.give(token, [["pay", me, f"{token}>"]]))
                return token

        # -- Timers --------------------------------------------------------------------------------

        @command
        def ring(self, token: str) -> None:
            with seen(self):
                self.handles(token)
                self.keep(token)

        @command
        def beat(self, token: str) -> None:
            """Ring, and end the timer after a few times."""
            with seen(self):
                number = 1 + sum(each.startswith(f"{token}#") for each in self.tokens)
                mine = f"{token}#{number}"
                self.handles(mine)
                if number >= BEATS:
                    self.give(mine, [["cancel", "beat", ""]])
                self.keep(mine)

        @command
        async def beat_in_steps(self, token: str) -> None:
            """Ring with two commits. The timer ends with the first one: it is cancelled after a few
            times, or another one takes its place.
            """
            with seen(self):
                number = 1 + sum(is_firing_of(token, each) for each in self.tokens)
                mine = f"{token}#{number}"
                self.handles(mine)
                if number >= BEATS:
                    self.give(mine, [["cancel", "beat", ""]])
                elif number >= is_replaced_after(token):
                    self.give(mine, [["ring", "beat", f"{token}&{number}"]])
                await self.keep(mine)
                await asyncio.sleep(HANDLED_SECONDS)
                self.keep(f"{mine}+")

    class Courier(Account, name="sim.Courier"):
        """Takes the next command while its messages are committed."""

        settings = ShardingSettings(
            number_of_shards=1,
            passivate_after_seconds=2.0,
            pipelined=True,
            snapshot_every=8,
            keep_snapshots=1,
        )

    class Safe(Target, DurableState, name="sim.Safe"):
        """Keeps its last state."""

        settings = ShardingSettings(number_of_shards=1, passivate_after_seconds=0.8)

        def keep(self, *tokens: str) -> Awaitable[None]:
            self.tokens += tokens
            return self.persist()

    class Echo(Target, Entity, name="sim.Echo"):
        """Stores nothing: it may hear a message twice. It sends on what it is told to."""

        settings = ShardingSettings(number_of_shards=1, passivate_after_seconds=0.8)

        @command
        def take(self, token: str) -> str:
            with seen(self):
                self.handles(token)
                if workload.observer is not None:
                    workload.observer.messages.is_heard(self, token)
                return token

        @command
        def send_on(self, token: str, target: str) -> str:
            """Send a message, each time as another one. Return its token."""
            with seen(self):
                if workload.observer is not None:
                    token = workload.observer.messages.sent_on(self, token, target)
                type_name, _, entity_id = target.partition("/")
                self.send(cast(Any, CLASSES[type_name]).ref(entity_id).take, token)
                return token


def _ring(account: Account, key: str, token: str) -> None:
    account.schedule(account.ref.ring.bind(token), key=key, after=seconds_of(token))


def _ring_at(account: Account, key: str, token: str) -> None:
    if workload.observer is not None:
        account.schedule(account.ref.ring.bind(token), key=key, at=workload.observer.messages.time_of(token))


def _ring_far(account: Account, key: str, token: str) -> None:
    account.schedule(account.ref.ring.bind(token), key=key, after=FAR_SECONDS)


def _beat_daily(account: Account, key: str, token: str) -> None:
    if workload.observer is not None:
        at = workload.observer.messages.time_of(token, AHEAD_SECONDS).astimezone(ZoneInfo(ZONE))
        account.schedule(account.ref.beat.bind(token), key=key, every=Daily(at.time(), tz=ZONE))


def _beat_steps(account: Account, key: str, token: str) -> None:
    every = timedelta(seconds=interval_of(token))
    account.schedule(account.ref.beat_in_steps.bind(token), key=key, every=every)


def _beat(missed: Missed) -> Callable[[Account, str, str], None]:
    def start(account: Account, key: str, token: str) -> None:
        every = timedelta(seconds=interval_of(token))
        account.schedule(account.ref.beat.bind(token), key=key, every=every, missed=missed)

    return start


METHODS = {
    "pay": "take",
    "ask": "take",
    "slowly": "take_slowly",
    "steps": "take_in_steps",
    "together": "take_together",
    "bounce": "refuse",
    "burst": "burst",
    "stumble": "stumble",
    "pass": "pass_on",
    "lose": "refuse",
    "hesitate": "hesitate",
}
"""The command of the target, by order."""
UNHEEDED = frozenset({"lose", "hesitate"})
"""Orders whose failure the sender leaves to operators."""
SCHEDULES: dict[str, Callable[[Account, str, str], None]] = {
    "ring": _ring,
    "ring_at": _ring_at,
    "ring_far": _ring_far,
    "beat_daily": _beat_daily,
    "beat_steps": _beat_steps,
    "beat": _beat("all"),
    "beat_once": _beat("once"),
    "beat_skip": _beat("skip"),
}
"""What starts a timer, by order."""
OFTEN = tuple(each for each in SCHEDULES if each not in ("ring_far", "beat_daily"))
"""Timers that users set. The others wait for an operator."""
CLASSES: dict[str, type[Target]] = {made_of(cls).name: cls for cls in (Account, Courier, Safe, Echo)}
ACCOUNT, COURIER, SAFE, ECHO = map(made_of, (Account, Courier, Safe, Echo))
SENDERS = frozenset(CLASSES)
"""Names of all types whose commands send, or are sent, durable messages."""
IN_CALM = frozenset({"hesitate", "together"})
"""Orders that users do not give: one for an operator, and one for a calm server, since errors of a
user's own statement count as failures of the target."""
EVERY_WAY = (*(each for each in METHODS if each not in IN_CALM), "pay", "pay", "ask")
IN_MEMORY = ("pay", "pay", "ask", "bounce")
OF_A_STATE = (*IN_MEMORY, "lose")


def orders(
    random: Random, entities: Sequence[tuple[EntityType, str]], tokens: Iterator[str]
) -> list[list[str]]:
    """Make up what a command sets in motion. Often it is the same target again."""
    found: list[list[str]] = []
    made, entity = random.choice(entities)
    for _ in range(random.choice((1, 1, 2, 3))):
        if random.random() < 0.3:
            found.append(_timer(random, next(tokens)))
            continue
        if random.random() < 0.3:
            made, entity = random.choice(entities)
        ways = IN_MEMORY if made.kind == "memory" else OF_A_STATE if made is SAFE else EVERY_WAY
        found.append([random.choice(ways), f"{made.name}/{entity}", next(tokens)])
    return found


def _timer(random: Random, token: str) -> list[str]:
    what = random.choice(("ring", "ring", "ring_at", "cancel", *OFTEN))
    key = "beat" if what.startswith("beat") else random.choice(("morning", "evening"))
    if what == "cancel":
        return [what, random.choice(("beat", "morning", "evening")), ""]
    return [what, key, token]
