"""Virtual time: one heap of future events, shared by every virtual process of a world.

Nothing here reads a wall clock. All chance comes from one `Random`, drawn in the order of events,
so one seed gives one history. `digest` folds that order into a number: equal digests mean equal
histories.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import events
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

TURN_SECONDS = 10e-6
"""Least duration of a loop's turn: virtual time moves on even if a coroutine spins."""
TURN_JITTER_SECONDS = 300e-6


class Event:
    """A future event that may still be cancelled."""

    __slots__ = ("callback", "when")

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Scheduler:
    """The heap, the time and the chance of one world."""

    def __init__(self, seed: int = 0, *, looks_every: int = 1) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.turns = 0
        "Turns of loops taken so far."
        self.digest = 0
        self.on_turn: Callable[[str], None] | None = None
        "Called with a process's name after some turns of loops: here promises are checked."
        self.looks_every = looks_every
        "Number of turns from one such call to the next."
        self.on_error: Callable[[str, dict[str, Any]], None] | None = None
        "Called with a process's name and every exception that no task or handler took."
        self.on_spin: Callable[[str, str], None] | None = None
        "Called with a process's name and a callback that repeats without a pause."
        self.burials: list[Callable[[], None]] = []
        "Called at the end of the world, one for each process."
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._pushed = 0

    def push(self, when: float, callback: Callable[[], object]) -> None:
        """Have a callback called at a time; equal times keep the order of the calls."""
        self._pushed += 1
        at = when if when > self.now else self.now  # noqa: FURB136  (one call less for each event)
        heappush(self._heap, (at, self._pushed, callback))

    def later(self, delay: float, callback: Callable[[], object]) -> Event:
        """Call a callback after a delay, outside of any process.

        The environment acts in this way.
        """
        event = Event(self.now + delay, callback)
        self.push(event.when, event.fire)
        return event

    def push_turn(self, turn: Callable[[], object]) -> None:
        """Have a loop's turn called after a delay by chance."""
        chance = self.random.random()
        self._pushed += 1
        delay = TURN_SECONDS + chance * chance * chance * TURN_JITTER_SECONDS
        heappush(self._heap, (self.now + delay, self._pushed, turn))

    def step(self) -> bool:
        """Run the next event. False: nothing is left."""
        if not self._heap:
            return False
        when, _, callback = heappop(self._heap)
        self.now = when
        callback()
        return True

    def run(
        self, until: Callable[[], bool] | None = None, deadline: float | None = None, *, at_once: int = 1
    ) -> bool:
        """Go on until the condition holds (True), or time or work have run out (False).

        The condition is asked before every event, or before each group of `at_once` events. May be
        called while an event loop of the real world runs in this thread; that loop stands still.
        """
        outer, outer_task = events._get_running_loop(), None
        if outer is not None:
            outer_task = asyncio.current_task()
            if outer_task is not None:
                asyncio.tasks._leave_task(outer, outer_task)
            events._set_running_loop(None)
        heap, end = self._heap, math.inf if deadline is None else deadline
        try:
            while until is None or not until():
                for _ in range(at_once):
                    if not heap or heap[0][0] > end:
                        if deadline is not None:
                            self.now = max(self.now, deadline)
                        return until is not None and until()
                    self.now, _, callback = heappop(heap)
                    callback()
            return True
        finally:
            events._set_running_loop(outer)
            if outer is not None and outer_task is not None:
                asyncio.tasks._enter_task(outer, outer_task)

    def close(self) -> None:
        """End every task that is left, quietly: garbage collection must find nothing to report."""
        self.on_turn = self.on_error = self.on_spin = None
        for bury in self.burials:
            bury()
        self._heap.clear()
