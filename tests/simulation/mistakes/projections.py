"""Projections: what is new, in which order, whose turn it is, and when they look."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from itertools import count
from typing import Any

from sharding_app.adapters.memory import projecting
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.projecting import MemoryPart
from sharding_app.adapters.memory.projection_rows import ProjectionRows
from sharding_app.protocol.projection import turn
from sharding_app.protocol.projection.requests import (
    Changes,
    DropHeld,
    Feed,
    Found,
    Held,
    Key,
    ReadEvents,
    ReadFilled,
    Request,
    Span,
    StoredEvent,
    Take,
    Taken,
)
from sharding_app.protocol.projection.view import View
from sharding_app.runtime.projections import waking, worker
from sharding_app.runtime.projections.worker import PartWorker, Work
from tests.simulation.mistakes.mistake import Mistake, no, nothing


def _up_to_the_newest(real: Any) -> Any:
    def upto(self: View, later: View, bound: int | None) -> View:
        """Take a number for the place: what commits later below it is passed over."""
        return View(bound or later.xmax, bound or later.xmax)

    return upto


def _before_the_effect(real: Any) -> Any:
    def changes(self: projecting._Own, request: Changes) -> Found:
        """Write the positions as soon as changes are read: a turn that fails has passed them."""
        found: Found = real(self, request)
        there = self._tables.positions[self._name]
        for first in self._taken:
            there[first] = there[first]._replace(view=there[first].view.upto(found.view, found.bound))
        return found

    return changes


def _waits_for_no_turn(real: Any) -> Any:
    numbers = count()

    def lock(key: tuple[str | int, ...], shared: bool = False, kept: bool = True) -> Lock:
        return Lock((*key, next(numbers)), shared, kept)

    return lock


def _forgets_the_fill(real: Any) -> Any:
    def read(self: projecting._Own, request: ReadFilled) -> dict[Key, View]:
        return {}

    return read


def _before_the_fill_is_through(real: Any) -> Any:
    def tidy(self: ProjectionRows, name: str, journals: Sequence[str] = ("",)) -> None:
        real(self, name, journals)
        self.live[name] = None

    return tidy


def _past_a_failure(real: Any) -> Any:
    def left(spans: dict[Key, list[int]], held: dict[Key, Held]) -> list[Span]:
        found: list[Span] = real(spans, {})
        return found

    return left


def _leaves_out_what_fails(real: Any) -> Any:
    def fails(self: turn._Work, held: Held, error: str) -> Generator[Request, Any, None]:
        self.failed += 1
        yield from ()

    return fails


def _forgets_what_waits(real: Any) -> Any:
    def catch_up(self: turn._Work, held: Held) -> Generator[Request, Any, None]:
        """Take the event that has failed, and forget those that wait behind it."""
        events = yield ReadEvents([Span(*held.key, held.next, held.next)], 1)
        for each in events:
            error: str | None = yield Feed([each], careful=True)
            if error is not None:
                yield from self._fails(held, error)
                return
            self.fed += 1
        yield DropHeld(held.key)

    return catch_up


def _tells_no_erasure(real: Any) -> Any:
    def tell(self: turn._Work, key: Key, held: dict[Key, Held]) -> Generator[Request, Any, None]:
        yield from ()

    return tell


def _sleeps_through_its_turn(real: Any) -> Any:
    async def take(self: Work) -> float:
        """Forget the wake-ups of its turn."""
        pause: float = await real(self)
        self.woken.clear()
        return pause

    return take


def _forgets_what_came_meanwhile(real: Any) -> Any:
    def rested(self: waking._Follower, part: int) -> None:
        """Forget what was committed between a wake-up and the end of the pause after it."""
        self._busy.discard(part)
        self._due.discard(part)

    return rested


def _takes_turns_while_paused(real: Any) -> Any:
    def taken(self: projecting._Own, request: Take, seen: Sequence[int]) -> Taken:
        found: Taken = real(self, request, seen)
        return found._replace(paused=False)

    return taken


def _in_the_first_journal(real: Any) -> Any:
    async def run(self: PartWorker) -> None:
        making = worker._making
        assert making is not None
        part = making.make(self.projection, making.journals[0])
        self._works = [Work(self.projection, part, self.number, self.workers)]
        await self._works[0].run()

    return run


def _waits_for_all_journals(real: Any) -> Any:
    """Take the turns in all journals one after the other, the pause after a failure included."""
    turns: dict[tuple[object, ...], asyncio.Lock] = {}

    async def take(self: Work) -> float:
        key = asyncio.get_running_loop(), self.projection.name, self._number
        async with turns.setdefault(key, asyncio.Lock()):
            pause: float = await real(self)
            return pause

    return take


def _is_live_without_some(real: Any) -> Any:
    def tidy(self: ProjectionRows, name: str, journals: Sequence[str] = ("",)) -> None:
        real(self, name, journals[:1])

    return tidy


def _begins_anew_in_one(real: Any) -> Any:
    def begin(self: ProjectionRows, name: str, view: View) -> None:
        self.beginnings[name] = self.beginnings.get(name, 0) + 1
        self.begin_in(name, name, view)
        self.rows[name] = []

    return begin


def _of_the_last(real: Any) -> Any:
    def feed_chunk(
        self: turn._Work, events: list[StoredEvent], waits: set[Key]
    ) -> Generator[Request, Any, None]:
        """Feed each event with the payload of the last one."""
        return real(self, [each._replace(payload=events[-1].payload) for each in events], waits)  # type: ignore[no-any-return]

    return feed_chunk


PROJECTIONS: dict[str, Mistake] = {
    "projection_passes_over_late_commits": Mistake((17,), View, "upto", _up_to_the_newest),
    "projection_moves_before_its_effect": Mistake((17,), projecting._Own, "_changes", _before_the_effect),
    "projection_takes_two_turns_at_once": Mistake((17,), projecting, "Lock", _waits_for_no_turn),
    "projection_fills_twice": Mistake((17,), projecting._Own, "_read_filled", _forgets_the_fill),
    "projection_is_live_too_early": Mistake((17,), ProjectionRows, "tidy", _before_the_fill_is_through),
    "projection_goes_past_a_failure": Mistake((17,), turn, "_left", _past_a_failure),
    "projection_leaves_out_what_fails": Mistake((17,), turn._Work, "_fails", _leaves_out_what_fails),
    "projection_forgets_what_waits": Mistake((17,), turn._Work, "_catch_up", _forgets_what_waits),
    "projection_is_told_of_no_erasure": Mistake((17,), turn._Work, "_tell_erased", _tells_no_erasure),
    "projection_is_not_woken": Mistake((17,), waking.Waking, "_committed", lambda real: nothing),
    "projection_forgets_what_came_meanwhile": Mistake(
        (17,), waking._Follower, "_rested", _forgets_what_came_meanwhile
    ),
    "projection_sleeps_through_its_turn": Mistake((17,), Work, "_turn", _sleeps_through_its_turn),
    "projection_works_while_paused": Mistake((17,), projecting._Own, "taken", _takes_turns_while_paused),
    # Of several journals.
    "projection_follows_one_journal": Mistake((17,), PartWorker, "run", _in_the_first_journal),
    "projection_waits_for_all_journals": Mistake((17,), Work, "_turn", _waits_for_all_journals),
    "projection_is_live_without_some_journals": Mistake((17,), ProjectionRows, "tidy", _is_live_without_some),
    "projection_begins_anew_in_one_journal": Mistake((17,), ProjectionRows, "begin", _begins_anew_in_one),
    "the_cluster_tells_of_erasures_elsewhere": Mistake((17,), JournalWrites, "_lies_elsewhere", lambda _: no),
    "projection_goes_on_behind_a_lost_tail": Mistake((17,), MemoryPart, "check", lambda _: nothing),
    "projection_gets_the_last_payload": Mistake((17,), turn._Work, "_feed_chunk", _of_the_last),
}
