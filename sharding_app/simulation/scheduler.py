"""Virtual time: one heap of things to come, shared by every virtual process of a world.

Nothing here reads a wall clock. All chance comes from one `Random`, drawn in the order in which things happen, so
one seed gives one history. `digest` folds that order into a number: equal digests mean equal histories.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharding_app.simulation.loop import SimLoop

TURN_SECONDS = 10e-6
"""The least that a turn of a loop takes: virtual time moves on even where a coroutine spins."""
TURN_JITTER_SECONDS = 300e-6


class Life(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    CRASHED = "crashed"


class Event:
    """Something to come that may still be called off."""

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

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)  # noqa: S311  (replayable on purpose)
        self.now = 0.0
        self.turns = 0
        "Turns of loops taken so far."
        self.digest = 0
        self.on_turn: Callable[[SimLoop], None] | None = None
        "Called after each turn: where promises are checked."
        self.on_error: Callable[[SimLoop | None, dict[str, Any]], None] | None = None
        "Told of every exception that no task or handler took."
        self.on_spin: Callable[[SimLoop, str], None] | None = None
        "Told of a callback that repeats without a pause."
        self.processes: list[Process] = []
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._pushed = 0

    def push(self, when: float, callback: Callable[[], object]) -> None:
        """Have a callback called at a time; equal times keep the order of the calls."""
        self._pushed += 1
        heapq.heappush(self._heap, (max(when, self.now), self._pushed, callback))

    def later(self, delay: float, callback: Callable[[], object]) -> Event:
        """Have a callback called after a delay, outside of any process: how the environment acts."""
        event = Event(self.now + delay, callback)
        self.push(event.when, event.fire)
        return event

    def turn_delay(self) -> float:
        chance = self.random.random()
        return TURN_SECONDS + chance * chance * chance * TURN_JITTER_SECONDS

    def step(self) -> bool:
        """Do the next thing; False when nothing is left."""
        if not self._heap:
            return False
        when, _, callback = heapq.heappop(self._heap)
        self.now = when
        callback()
        return True

    def run(self, until: Callable[[], bool] | None = None, deadline: float | None = None) -> bool:
        """Go on until the condition holds (True), or the deadline is passed or nothing is left (False).

        May be called while an event loop of the real world runs in this thread: that one stands still meanwhile.
        """
        outer, outer_task = events._get_running_loop(), None
        if outer is not None:
            outer_task = asyncio.current_task()
            if outer_task is not None:
                asyncio.tasks._leave_task(outer, outer_task)
            events._set_running_loop(None)
        heap, pop = self._heap, heapq.heappop
        try:
            while True:
                if until is not None and until():
                    return True
                if not heap or (deadline is not None and heap[0][0] > deadline):
                    if deadline is not None:
                        self.now = max(self.now, deadline)
                    return False
                self.now, _, callback = pop(heap)
                callback()
        finally:
            events._set_running_loop(outer)
            if outer is not None and outer_task is not None:
                asyncio.tasks._enter_task(outer, outer_task)

    def close(self) -> None:
        """Let every task that is left end, quietly: nothing may be reported when the garbage is collected."""
        self.on_turn = self.on_error = self.on_spin = None
        for process in self.processes:
            process.bury()
        self._heap.clear()


class Process:
    """A virtual operating system process: its loops stop, go on and die together."""

    def __init__(self, scheduler: Scheduler, name: str, *, rate: float = 1.0, offset: float = 0.0) -> None:
        if not 0.9 <= rate <= 1.1:
            raise ValueError("clock rates differ by less than 10 %")
        self.scheduler = scheduler
        self.name = name
        self.rate = rate
        self.offset = offset
        self.life = Life.RUNNING
        self._asleep = 0.0
        self._paused_at = 0.0
        self.loops: list[SimLoop] = []
        self.index = len(scheduler.processes)
        scheduler.processes.append(self)

    @property
    def awake(self) -> float:
        """Seconds in which this process could run."""
        pause = self.scheduler.now - self._paused_at if self.life is Life.PAUSED else 0.0
        return self.scheduler.now - self._asleep - pause

    def time(self) -> float:
        """Return what this process's clock shows: it counts the time the process was paused."""
        return self.offset + self.scheduler.now * self.rate

    @property
    def stopped(self) -> bool:
        return self.life is not Life.RUNNING

    def pause(self) -> None:
        """SIGSTOP: nothing runs, everything waits, the clock goes on."""
        if self.life is Life.RUNNING:
            self.life = Life.PAUSED
            self._paused_at = self.scheduler.now

    def resume(self) -> None:
        if self.life is Life.PAUSED:
            self._asleep += self.scheduler.now - self._paused_at
            self.life = Life.RUNNING
            for loop in self.loops:
                loop.schedule_turn()

    def crash(self) -> None:
        """SIGKILL: nothing of this process ever runs again. Its tasks are kept, so that no `finally` runs either."""
        self.life = Life.CRASHED

    def bury(self) -> None:
        """At the end of the world: unwind the tasks that are left, whatever they say."""
        self.life = Life.CRASHED
        for loop in self.loops:
            with suppress(RuntimeError):
                loop.unwind()
        self.loops.clear()
