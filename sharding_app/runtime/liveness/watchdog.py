"""The main loop's heartbeat, and a thread that names the handler that holds the loop.

The loop beats by itself. Before it runs a handler, the host names it: `watchdog.running = (type,
command)`, one assignment. When no beat has come for longer than the limit, the thread logs type,
command and the main thread's stack, once. When it is over, it logs how long it took. Logs hold no
arguments and no state. Of a recovery they name the entity, since nothing else shows the cause.

A loop may stand still without end: in a deadlock of threads, or in `Thread.start`, which does not
return if the new thread found no memory to begin with. Such a process neither serves nor ends, so
no supervisor starts another one. Long after its lease has ended, the thread ends the process. If
the thread itself cannot go on, since the loop stands in a write to a log that takes nothing more,
a timer of `faulthandler` ends the process a little later: that one needs no lock of Python. The
lifeline's loop, in a thread of its own, is watched over as well: without it the node has no lease.

Only time in which the watching thread itself turned counts. After a SIGSTOP or a suspended machine
both threads wake together, and no handler is to blame.
"""

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable

from sharding_app.ports.clock import Clock

logger = logging.getLogger("sharding.node")

BEAT_SECONDS = 0.05
LOOK_SECONDS = 0.1
CLOSE_LOOK_SECONDS = 0.02
WORDS_SECONDS = 5.0
"""Time for the thread's last words, after which the timer ends the process."""


class Stall:
    """Counts the time in which a looker turned, and the loop that it looks at did not beat.

    A pause of the whole process is no stall.
    """

    def __init__(self, now: float) -> None:
        self.seconds = 0.0
        self._beat = float("nan")
        self._looked = now

    def look(self, beat: float, now: float, at_most: float) -> float:
        """Return the seconds so far. `at_most`: of the time since the last look, no more counts."""
        passed, self._looked = now - self._looked, now
        if beat != self._beat:
            self._beat, self.seconds = beat, 0.0
        else:
            self.seconds += min(passed, at_most)
        return self.seconds


class Watched:
    """Another loop of the process: its name, the ident of its thread, and its heartbeat."""

    __slots__ = ("beat", "name", "stall", "thread")

    def __init__(self, name: str, thread: int, beat: Callable[[], float], now: float) -> None:
        self.name = name
        self.thread = thread
        self.beat = beat
        self.stall = Stall(now)


class Watchdog:
    """Started on the loop that it watches. It is the `Heart` that the lifeline looks at."""

    def __init__(
        self,
        clock: Clock,
        limit_seconds: float = 0.5,
        end_seconds: float = 0.0,
        end_process: Callable[[], object] = lambda: None,
    ) -> None:
        """`end_process` is called after a stall of `end_seconds`; 0: never."""
        self.running: tuple[str, str] | None = None
        "(entity type, command) of the handler that runs, or ran last."
        self.recovering: tuple[str, str] | None = None
        "(entity type, id) of the entity that is being rebuilt from its events."
        self.lag_seconds = 0.0
        "Delay of the last beat."
        self.worst_lag_seconds = 0.0
        self._recent_lag_seconds = 0.0
        self.blocked = 0
        "Number of times that the loop was held for too long."
        self._clock = clock
        self._limit = limit_seconds
        self._end_seconds = end_seconds
        self._end_process = end_process
        self._others: dict[Watched, None] = {}
        self._nowhere: int | None = None
        "The descriptor where the timer writes: a log that takes nothing more would hold it too."
        self._beat = clock.now()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def beat(self) -> float:
        return self._beat

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = threading.get_ident()
        self._tick()
        if self._end_seconds:
            self._nowhere = os.open(os.devnull, os.O_WRONLY)
        self._thread = threading.Thread(target=self._watch, name="sharding-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join(timeout=1.0)
        if self._nowhere is not None:
            faulthandler.cancel_dump_traceback_later()
            os.close(self._nowhere)
            self._nowhere = None

    def watch_over(self, name: str, thread: int, beat: Callable[[], float]) -> Callable[[], None]:
        watched = Watched(name, thread, beat, self._clock.now())
        self._others[watched] = None
        return lambda: self._others.pop(watched, None)

    def take_lag_seconds(self) -> float:
        """Return the worst delay since the last call."""
        found, self._recent_lag_seconds = self._recent_lag_seconds, 0.0
        return found

    def report_stall(self, seconds: float) -> None:
        """Log where the loop stands: the lifeline gives up on it."""
        logger.critical(
            "the event loop has stood still for %.1f s: this node stops renewing its lease and will be taken for "
            "dead. It stands in %s\n%s",
            seconds,
            self._handler(),
            self.stack(),
            extra={"action": "loop_stalled", **self._names()},
        )

    def stack(self, thread: int | None = None) -> str:
        """Return the stack of a thread: the main loop's, or another one."""
        frame = sys._current_frames().get(self._main if thread is None else thread)
        return "".join(traceback.format_stack(frame)) if frame is not None else "(that thread has ended)"

    def _tick(self) -> None:
        now = self._clock.now()
        self.lag_seconds = max(0.0, now - self._beat - BEAT_SECONDS)
        self.worst_lag_seconds = max(self.worst_lag_seconds, self.lag_seconds)
        self._recent_lag_seconds = max(self._recent_lag_seconds, self.lag_seconds)
        self._beat = now
        if self._loop is not None and not self._ended.is_set():
            self._timer = self._loop.call_later(BEAT_SECONDS, self._tick)

    def _watch(self) -> None:
        stall, pause = Stall(self._clock.now()), LOOK_SECONDS
        told: float | None = None  # the last beat before the stall that was logged
        while not self._ended.wait(pause):
            beat, now = self._beat, self._clock.now()
            held = stall.look(beat, now, 2 * pause)
            if told is not None and told != beat:
                since, told = told, None
                if self._nowhere is not None:
                    faulthandler.cancel_dump_traceback_later()
                with contextlib.suppress(MemoryError):
                    self._over(now - since)
            pause = CLOSE_LOOK_SECONDS if held > self._limit / 2 and told is None else LOOK_SECONDS
            if held >= self._limit and told is None:
                told = beat
                self._set_timer(self._end_seconds - held + WORDS_SECONDS)
                # Without memory for the words, the thread watches on.
                with contextlib.suppress(MemoryError):
                    self._tell(held)
            if 0 < self._end_seconds <= held:
                self._give_up("the event loop", held, self._handler(), self._main)
                return
            for each in list(self._others):
                held = each.stall.look(each.beat(), now, 2 * pause)
                if 0 < self._end_seconds <= held:
                    self._give_up(each.name, held, "no handler", each.thread)
                    return

    def _tell(self, held: float) -> None:
        self.blocked += 1
        advice = "Make it async, or declare the command with thread=True"
        if self.recovering is not None:
            advice = "Make what applies its events quicker, or give the type `snapshot_every`"
        logger.warning(
            "%s has held the event loop for %.1f s: every entity of this node waits. %s\n%s",
            self._handler(),
            held,
            advice,
            self.stack(),
            extra={"action": "handler_blocks_loop", "held_seconds": held, **self._names()},
        )

    def _set_timer(self, seconds: float) -> None:
        if self._nowhere is not None:
            # Without memory for it, the thread alone ends the process.
            with contextlib.suppress(RuntimeError, MemoryError):
                faulthandler.dump_traceback_later(seconds, file=self._nowhere, exit=True)

    def _give_up(self, loop: str, held: float, stands_in: str, thread: int) -> None:
        self._set_timer(WORDS_SECONDS)
        try:
            logger.critical(
                "%s has stood still for %.0f s: this process is ended, so that its supervisor starts another one. "
                "It stands in %s\n%s",
                loop,
                held,
                stands_in,
                self.stack(thread),
                extra={"action": "stalled_process_ends", "held_seconds": held, **self._names()},
            )
        finally:
            self._end_process()

    def _over(self, seconds: float) -> None:
        logger.warning(
            "the event loop turns again after %.1f s",
            seconds,
            extra={"action": "loop_turns_again", "held_seconds": seconds},
        )

    def _handler(self) -> str:
        running, recovering = self.running, self.recovering
        if recovering is not None:
            return f"the recovery of {recovering[0]} {recovering[1]!r}"
        return "something outside of any handler" if running is None else f"{running[0]}.{running[1]}"

    def _names(self) -> dict[str, str]:
        running, recovering = self.running, self.recovering
        if recovering is not None:
            return {"entity_type": recovering[0], "entity": recovering[1]}
        return {} if running is None else {"entity_type": running[0], "command": running[1]}
