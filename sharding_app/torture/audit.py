"""Judges the accounts of a run: the total is conserved, each message and each timer has taken
effect exactly once, in order, and no timer fired before its time.

The functions read plain values, so that planted bad histories can show that each finds its
mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sharding_app.torture.accounts import BEATS
from sharding_app.torture.payments import Order

ONCE = {"given", "sent", "received", "confirmed", "returned", "set", "fired", "unset", "repeats", "beat"}
OF = {
    "pay": "sent", "set_timer": "set", "unset_timer": "unset", "set_repeating": "repeats", "give": "given",
    "give in vain": "given",
}  # fmt: skip
"""The event that shows an order to be stored."""

ROUNDING_SECONDS = 1e-4
"""The times of a repeating timer are added up in microseconds."""


class Posting(NamedTuple):
    """One event of an account's journal."""

    account: str
    seq: int
    epoch: int
    what: str
    token: str
    cents: int
    other: str
    seconds: float
    at: float
    "Time of the append, by the server's clock."


class Left(NamedTuple):
    """A message or a timer that is still stored."""

    owner: str
    target: str
    command: str
    parked: bool
    error: str


def check_journals(postings: Iterable[Posting]) -> list[str]:
    """Each account's events are numbered 1..n, and their epochs never decrease."""
    broken = []
    for account, events in _by_account(postings).items():
        if [each.seq for each in events] != list(range(1, len(events) + 1)):
            broken.append(f"{account}: events are numbered {[each.seq for each in events][:12]}")
        epochs = [each.epoch for each in events]
        if epochs != sorted(epochs):
            broken.append(f"{account}: epochs decrease: {epochs[:12]}")
    return broken


def check_orders(orders: Iterable[Order], postings: Iterable[Posting]) -> list[str]:
    """An acknowledged order is in the journal of its account; one that was rolled back is not."""
    stored = {(each.what, each.token, each.account) for each in postings}
    broken = []
    for order in orders:
        there = (OF[order.what], order.token, order.account) in stored
        if order.done == "stored" and not there:
            broken.append(f"{order.account}: {order.what} {order.token} was stored, and took no effect")
        if order.done == "nothing" and there:
            broken.append(f"{order.account}: {order.what} {order.token} was never stored, and took effect")
    return broken


def check_once(postings: Iterable[Posting]) -> list[str]:
    """No step is there twice."""
    counts = Counter((each.what, each.token) for each in postings if each.what in ONCE)
    return [f"{token}: {what} {times} times" for (what, token), times in counts.items() if times > 1]


def check_payments(postings: Sequence[Posting]) -> list[str]:
    """Each payment that was sent has arrived and was confirmed, or has come back; none arrived that
    was not sent.
    """
    sent = {each.token: each for each in postings if each.what == "sent"}
    steps = {(each.what, each.token): each for each in postings}
    broken = []
    for token, each in sent.items():
        arrived, back = steps.get(("received", token)), steps.get(("returned", token))
        who = f"{each.account}: payment {token} to {each.other}"
        if arrived is None and back is None:
            broken.append(f"{who} is lost")
        if arrived is not None and back is not None:
            broken.append(f"{who} has arrived, and has come back too")
        if arrived is not None and (arrived.account, arrived.other, arrived.cents) != (
            each.other, each.account, -each.cents,
        ):  # fmt: skip
            broken.append(f"{who} has arrived as {arrived}")
        if back is not None and (back.account, back.cents) != (each.account, -each.cents):
            broken.append(f"{who} has come back as {back}")
        confirmed = steps.get(("confirmed", token))
        if (confirmed is not None) != (arrived is not None):
            said = "not confirmed" if confirmed is None else "confirmed, and has not arrived"
            broken.append(f"{who} is {said}")
        elif confirmed is not None and confirmed.account != each.account:
            broken.append(f"{who} is confirmed to {confirmed.account}")
    broken += [
        f"{each.account}: {each.what} {each.token}, which was never sent"
        for each in postings
        if each.what in ("received", "returned", "confirmed") and each.token not in sent
    ]
    return broken


def check_order(postings: Sequence[Posting]) -> list[str]:
    """Payments of one account to another arrive in the order in which they were sent."""
    number = {each.token: each.seq for each in postings if each.what == "sent"}
    broken = []
    last: dict[tuple[str, str], Posting] = {}
    for events in _by_account(postings).values():
        for each in events:
            if each.what != "received" or each.token not in number:
                continue
            pair = each.other, each.account
            before = last.get(pair)
            if before is not None and number[before.token] > number[each.token]:
                broken.append(
                    f"{each.account}: payment {each.token} of {each.other} came after {before.token}, which was sent later"
                )
            last[pair] = each
    return broken


def check_timers(postings: Iterable[Posting]) -> list[str]:
    """Each timer has fired at or after its time, unless it was cancelled before; a cancelled one
    does not fire any more.
    """
    broken = []
    for account, events in _by_account(postings).items():
        steps = {(each.what, each.token): each for each in events}
        for each in events:
            fired, unset = steps.get(("fired", each.token)), steps.get(("unset", each.token))
            who = f"{account}: timer {each.token}"
            if each.what == "set":
                # A cancellation that came before the setting has cancelled nothing.
                ended = unset is not None and unset.seq > each.seq
                if fired is None and not ended:
                    broken.append(f"{who} has never fired")
                if fired is not None and fired.at < each.at + each.seconds:
                    broken.append(
                        f"{who} has fired {each.at + each.seconds - fired.at:.3f} s before its time"
                    )
                if fired is not None and unset is not None and each.seq < unset.seq < fired.seq:
                    broken.append(f"{who} has fired after it was cancelled")
            elif each.what == "fired" and ("set", each.token) not in steps:
                broken.append(f"{who} has fired, and was never set")
    return broken


def check_repeating(postings: Iterable[Posting]) -> list[str]:
    """Each repeating timer has fired at or after each of its times, until it has ended itself."""
    broken = []
    for account, events in _by_account(postings).items():
        started = {each.token: each for each in events if each.what == "repeats"}
        beats = {each.token: each for each in events if each.what == "beat"}
        for token, each in started.items():
            for number in range(1, BEATS + 1):
                who = f"{account}: repeating timer {token}"
                beat = beats.pop(f"{token}#{number}", None)
                if beat is None:
                    broken.append(f"{who} has not fired for the time {number}")
                elif beat.at < each.at + number * each.seconds - ROUNDING_SECONDS:
                    early = each.at + number * each.seconds - beat.at
                    broken.append(f"{who} has fired {early:.3f} s before its time {number}")
        broken += [f"{account}: {token} has fired, and was ended or never set" for token in beats]
    return broken


def check_total(postings: Sequence[Posting]) -> list[str]:
    """All money is that which was given from outside."""
    given = sum(each.cents for each in postings if each.what == "given")
    there = sum(each.cents for each in postings)
    return [] if there == given else [f"{given} cents were given, and {there} are there"]


def check_left(left: Iterable[Left]) -> list[str]:
    """No message is left, and none was given up."""
    return [
        f"{each.owner}: {each.command} of {each.target} {'is parked' if each.parked else 'waits still'} {each.error}".rstrip()
        for each in left
    ]


def audit(orders: Sequence[Order], postings: Sequence[Posting], left: Sequence[Left]) -> list[str]:
    """Return all broken promises. Call it when everything had the time to take effect."""
    return [
        *check_journals(postings), *check_orders(orders, postings), *check_once(postings), *check_payments(postings),
        *check_order(postings), *check_timers(postings), *check_repeating(postings),
        *check_total(postings), *check_left(left),
    ]  # fmt: skip


def _by_account(postings: Iterable[Posting]) -> dict[str, list[Posting]]:
    found: dict[str, list[Posting]] = {}
    for each in sorted(postings, key=lambda each: (each.account, each.seq)):
        found.setdefault(each.account, []).append(each)
    return found
