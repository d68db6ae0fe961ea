"""One turn of a part of a projection: one transaction, from the lock of its positions to their new
values. A shell carries out what the generator yields, and commits at its end.

::

    Take -- a first fill is under way --> ReadKeys, ReadEvents, Feed, PutFilled ------------ Save
      |                                                                                       ^
      +--> entities due again --> Changes --> left out: filled, held --> ReadEvents, Feed ----+

Contract:

* All of it commits or nothing does. Positions are locked from `Take` on, so turns of one slice come
  one after the other, whichever worker takes them, and each begins where the one before has ended.
* An event is fed once: changes that the view has seen are not read again. While entities come from
  a fill, or catch up after a failure, what they were fed is known by the view of that reading, or
  by a number.
* An entity's events are fed in the order of their numbers. The transactions of one entity follow
  each other, so the order of transactions is that of its numbers.
* An entity whose event fails waits, and its later events behind it. Others go on.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple

from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.projection.requests import (
    Change,
    Changes,
    DropHeld,
    Feed,
    Found,
    Held,
    Key,
    Keys,
    Look,
    Position,
    PutFilled,
    PutHeld,
    ReadDue,
    ReadErased,
    ReadEvents,
    ReadFilled,
    ReadHeld,
    ReadKeys,
    Request,
    Save,
    Span,
    StoredEvent,
    Take,
    Taken,
    TellErased,
)
from sharding_app.protocol.projection.slices import slice_of
from sharding_app.protocol.projection.view import View

SAVE_SECONDS = 1.0
"""A position that has only changes of other slices behind it is written this often."""
DUE_AT_ONCE = 10
"""Most entities that one turn tries again."""
_END = 2**63 - 1


class Limits(NamedTuple):
    events: int = 2000
    "Of a turn; one transaction of the journal may go beyond it."
    chunk: int = 500
    "Of a call of a handler that takes many, and of one read."
    keys: int = 2000
    "Entities that one turn of a fill looks at."
    failures: int = 5
    "An entity that has failed this often is parked."
    back_off: float = 1.0
    "Seconds after the first failure. They double with each further one."
    back_off_max: float = 60.0


class Outcome(NamedTuple):
    """What a turn has done."""

    events: int = 0
    more: bool = False
    "There is more to do at once."
    paused: bool = False
    filling: bool = False
    failed: int = 0
    "Number of entities at which the handler has failed."


Turn = Generator[Request, Any, Outcome]


def turn(first: int, last: int, types: Sequence[int], limits: Limits, *, careful: bool = False) -> Turn:
    """Take the next turn with the entities of these slices.

    `careful`: feed events one by one, so that a failure concerns one entity.
    """
    taken: Taken = yield Take(first, last)
    if taken.paused:
        return Outcome(paused=True)
    if not _covers(taken.positions, first, last):
        return Outcome(more=True)  # another part has just divided or joined them
    work = _Work(first, last, tuple(sorted(types)), limits, careful, taken)
    if any(each.is_filling for each in work.mine):
        return (yield from work.fill())
    return (yield from work.follow())


def _covers(positions: Iterable[Position], first: int, last: int) -> bool:
    at = first
    for each in sorted(positions):
        if each.first > at:
            return False
        at = max(at, each.last + 1)
    return at > last


def divided(positions: Iterable[Position], first: int, last: int) -> tuple[list[Position], list[Position]]:
    """Divide positions at the ends of a range: those within, and those outside. The events that
    were handled count within: joined again, the pieces have as many.
    """
    mine: list[Position] = []
    others: list[Position] = []
    for each in sorted(positions):
        if each.first < first:
            others.append(each._replace(last=first - 1, events=0))
        if each.last > last:
            others.append(each._replace(first=last + 1, events=0))
        mine.append(each._replace(first=max(first, each.first), last=min(last, each.last)))
    return mine, others


def joined(positions: Iterable[Position]) -> list[Position]:
    """Join neighbours that have come equally far."""
    found: list[Position] = []
    for each in sorted(positions):
        former = found[-1] if found else None
        if (
            former is not None
            and former.last + 1 == each.first
            and not former.is_filling
            and not each.is_filling
            and former.view == each.view
            and former.fill_until == each.fill_until
        ):
            found[-1] = former._replace(
                last=each.last, turn=max(former.turn, each.turn), events=former.events + each.events
            )
        else:
            found.append(each)
    return found


class _Work:
    def __init__(
        self, first: int, last: int, types: tuple[int, ...], limits: Limits, careful: bool, taken: Taken
    ) -> None:
        self.first = first
        self.last = last
        self.types = types
        self.limits = limits
        self.careful = careful
        self.taken = taken
        self.holds = taken.holds
        self.mine, self.others = divided(taken.positions, first, last)
        self.fed = 0
        self.failed = 0
        self.more = False

    # -- What is new -------------------------------------------------------------------------------

    def follow(self) -> Turn:
        yield from self._try_again()
        found: Found = yield Changes(self.types, self.first, self.last, self.limits.events)
        changes = found.changes
        had_filled = any(each.fill_until is not None for each in self.mine)
        if had_filled and changes:
            filled: dict[Key, View] = yield ReadFilled(changes)
            changes = [
                each for each in changes if not (each.key in filled and filled[each.key].sees(each.xid))
            ]
        erased, spans = _gathered(changes)
        held: dict[Key, Held] = {}
        if self.holds and (erased or spans):
            rows: list[Held] = yield ReadHeld(list(dict.fromkeys([*erased, *spans])))
            held = {each.key: each for each in rows}
        for key, first in erased.items():
            if first <= 1:
                if held.pop(key, None) is not None:
                    yield DropHeld(key)
                yield from self._tell_erased(key, held)
            elif key in held and held[key].next > first:
                held[key] = held[key]._replace(next=first)
                yield PutHeld(held[key])
        yield from self._feed(_left(spans, held), found.view, found.bound)
        passed = [_through(each._replace(view=each.view.upto(found.view, found.bound))) for each in self.mine]
        is_late = (found.any or self.holds) and self.taken.age >= SAVE_SECONDS
        if self.fed or found.changes or self.others or had_filled or is_late or found.bound is not None:
            yield from self._save(passed)
        return Outcome(self.fed, self.more or found.bound is not None, failed=self.failed)

    def _feed(
        self, spans: list[Span], view: View, bound: int | None, fresh: Iterable[Key] = ()
    ) -> Generator[Request, Any, set[Key]]:
        """Feed events in the order of the spans, a chunk at a time. Return the entities that wait
        for a failure.

        `view` and `bound` say which erasures are known already. Events before the first one that is
        there are no loss to an entity that is `fresh`.
        """
        waits: set[Key] = set()
        begins = set(fresh)
        while spans:
            events: list[StoredEvent] = yield ReadEvents(spans, self.limits.chunk)
            any_read = bool(events)
            spans = _from_first(spans, events, begins)
            kept = yield from self._kept([each.key for each in spans], view, bound)
            events = [each for each in events if each.seq < kept.get(each.key, _END)]
            spans = [each._replace(last=min(each.last, kept.get(each.key, _END) - 1)) for each in spans]
            spans = [each for each in spans if each.first <= each.last]
            if events:
                yield from self._feed_chunk([each for each in events if each.key not in waits], waits)
                spans, missing = _behind(spans, events)
                yield from self._miss(missing, waits)
            elif not any_read:
                yield from self._miss(spans, waits)
                spans = []
            spans = [each for each in spans if each.key not in waits]
        return waits

    def _kept(
        self, keys: Iterable[Key], view: View | None, bound: int | None
    ) -> Generator[Request, Any, dict[Key, int]]:
        """Return the entities that were erased, as of now, and from which number on.

        Events that were read may be others of the same numbers, of a later life: that erasure, and
        those events, come in a later turn.
        """
        erased: list[Change] = yield ReadErased(self.types, self.first, self.last, list(dict.fromkeys(keys)))
        kept: dict[Key, int] = {}
        for each in erased:
            if view is None or not view.sees(each.xid) or (bound is not None and each.xid >= bound):
                kept[each.key] = min(each.first, kept.get(each.key, _END))
        return kept

    def _miss(self, spans: Iterable[Span], waits: set[Key]) -> Generator[Request, Any, None]:
        """Park entities whose events are not in the journal, though nothing says that they were
        erased.
        """
        for span in spans:
            if span.key not in waits:
                waits.add(span.key)
                self.failed += 1
                yield PutHeld(
                    _held(span.key, span.first)._replace(failures=1, parked=True, error=_gone(span.first))
                )

    def _feed_chunk(self, events: list[StoredEvent], waits: set[Key]) -> Generator[Request, Any, None]:
        if not events:
            return
        if not self.careful:
            yield Feed(events, careful=False)
            self.fed += len(events)
            return
        for each in events:
            if each.key in waits:
                continue
            error: str | None = yield Feed([each], careful=True)
            if error is None:
                self.fed += 1
            else:
                waits.add(each.key)
                yield from self._fails(_held(each.key, each.seq), error)

    def _fails(self, held: Held, error: str) -> Generator[Request, Any, None]:
        self.failed += 1
        failures = held.failures + 1
        delay = doubled(self.limits.back_off, failures - 1, self.limits.back_off_max)
        parked = failures >= self.limits.failures
        yield PutHeld(held._replace(failures=failures, delay=delay, parked=parked, error=error, until=None))

    def _tell_erased(self, key: Key, held: dict[Key, Held]) -> Generator[Request, Any, None]:
        error: str | None = yield TellErased(key, self.careful)
        if error is not None:
            # Its next life begins with event 1, which waits behind the erasure.
            held[key] = _held(key, 0)
            yield from self._fails(held[key], error)

    # -- After a failure ---------------------------------------------------------------------------

    def _try_again(self) -> Generator[Request, Any, None]:
        """Try entities again that are due."""
        if not self.holds:
            return
        due: list[Held] = yield ReadDue(self.first, self.last, DUE_AT_ONCE)
        for held in due:
            kept = yield from self._kept([held.key], None, None)
            if not kept:
                yield from self._catch_up(held)
        self.more = self.more or len(due) == DUE_AT_ONCE

    def _catch_up(self, held: Held) -> Generator[Request, Any, None]:
        at = held.next
        if at == 0:
            error: str | None = yield TellErased(held.key, True)
            if error is not None:
                yield from self._fails(held, error)
                return
            at = 1
        events: list[StoredEvent] = yield ReadEvents([Span(*held.key, at, _END)], self.limits.chunk)
        kept = yield from self._kept([held.key], None, None)
        if kept:
            return
        for number, each in enumerate(events, at):
            if each.seq != number:
                events = events[: number - at]
                if not events:
                    self.failed += 1
                    yield PutHeld(held._replace(next=at, parked=True, error=_gone(at)))
                    return
                break
        if not self.careful and not held.failures and events:
            yield Feed(events, careful=False)
            self.fed += len(events)
            at += len(events)
        else:
            for each in events:
                error = yield Feed([each], careful=True)
                if error is not None:
                    again = held if each.seq == held.next else held._replace(failures=0)
                    yield from self._fails(again._replace(next=each.seq), error)
                    return
                self.fed += 1
                at += 1
        healthy = held._replace(next=at, failures=0, delay=0.0, parked=False, error="")
        if events:
            yield PutHeld(healthy)
            self.more = True
            return
        view: View = yield Look()
        yield PutHeld(healthy._replace(until=view.xmax))

    # -- The first fill ----------------------------------------------------------------------------

    def fill(self) -> Turn:
        yield from self._try_again()
        place, type_id = next(
            (number, each.fill_type) for number, each in enumerate(self.mine) if each.fill_type is not None
        )
        position, limit = self.mine[place], self.limits.events
        found: Keys = yield ReadKeys(
            type_id, position.fill_after, position.first, position.last, self.limits.keys
        )
        upto = found.upto
        spans: list[Span] = []
        longer: Span | None = None
        for key in found.keys:
            count = key.last - key.first + 1
            if count <= limit:
                spans.append(Span(type_id, key.entity, key.first, key.last))
                limit -= count
                continue
            if spans:
                upto = spans[-1].entity
            else:
                # The rest of a long one comes as that of an entity that has failed: it catches up.
                longer = Span(type_id, key.entity, key.first, key.first + limit - 1)
                spans.append(longer)
                upto = key.entity
            break
        # The front of an entity may be trimmed between the two reads: the trim has not seen that a
        # projection begins here.
        waits = yield from self._feed(spans, found.view, None, fresh=[each.key for each in spans])
        if longer is not None and longer.key not in waits:
            yield PutHeld(_held(longer.key, longer.last + 1))
        yield PutFilled(type_id, position.first, position.last, upto, found.view)
        until = max(position.fill_until or 0, found.view.xmax)
        if upto is None:
            following = self._type_after(type_id)
            after = position._replace(fill_type=following, fill_after="", fill_until=until)
        else:
            after = position._replace(fill_after=upto, fill_until=until)
        self.mine[place] = after
        yield from self._save(self.mine)
        return Outcome(self.fed, more=True, filling=True, failed=self.failed)

    def _type_after(self, type_id: int) -> int | None:
        return next((each for each in self.types if each > type_id), None)

    def _save(self, positions: Iterable[Position]) -> Generator[Request, Any, None]:
        counted = [each._replace(turn=each.turn + 1) for each in positions]
        counted[0] = counted[0]._replace(events=counted[0].events + self.fed)
        yield Save([*self.others, *joined(counted)])


def _through(position: Position) -> Position:
    """End the fill of a position whose view has passed it."""
    if position.fill_until is not None and position.view.xmin >= position.fill_until:
        return position._replace(fill_until=None)
    return position


def _held(key: Key, following: int) -> Held:
    return Held(*key, slice=slice_of(key[1]), next=following)


def _gone(number: int) -> str:
    return f"events from {number} on are not in the journal: rows were deleted by hand"


def _from_first(spans: list[Span], events: list[StoredEvent], begins: set[Key]) -> list[Span]:
    """Let spans of these entities begin at the first event that was read of each, and take the
    entities out of `begins`. One of which nothing is there is left out.
    """
    firsts: dict[Key, int] = {}
    for each in events:
        firsts.setdefault(each.key, each.seq)
    last = max((place for place, each in enumerate(spans) if each.key in firsts), default=len(spans))
    found: list[Span] = []
    for place, span in enumerate(spans):
        if place > last or span.key not in begins:
            found.append(span)
            continue
        begins.discard(span.key)
        if span.key in firsts:
            found.append(span._replace(first=firsts[span.key]))
    return found


def _behind(spans: list[Span], events: list[StoredEvent]) -> tuple[list[Span], list[Span]]:
    """Return what is left of the spans behind these events, and what is missing before the last of
    them.
    """
    numbers: dict[Key, list[int]] = {}
    for each in events:
        numbers.setdefault(each.key, []).append(each.seq)
    at = max(place for place, each in enumerate(spans) if each.key in numbers)
    left: list[Span] = []
    missing: list[Span] = []
    for place, span in enumerate(spans):
        if place > at:
            left.append(span)
            continue
        expected = span.first
        for seq in numbers.get(span.key, ()):
            if seq != expected:
                missing.append(span._replace(first=expected, last=seq - 1))
            expected = seq + 1
        if expected <= span.last:
            (left if place == at else missing).append(span._replace(first=expected))
    return left, missing


def _gathered(changes: Iterable[Change]) -> tuple[dict[Key, int], dict[Key, list[int]]]:
    """Return the entities that were erased, and from which number on; and for each entity which of
    its events are new.

    What was new before an erasure is gone with it.
    """
    erased: dict[Key, int] = {}
    spans: dict[Key, list[int]] = {}
    for each in changes:
        span = spans.get(each.key)
        if each.erased:
            if span is not None:
                span[1] = each.first - 1
                if span[0] > span[1]:
                    del spans[each.key]
            erased[each.key] = min(each.first, erased.get(each.key, _END))
        elif span is None:
            spans[each.key] = [each.first, each.last]
        else:
            span[0] = min(span[0], each.first)
            span[1] = max(span[1], each.last)
    return erased, spans


def _left(spans: dict[Key, list[int]], held: dict[Key, Held]) -> list[Span]:
    """Return what is to be fed: nothing of entities that wait, and of those that have caught up
    only what is behind.
    """
    found: list[Span] = []
    for key, (first, last) in spans.items():
        waits = held.get(key)
        if waits is not None:
            if waits.until is None:
                continue
            first = max(first, waits.next)
        if first <= last:
            found.append(Span(*key, first, last))
    return found
