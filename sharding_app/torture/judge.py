"""Judges a run afterwards, from the callers' history, the journal and the log of the homes.

Each function returns the broken promises as sentences; an empty list means that the promise holds.
They read plain values, so that planted bad histories can show that each function finds its
mistakes.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sharding_app.torture.digest import EMPTY, after
from sharding_app.torture.history import PATIENT_SECONDS, Call, by_entity
from sharding_app.torture.linear import check_register

MOST_OF_A_KIND = 6


class Row(NamedTuple):
    """One event of the journal."""

    entity: str
    seq: int
    shard: int
    epoch: int
    token: str
    writer: int
    at: float = math.inf
    "When it was written, by the harness's clock."


class Home(NamedTuple):
    """One change of a shard's row, in Postgres' order."""

    shard: int
    epoch: int
    home: str | None
    step: str
    at: float
    "By the harness's clock."


class Decided(NamedTuple):
    """One change of a shard's row, with its writer and the coordinator of that moment."""

    shard: int
    epoch: int
    writer: str
    "The name of the session."
    term: int
    coordinator: str


class Outage(NamedTuple):
    """A time in which faults lasted longer than any is meant to."""

    begin: float
    end: float

    def within(self, start: float, end: float) -> float:
        """Return how much of it lies between two times."""
        return max(0.0, min(self.end, end) - max(self.begin, start))


def journals(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return each entity's events in the order of their numbers."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda each: (each.entity, each.seq)):
        found.setdefault(row.entity, []).append(row)
    return found


def check_numbers(rows: Iterable[Row]) -> list[str]:
    """Promise 4: an entity's events are numbered 1..n."""
    broken = []
    for entity, events in journals(rows).items():
        numbers = [each.seq for each in events]
        if numbers != list(range(1, len(numbers) + 1)):
            broken.append(f"{entity}: events are numbered {_short(numbers)}")
    return broken


def check_once(calls: Iterable[Call], rows: Sequence[Row]) -> list[str]:
    """Check promise 3: acknowledged tokens are in the journal once, at their places.

    Refused tokens are not there, and no token is there twice.
    """
    broken = []
    places: dict[str, tuple[str, int, tuple[int, int]]] = {}
    for entity, events in journals(rows).items():
        state = EMPTY
        for each in events:
            state = after(state, each.token)
            if each.token in places:
                broken.append(f"{entity}: {each.token} is in the journal twice, as number {each.seq} too")
            places[each.token] = entity, each.seq, state
    for call in calls:
        place = places.get(call.token) if call.token else None
        if place is not None and call.outcome in ("rejected", "refused"):
            broken.append(f"{call.entity}: {call.token} was {call.outcome}, and is in the journal")
        if not call.appends or call.outcome != "ok":
            continue
        if place is None:
            broken.append(f"{call.entity}: {call.token} was acknowledged, and is not in the journal")
        elif place[0] != call.entity:
            broken.append(f"{call.entity}: {call.token} is in the journal of {place[0]}")
        elif place[2] != call.value:
            broken.append(f"{call.entity}: {call.token} answered {call.value}, the journal says {place[2]}")
    return broken


def check_writers(
    rows: Iterable[Row], homes: Sequence[Home], moved: Collection[int] = frozenset()
) -> list[str]:
    """Promise 1: along an entity's numbers epochs never decrease, and no epoch has two homes or two
    writers.

    Events of shards in `moved` may be copies, and bear the epoch that the target knew then. Those
    that were not written in the time of their epoch are left out.
    """
    broken = []
    writers: dict[tuple[int, int], int] = {}
    times = _times(homes)
    for entity, history in journals(rows).items():
        events = [each for each in history if each.shard not in moved or _is_of_its_epoch(each, times)]
        epochs = [each.epoch for each in events]
        if epochs != sorted(epochs):
            broken.append(f"{entity}: epochs decrease: {_short(epochs)}")
        for each in events:
            writer = writers.setdefault((each.shard, each.epoch), each.writer)
            if writer != each.writer:
                broken.append(
                    f"{entity}: processes {writer} and {each.writer} both wrote in shard {each.shard} at epoch {each.epoch}"
                )
    owners: dict[tuple[int, int], str] = {}
    latest: dict[int, int] = {}
    for change in homes:
        if change.epoch < latest.get(change.shard, 0):
            broken.append(f"shard {change.shard}: its epoch went back to {change.epoch}")
        latest[change.shard] = change.epoch
        if change.home is not None:
            owner = owners.setdefault((change.shard, change.epoch), change.home)
            if owner != change.home:
                broken.append(f"shard {change.shard}: {owner} and {change.home} share epoch {change.epoch}")
    return broken


def _times(homes: Sequence[Home]) -> dict[tuple[int, int], tuple[float, float]]:
    """Return when each epoch of a shard began, and when it ended."""
    began: dict[tuple[int, int], float] = {}
    for home in homes:
        began.setdefault((home.shard, home.epoch), home.at)
    found: dict[tuple[int, int], tuple[float, float]] = {}
    ends: dict[int, float] = {}
    for shard, epoch in sorted(began, reverse=True):
        found[shard, epoch] = began[shard, epoch], ends.get(shard, math.inf)
        ends[shard] = began[shard, epoch]
    return found


def _is_of_its_epoch(event: Row, times: Mapping[tuple[int, int], tuple[float, float]]) -> bool:
    begin, end = times.get((event.shard, event.epoch), (0.0, math.inf))
    return begin <= event.at <= end


def check_coordinators(decisions: Iterable[Decided]) -> list[str]:
    """Check promise 7: terms never decrease, and each has one coordinator, the only one that
    decides.
    """
    broken = []
    holders: dict[int, str] = {}
    latest = 0
    for each in decisions:
        what = f"epoch {each.epoch} of shard {each.shard}"
        if each.term < latest:
            broken.append(f"{what}: was decided in term {each.term}, after term {latest}")
        latest = max(latest, each.term)
        holder = holders.setdefault(each.term, each.coordinator)
        if holder != each.coordinator:
            broken.append(f"{what}: {holder} and {each.coordinator} coordinate in term {each.term}")
        if not each.writer.startswith(f"sharding/{each.coordinator}/"):
            broken.append(
                f"{what}: was decided by {each.writer}, {each.coordinator} coordinates in term {each.term}"
            )
    return broken


def check_order(calls: Iterable[Call], rows: Iterable[Row]) -> list[str]:
    """Check promise 5: calls of one process to one entity took effect in their order.

    Calls that their caller repeated are left out: a repetition is a later call.
    """
    by_token = {call.token: call for call in calls if call.token and call.appends and call.attempts == 1}
    broken = []
    last: dict[tuple[int, str], Call] = {}
    for entity, events in journals(rows).items():
        for each in events:
            call = by_token.get(each.token)
            if call is None:
                continue
            before = last.get((call.process, entity))
            if before is not None and before.number > call.number:
                broken.append(
                    f"{entity}: {call.token} (call {call.number}) came after {before.token} ({before.number})"
                )
            last[call.process, entity] = call
    return broken


def check_linearizable(calls: Iterable[Call], rows: Sequence[Row]) -> list[str]:
    """Promise 2: each entity's history is that of one object that handles one call at a time."""
    broken = []
    written = {entity: [each.token for each in events] for entity, events in journals(rows).items()}
    for entity, history in by_entity(calls).items():
        wrong = check_register(history, written.get(entity, []))
        if wrong:
            broken.append(f"{entity}: {wrong}")
    return broken


def check_answers(calls: Sequence[Call], final: Sequence[Call]) -> list[str]:
    """Check promises 8 and 10: no call failed without a reason, and every entity answers at the
    end.
    """
    broken = [f"{call.entity}: {call.op} failed: {call.error}" for call in calls if call.outcome == "failed"]
    broken += [
        f"{call.entity}: does not answer at the end: {call.outcome} {call.error}"
        for call in final
        if call.outcome != "ok"
    ]
    return broken


def check_patience(calls: Iterable[Call], seconds: float, outages: Sequence[Outage] = ()) -> list[str]:
    """Check promises 5 and 10: a lossy network delays calls, and loses none.

    No fault lasts as long as a patient caller waits. On a slow machine one may, if a server takes
    long to come back. The time of such an outage does not count.
    """
    return [
        f"{call.entity}: {call.op} {call.token} was not answered in {call.end - call.start:.1f} s: {call.error}"
        for call in calls
        if call.outcome == "unknown"
        and call.end is not None
        and call.end - call.start - sum(each.within(call.start, call.end) for each in outages) >= seconds
    ]


def judge(
    calls: Sequence[Call],
    final: Sequence[Call],
    rows: Sequence[Row],
    homes: Sequence[Home],
    decided: Sequence[Decided] = (),
    lives: Sequence[str] = (),
    patience: float = PATIENT_SECONDS,
    outages: Sequence[Outage] = (),
    moved: Collection[int] = frozenset(),
) -> list[str]:
    """Return all broken promises; `lives` are the findings of the registry, `moved` the shards that
    were moved between journals.
    """
    everything = [*calls, *final]
    found = (
        check_numbers(rows),
        check_once(everything, rows),
        check_writers(rows, homes, moved),
        check_order(everything, rows),
        check_linearizable(everything, rows),
        check_answers(calls, final),
        check_patience(calls, patience * 0.95, outages),
        check_coordinators(decided),
        list(lives),
    )
    return [sentence for broken in found for sentence in _first(broken)]


def _first(broken: list[str]) -> list[str]:
    """Return the first few of one kind, and the number of the others."""
    more = len(broken) - MOST_OF_A_KIND
    return broken if more <= 0 else [*broken[:MOST_OF_A_KIND], f"… and {more} more like this"]


def _short(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown + (f" … ({len(numbers)} of them)" if len(numbers) > 12 else "")
