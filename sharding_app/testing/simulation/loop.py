"""Virtual processes, and their asyncio event loops on virtual time.

Each process has one loop or more. All loops of a world turn over one `Scheduler`.

Handles of a loop run in the order in which they became ready, in *turns*, as in a real loop. Turns
of different loops interleave by seeded chance. Sockets, subprocesses and threads do not exist here:
`run_in_executor` runs its function at once.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from asyncio import events
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from sharding_app.testing.simulation.scheduler import Scheduler

if TYPE_CHECKING:  # methods that it lacks (sockets, signals, subprocesses) raise NotImplementedError
    from asyncio import BaseEventLoop as _Base
else:
    from asyncio import AbstractEventLoop as _Base

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_set_running_loop = events._set_running_loop
UNWIND_ROUNDS = 200
SPIN_SECONDS = 0.02
SPIN_TURNS = 100
SPIN_CALLS = 60
"""One callback that is called this often, after this many turns of one loop within this time, is a
loop without a pause. In a storm of messages a loop takes some 60 turns in that time; one that spins
takes 200.
"""


class Life(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    CRASHED = "crashed"


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
        self._stands_since: float | None = None
        self._stood = 0.0, -math.inf
        "Length and end of the last time in which it stood still."
        self.loops: list[SimLoop] = []
        self.index = len(scheduler.burials)
        scheduler.burials.append(self.bury)

    @property
    def awake(self) -> float:
        """Seconds in which this process, and its first loop, could run."""
        until = self.scheduler.now if self._stands_since is None else self._stands_since
        return until - self._asleep

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
            self._count_time()

    def resume(self) -> None:
        if self.life is Life.PAUSED:
            self.life = Life.RUNNING
            self._count_time()
            for loop in self.loops:
                loop.schedule_turn()

    def block(self) -> None:
        """Block the first loop, as a user's function that computes does. Other loops go on."""
        self.loops[0].blocked = True
        self._count_time()

    def unblock(self) -> None:
        self.loops[0].blocked = False
        self._count_time()
        self.loops[0].schedule_turn()

    def stood_still(self, lately: float) -> float:
        """Seconds for which the process has been paused, or its first loop blocked, until now or
        until a moment that is less than `lately` seconds ago.
        """
        if self._stands_since is not None:
            return self.scheduler.now - self._stands_since
        seconds, until = self._stood
        return seconds if self.scheduler.now - until < lately else 0.0

    def _count_time(self) -> None:
        """Note that the process begins, or ceases, to stand still."""
        if self.life is Life.PAUSED or self.loops[0].blocked:
            self._stands_since = self.scheduler.now if self._stands_since is None else self._stands_since
        elif self._stands_since is not None:
            self._stood = self.scheduler.now - self._stands_since, self.scheduler.now
            self._asleep += self._stood[0]
            self._stands_since = None

    def crash(self) -> None:
        """SIGKILL: nothing of this process ever runs again. Its tasks are kept, so that no
        `finally` runs either.
        """
        self.life = Life.CRASHED

    def bury(self) -> None:
        """Unwind the tasks that are left at the end of the world, whatever they raise."""
        self.life = Life.CRASHED
        for loop in self.loops:
            with suppress(RuntimeError):
                loop.unwind()
        self.loops.clear()


class SimFuture(asyncio.Future[Any]):
    """A future with a hash that does not come from its address: sets of them keep one order for one
    seed.
    """

    _sim_hash: int
    "Set by the loop that makes it."

    def __hash__(self) -> int:
        return self._sim_hash


class SimTask(asyncio.Task[Any]):
    """A task with such a hash."""

    _sim_hash: int

    def __new__(cls, coro: Any, *, loop: SimLoop, **kwargs: Any) -> SimTask:
        # Before __init__, which already puts the task into sets.
        task = super().__new__(cls)
        task._sim_hash = next(loop.numbers)
        return task

    def __hash__(self) -> int:
        return self._sim_hash


class SimLoop(_Base):
    """One event loop of one virtual process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.scheduler = process.scheduler
        self.blocked = False
        "Its thread is held: nothing here turns until it is free."
        self.numbers = itertools.count(1)
        self.tasks: dict[SimTask, None] = {}
        "All tasks that are not done, in the order they were made."
        self._ready: deque[asyncio.Handle] = deque()
        self._turn_scheduled = False
        self._closed = False
        self._unwinding = False
        self._window = -SPIN_SECONDS
        self._window_turns = 0
        self._calls: Counter[tuple[int, str]] = Counter()
        self._task_factory: Any = None
        self._exception_handler: Any = None
        process.loops.append(self)

    # -- Turns -------------------------------------------------------------------------------------

    def schedule_turn(self) -> None:
        if (
            self._ready
            and not self._turn_scheduled
            and not self.blocked
            and self.process.life is Life.RUNNING
        ):
            self._turn_scheduled = True
            self.scheduler.push_turn(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        process, scheduler, ready, running = self.process, self.scheduler, self._ready, Life.RUNNING
        if process.life is not running or self.blocked or not ready:
            return
        scheduler.turns += 1
        scheduler.digest = hash((scheduler.digest, scheduler.now, process.index, len(ready)))
        if scheduler.now - self._window > SPIN_SECONDS:
            self._window, self._window_turns = scheduler.now, 0
        self._window_turns += 1
        if self._window_turns >= SPIN_TURNS:
            self._look_for_spinning()
        _set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    try:  # as `handle._run` does, with one call less for each of 100,000 handles
                        handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:  # noqa: BLE001  (any error of a callback is told)
                        self._tell(handle, error)
                if process.life is not running:
                    break
        finally:
            _set_running_loop(None)
        if ready:
            self.schedule_turn()
        if scheduler.on_turn is not None and not scheduler.turns % scheduler.looks_every:
            scheduler.on_turn(process.name)

    def _tell(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"exception in callback {handle!r}", "exception": error, "handle": handle}
        )

    def _look_for_spinning(self) -> None:
        """Report a callback that follows itself without a pause. Real loops would use up a core
        with it.
        """
        calls = self._calls
        if self._window_turns == SPIN_TURNS:
            calls.clear()
        for key in {_named(handle._callback): None for handle in self._ready}:  # type: ignore[attr-defined]
            calls[key] += 1
            if calls[key] > SPIN_CALLS and self.scheduler.on_spin is not None:
                calls[key] = -self.scheduler.turns  # once for each window
                self.scheduler.on_spin(self.process.name, key[1])

    def unwind(self) -> None:
        """Cancel all tasks that are left and run them to their end, outside of time."""
        self._unwinding = True
        _set_running_loop(self)
        try:
            for round_ in range(UNWIND_ROUNDS):
                left = [task for task in self.tasks if not task.done()]
                if not left and not self._ready:
                    break
                if round_ % 10 == 0:
                    for task in left:
                        task.cancel()
                for _ in range(len(self._ready)):
                    handle = self._ready.popleft()
                    if not handle._cancelled:
                        handle._run()
            self._closed = True  # what a closed task hands over never begins
            for task in list(self.tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if not task.done() and (coroutine := task.get_coro()) is not None:
                    with suppress(Exception, asyncio.CancelledError, BaseExceptionGroup):  # any error
                        coroutine.close()
        finally:
            self._unwinding, self._closed = False, True
            _set_running_loop(None)

    # -- The interface of asyncio ------------------------------------------------------------------

    def time(self) -> float:
        return self.process.time()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self.process.life is not Life.CRASHED or self._unwinding:
            self._ready.append(handle)
            if not self._turn_scheduled:
                self.schedule_turn()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.scheduler.push((when - self.process.offset) / self.process.rate, lambda: self._due(handle))
        return handle

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if not handle._cancelled and self.process.life is not Life.CRASHED:
            self._ready.append(handle)
            if not self._turn_scheduled:
                self.schedule_turn()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are skipped when they come due."""

    def create_future(self) -> asyncio.Future[Any]:
        future = SimFuture(loop=self)
        future._sim_hash = next(self.numbers)
        return future

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: object = None, **kwargs: Any
    ) -> asyncio.Task[T]:
        if self._task_factory is not None:
            return self._task_factory(self, coro, name=name, **kwargs)  # type: ignore[no-any-return]
        task = SimTask(coro, loop=self, name=name or "task", **kwargs)
        if self._closed:
            # Another loop of the process is unwound after this one, or a task that is closed hands
            # work over. It never begins.
            coro.close()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        elif not task.done():
            self.tasks[task] = None
            task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)  # type: ignore[call-overload]

    def set_task_factory(self, factory: Any) -> None:
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        return self._task_factory

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  (it is handed to the task that awaits)
            future.set_exception(error)
        return future

    def set_default_executor(self, executor: object) -> None:
        """There is none: functions run at once."""

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        if self.scheduler.on_error is not None:
            self.scheduler.on_error(self.process.name, context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._exception_handler is not None:
            self._exception_handler(self, context)
        else:
            self.default_exception_handler(context)

    get_debug = bool
    """False. Each handle asks, and a function of Python's own is the quickest."""

    def set_debug(self, enabled: bool) -> None:
        """Debug mode reads wall clocks, so there is none."""

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    async def shutdown_asyncgens(self) -> None:
        """Asynchronous generators are closed by those who made them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        """Run the whole world until this one thing is done."""
        task = asyncio.ensure_future(future, loop=self)
        if not self.scheduler.run(until=task.done):
            raise RuntimeError("nothing is left to run, and the future is not done")
        return task.result()


def _named(callback: Any) -> tuple[int, str]:
    """Return what tells a callback from others, and its name: of a task's steps, its
    coroutine's.
    """
    owner = getattr(callback, "__self__", callback)
    if isinstance(owner, SimTask):
        return id(owner), getattr(owner.get_coro(), "__qualname__", "a task")
    return id(owner), getattr(callback, "__qualname__", repr(callback))
