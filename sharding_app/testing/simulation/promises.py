"""The promises as named checks over evidence: calls, answers, and the journal.

Pure functions. The simulation calls them after every step, the fault tests on real processes at
their end. Times are of one clock that all evidence shares. A broken promise raises `PromiseBroken`
with its number in docs/guarantees.md and its name.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from sharding_app.errors import Rejected, ShardingError, Stored


class PromiseBroken(AssertionError):
    """A promise does not hold. `about` names the entity or shard, if it is about one."""

    def __init__(self, promise: int, name: str, detail: str, about: str | None = None) -> None:
        super().__init__(f"promise {promise}, {name}: {detail}")
        self.promise = promise
        self.name = name
        self.detail = detail
        self.about = about


class Entry(NamedTuple):
    """One event of an entity, as committed."""

    seq: int
    epoch: int
    token: str
    at: float
    "When it was committed."


@dataclass(slots=True, eq=False)
class Call:
    """One command or query of a client, from the call to its end."""

    number: int
    "Counts the calls of its client."
    client: str
    entity: str
    command: str
    tokens: tuple[str, ...]
    """Tokens that it adds to the entity, in this order. Empty for calls that must not change
    anything.
    """
    began: float
    ended: float | None = None
    value: object = None
    error: BaseException | None = None
    patience: float = float("inf")
    "Seconds in which it must have ended, with a value or an error."
    books: str = ""
    "Token of the user's own row that it writes."
    given: tuple[str, ...] = ()
    "The tokens that it was called with, whatever its outcome."
    along: tuple[tuple[str, str], ...] = ()
    "Entities that note a token each before it takes effect, and the tokens."
    repeated: bool = False
    """The client has made the call again with its command id, since its outcome was unknown: it has
    no place in the order.
    """

    forgotten: bool = False
    """The entity has lost what the call stored, and the memory of it, before the call was answered.
    If its home dies then, the call is sent again and takes effect anew, behind later calls that
    the entity remembers: it has no place in the order.
    """

    in_doubt: bool = False
    "An attempt before the last one, with the same command id, may have stored it."

    @property
    def says(self) -> Stored:
        """The error's word on all attempts of an ended call."""
        if self.ended is None or self.in_doubt or not isinstance(self.error, ShardingError):
            return "unknown"
        return self.error.stored

    @property
    def acknowledged(self) -> bool:
        return self.ended is not None and self.error is None

    @property
    def is_ordered(self) -> bool:
        """Whether its effect stands in the order of its client's calls."""
        return not (self.repeated or self.forgotten)


BESIDE = "total_beside"
"""The concurrent query: it has no place in the order of its client's calls."""

Journal = Mapping[str, Sequence[Entry]]
"""By entity, in the order of the commits."""


# -- Promise 1: one writer -------------------------------------------------------------------------


def epochs_do_not_fall(entity: str, entries: Sequence[Entry]) -> None:
    """No event of an epoch stands behind one of a later epoch."""
    for before, after in _pairs(entries):
        if after.epoch < before.epoch:
            raise PromiseBroken(
                1, "one_writer", f"epoch {after.epoch} wrote after epoch {before.epoch}", entity
            )


# -- Promise 2: answers are current ----------------------------------------------------------------


def read_is_linearizable(
    query: Call, entries: Sequence[Entry], acknowledged: Iterable[Call], most: int = sys.maxsize
) -> None:
    """Check that a query's answer was the current state at some moment between call and answer.

    The answer is the number of events that it saw, and the last one's token. It must not be older
    than earlier acknowledged calls, nor newer than the journal. `most`: at most this many events
    have to be in it.
    """
    if query.ended is None:
        return
    seen, last = _answer_of(query)
    if not is_of(query, entries):
        raise PromiseBroken(
            2,
            "reads_are_linearizable",
            f"{query.command} saw {seen} events, the last {last!r}, which no journal has",
            query.entity,
        )
    if seen and entries[seen - 1].at > query.ended:
        raise PromiseBroken(
            2, "reads_are_linearizable", f"{query.command} saw {last!r} before it was committed", query.entity
        )
    place = {entry.token: number for number, entry in enumerate(entries, 1)}
    for call in acknowledged:
        if call.ended is not None and call.ended <= query.began and call.entity == query.entity:
            known = max((place.get(token, 0) for token in call.tokens), default=0)
            if not call.tokens and call.error is None and isinstance(call.value, tuple | list):
                known = _answer_of(call)[0]
            if min(known, most) > seen:
                raise PromiseBroken(
                    2, "reads_are_linearizable",
                    f"{query.command} saw {seen} events, but call {call.client}#{call.number} had shown {known} before it began",
                    query.entity,
                )  # fmt: skip


def is_of(query: Call, entries: Sequence[Entry]) -> bool:
    """Whether a query's answer is a state of this journal."""
    seen, last = _answer_of(query)
    return seen <= len(entries) and (not seen or entries[seen - 1].token == last)


# -- Promise 3: nothing acknowledged is lost -------------------------------------------------------


def acknowledged_is_stored(call: Call, entries: Sequence[Entry]) -> None:
    """Check that the events of an acknowledged command were committed before its answer.

    The answer must belong to their place.
    """
    place = {entry.token: number for number, entry in enumerate(entries, 1)}
    for token in call.tokens:
        if token not in place:
            raise PromiseBroken(
                3,
                "acknowledged_is_stored",
                f"{token!r} was acknowledged and is not in the journal",
                call.entity,
            )
        if call.ended is not None and entries[place[token] - 1].at > call.ended:
            raise PromiseBroken(
                3, "acknowledged_is_stored", f"{token!r} was acknowledged before its commit", call.entity
            )
    if call.tokens and call.value != place[call.tokens[-1]]:
        raise PromiseBroken(
            4, "state_is_the_fold",
            f"{call.command} answered {call.value!r}, its last event is number {place[call.tokens[-1]]}", call.entity,
        )  # fmt: skip


def others_have_stored(call: Call, journal: Journal) -> None:
    """Check that an entity went on only after others had stored their tokens."""
    for entity, token in call.along:
        if not any(entry.token == token for entry in journal.get(entity, ())):
            raise PromiseBroken(
                3, "acknowledged_is_stored", f"{call.entity} went on after {token!r} of {entity}, which is not stored", entity
            )  # fmt: skip


def answer_has_been_right(
    call: Call, entries: Sequence[Entry], former: Iterable[Sequence[Entry]], gone: Container[str]
) -> None:
    """Check the answer of a call during which its entity was erased, or went back.

    `former`: the journals that the entity has lost since the call. `gone`: tokens that are no more.
    """
    stored = {entry.token for entry in entries}
    for token in call.tokens:
        if token not in stored and token not in gone:
            raise PromiseBroken(
                3, "acknowledged_is_stored", f"{token!r} was acknowledged and has never been stored", call.entity
            )  # fmt: skip
    if not call.tokens and not any(is_of(call, each) for each in (entries, *former)):
        raise PromiseBroken(
            2,
            "reads_are_linearizable",
            f"{call.command} saw {call.value!r}, which no journal had",
            call.entity,
        )


def is_shown_by(call: Call, entries: Sequence[Entry]) -> bool:
    """Whether an answer shows anything that stands in this journal as it said."""
    seen = newest_seen(call)
    if call.tokens:
        first = seen - len(call.tokens)
        return [entry.token for entry in entries[max(first, 0) : seen]] == list(call.tokens)
    return seen > 0 and is_of(call, entries)


def newest_seen(call: Call) -> int:
    """Return the number of the newest event that an answer shows; 0: it shows none."""
    if not call.acknowledged:
        return 0
    if isinstance(call.value, tuple | list):
        return _answer_of(call)[0]
    return call.value if call.tokens and isinstance(call.value, int) else 0


def stored_once(entity: str, entries: Sequence[Entry]) -> None:
    """No command has taken effect twice."""
    seen: dict[str, int] = {}
    for entry in entries:
        if entry.token in seen:
            raise PromiseBroken(
                5,
                "effect_once",
                f"{entry.token!r} is event {seen[entry.token]} and event {entry.seq}",
                entity,
            )
        seen[entry.token] = entry.seq


def state_holds_what_was_stored(entity: str, entries: Sequence[Entry], state: Sequence[str]) -> None:
    """Check that a stored state holds everything stored before it, in the same order."""
    before = [entry.token for entry in entries]
    if list(state[: len(before)]) != before:
        raise PromiseBroken(
            3, "states_lose_nothing", f"a state of {len(state)}, {state[-3:]}, follows one of {len(before)}, {before[-3:]}", entity
        )  # fmt: skip


# -- Promise 4: no gaps ----------------------------------------------------------------------------


def no_gaps(entity: str, entries: Sequence[Entry]) -> None:
    for number, entry in enumerate(entries, 1):
        if entry.seq != number:
            raise PromiseBroken(4, "no_gaps", f"event {entry.seq} stands where {number} should", entity)


# -- Promise 5: order ------------------------------------------------------------------------------


def order_is_kept(entity: str, entries: Sequence[Entry], calls: Mapping[str, Call]) -> None:
    """Check that events of one client's calls stand in the order of its calls.

    `calls` is by token.
    """
    last: dict[str, tuple[int, int]] = {}
    for entry in entries:
        call = calls.get(entry.token)
        if call is None or not call.is_ordered:
            continue
        here = call.number, call.tokens.index(entry.token)
        before = last.get(call.client, (-1, -1))
        if here < before:
            raise PromiseBroken(
                5, "order_is_kept",
                f"call {call.client}#{here[0]} took effect after its later call #{before[0]}", entity,
            )  # fmt: skip
        last[call.client] = here


def queries_keep_order(queries: Iterable[Call], entries: Sequence[Entry], calls: Mapping[str, Call]) -> None:
    """Check that a query has seen the events of its client's earlier calls to the entity.

    It may see later ones too: a query whose node died is asked again.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    for place, entry in enumerate(entries, 1):
        call = calls.get(entry.token)
        if call is not None and call.is_ordered:
            places.setdefault(call.client, []).append((call.number, place))
    for query in queries:
        if query.command == BESIDE:
            continue
        seen = _answer_of(query)[0]
        for number, place in places.get(query.client, ()):
            if number < query.number and place > seen:
                raise PromiseBroken(
                    5, "order_is_kept",
                    f"{query.client}#{query.number} {query.command} saw {seen} events, its call #{number} is event {place}",
                    query.entity,
                )  # fmt: skip


def answers_keep_order(call: Call, unanswered: Iterable[Call]) -> None:
    """An entity answers one client in the order of its calls."""
    if call.repeated or not (call.error is None or isinstance(call.error, Rejected)):
        return
    if call.command == BESIDE:
        return
    for other in unanswered:
        if (
            other.client == call.client
            and other.entity == call.entity
            and other.number < call.number
            and not other.repeated
            and other.command != BESIDE
        ):
            raise PromiseBroken(
                5, "answers_keep_order", f"{call.client}#{call.number} is answered before #{other.number}", call.entity
            )  # fmt: skip


def error_says_what_is_stored(call: Call, stored: Container[str]) -> None:
    """Check the error of a call against the journal.

    If it says "nothing", no token is stored; if it says "partly", the first one is.
    """
    if call.says == "nothing":
        for token in call.tokens:
            if token in stored:
                raise PromiseBroken(
                    3, "failed_is_not_stored",
                    f"{call.client}#{call.number} failed with {call.error!r}, and {token!r} is stored", call.entity,
                )  # fmt: skip
    elif call.says == "partly" and call.tokens and call.tokens[0] not in stored:
        raise PromiseBroken(
            3, "partly_is_stored",
            f"{call.client}#{call.number} failed with {call.error!r}, and {call.tokens[0]!r} is not stored", call.entity,
        )  # fmt: skip


# -- Promise 8: nothing is dropped in silence ------------------------------------------------------


def list_is_whole(
    what: str, ids: Sequence[str], prefix: str, wanted: Iterable[str], known: Container[str]
) -> None:
    """Check a list of the ids of a type: it has all that are wanted, each once and in order, and
    none that never stored anything.
    """
    for before, after in itertools.pairwise(each.encode() for each in ids):
        if after <= before:
            raise PromiseBroken(8, "lists_are_whole", f"{what}: {after!r} stands behind {before!r}")
    for each in ids:
        if each not in known or not each.startswith(prefix):
            raise PromiseBroken(8, "lists_are_whole", f"{what}: {each!r} does not belong there")
    listed = dict.fromkeys(ids)
    for each in wanted:
        if each not in listed and each.startswith(prefix):
            raise PromiseBroken(8, "lists_are_whole", f"{what}: {each!r} is missing")


def all_are_told(calls: Iterable[Call], now: float) -> None:
    """Every call has ended in time, with a value or an error of ours."""
    for call in calls:
        if call.ended is None:
            if now - call.began > call.patience:
                raise PromiseBroken(
                    8,
                    "every_call_ends",
                    f"{call.client}#{call.number} {call.command} is not answered since {now - call.began:.2f} s",
                    call.entity,
                )
        elif call.error is not None and not isinstance(call.error, ShardingError):
            raise PromiseBroken(8, "errors_are_typed", f"{call.command} raised {call.error!r}", call.entity)


# -- All of them, at the end -----------------------------------------------------------------------


def check_history(calls: Sequence[Call], journal: Journal, now: float = 0.0) -> None:
    """Check everything that calls and journal can show together."""
    by_token = {token: call for call in calls for token in call.tokens}
    by_entity: dict[str, list[Call]] = {}
    for call in calls:
        by_entity.setdefault(call.entity, []).append(call)
    for entity, entries in journal.items():
        epochs_do_not_fall(entity, entries)
        no_gaps(entity, entries)
        stored_once(entity, entries)
        order_is_kept(entity, entries, by_token)
    for entity, here in by_entity.items():
        entries = journal.get(entity, ())
        answered = [call for call in here if call.acknowledged]
        for call in answered:
            if call.tokens:
                acknowledged_is_stored(call, entries)
            elif isinstance(call.value, tuple | list):
                read_is_linearizable(call, entries, answered)
        asked = [call for call in answered if not call.tokens and isinstance(call.value, tuple | list)]
        queries_keep_order(asked, entries, by_token)
    stored = {entry.token: None for entries in journal.values() for entry in entries}
    for call in calls:
        if call.says == "nothing":
            error_says_what_is_stored(call, stored)
    all_are_told(calls, now)


def _answer_of(query: Call) -> tuple[int, str]:
    seen, last = cast(tuple[int, str], query.value)
    return seen, last


def _pairs(entries: Sequence[Entry]) -> Iterable[tuple[Entry, Entry]]:
    return itertools.pairwise(entries)
