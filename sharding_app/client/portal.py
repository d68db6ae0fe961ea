"""The way from any thread and any event loop to the one loop on which this process's links live.

A process that hosts nothing gets a thread with a loop of its own at first use; after a fork the
child makes its own. In a node process the loop is the node's. Calls from the loop itself go
straight in. Calls from elsewhere cross over in batches: one wake-up carries all that have gathered,
in both directions.

Contract: a call is begun or given up, never both. A caller that no longer waits gets `Unavailable`
only if its call was not begun and never will be. Otherwise it gets `AskTimeout`, since the call may
have had an effect. Calls that wait to cross over, or for the process to join, are bounded in count
and bytes: beyond that a call raises `BufferFull`.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from sharding_app.client.following import FollowingPortal, Hub
from sharding_app.errors import AskTimeout, BufferFull, ShardingError, Unavailable, WrongContext
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.protocol.call import LONGEST_SECONDS, Call
from sharding_app.protocol.region import RegionLimits
from sharding_app.redaction import told
from sharding_app.runtime.base.waiting import set_within
from sharding_app.runtime.node.process import Process

logger = logging.getLogger("sharding.client")
T = TypeVar("T")

FOLLOWED = 20_000
"""Most entities that a process follows, if not said otherwise."""
LAST_SECONDS = 1.0
"""Time for jobs that the end of the loop has cancelled."""
LAST_TURNS = 5
"""Turns of the loop in which those that follow entities learn that it ends."""

Resolve = Callable[[bytes | None, BaseException | None], None]

OVERHEAD_BYTES = 500
"""Approximate size of a waiting call beside its arguments."""
RETRY_SECONDS = 0.1
EXPIRE_SECONDS = 0.05
"""Time between two looks for calls that have waited too long for the process to join."""
RETRY_MAX_SECONDS = 1.0
JOIN_SECONDS = 5.0
FAREWELL_SECONDS = 0.5
"""Maximum time for which the end of a process waits for calls in flight."""
HOLD_LOOK_SECONDS = 0.01


class Posted:
    """A call that waits to be begun."""

    __slots__ = ("at", "call", "claim", "resolve", "size", "until")

    def __init__(
        self, call: Call, resolve: Resolve, claim: Callable[[], bool], now: float, default_timeout: float
    ) -> None:
        self.call = call
        self.resolve = resolve
        self.claim = claim
        "Called once before the call is begun. False: its caller has given up."
        self.at = now
        self.until = now + (default_timeout if call.timeout is None else call.timeout)
        self.size = len(call.args) + len(call.entity) + OVERHEAD_BYTES


class Portal:
    """Carries calls from any thread or loop to a process of the cluster."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        default_timeout: float,
        limits: RegionLimits | None = None,
        followed: int = FOLLOWED,
    ) -> None:
        """`followed`: most entities that the process follows."""
        self.loop = loop
        self.following = FollowingPortal(loop, Hub(self.ask, followed), self.submit)
        self.process: Process | None = None
        self.trouble = ""
        "Why there is no process yet."
        self.waits_for = ""
        "The server that the process's start waits for."
        self.closed = False
        self.drops: Counter[tuple[str, str]] = Counter()
        "Tells that could not begin, and drops of former processes, by type and reason."
        self.default_timeout = default_timeout
        self._limits = limits or RegionLimits()
        self._calls: deque[Posted] = deque()
        self._scheduled = False
        self._early: deque[Posted] = deque()
        "Calls that came before the process has joined."
        self._expiry: asyncio.TimerHandle | None = None
        "Set while some of them wait."
        self._waiting = 0
        self._waiting_bytes = 0
        "Number and bytes of the calls in both queues; guarded by the lock, as `closed` is."
        self._returns: dict[asyncio.AbstractEventLoop, deque[tuple[asyncio.Future[bytes], Any, Any]]] = {}
        # A handler of a signal that comes while its thread holds the lock may tell, too.
        self._lock = threading.RLock()

    # -- From anywhere -----------------------------------------------------------------------------

    def ask(self, call: Call) -> Awaitable[bytes]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()
        if loop is self.loop:
            self._enter(call, lambda value, error: _settle(future, value, error))
        else:
            self._post(call, lambda value, error: self._give_back(loop, future, value, error), _always)
        return future

    def ask_all(self, calls: Sequence[Call]) -> list[Awaitable[bytes]]:
        """Ask all of them in one turn of this process's loop, so that they share frames."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[bytes]] = [loop.create_future() for _ in calls]
        if loop is self.loop:
            for call, future in zip(calls, futures, strict=True):
                try:
                    self._enter(call, partial(_settle, future))
                except ShardingError as error:
                    future.set_exception(error)
        else:
            gives_back = [partial(self._give_back, loop, future) for future in futures]
            self._post_all([(*each, _always) for each in zip(calls, gives_back, strict=True)])
        return list(futures)

    def ask_all_sync(self, calls: Sequence[Call]) -> list[bytes | BaseException]:
        """Do the same from a thread without a running loop; return replies and errors."""
        futures: list[concurrent.futures.Future[bytes]] = [concurrent.futures.Future() for _ in calls]
        self._post_all(
            [
                (call, partial(_settle, future), future.set_running_or_notify_cancel)
                for call, future in zip(calls, futures, strict=True)
            ]
        )
        until = self.loop.time() + JOIN_SECONDS
        found: list[bytes | BaseException] = []
        for call, future in zip(calls, futures, strict=True):
            waits = max(0.0, until + self._seconds(call) - self.loop.time())
            try:
                found.append(self._outcome(call, future, waits))
            except ShardingError as error:
                found.append(error)
        return found

    def ask_sync(self, call: Call) -> bytes:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        self._post(
            call, lambda value, error: _settle(future, value, error), future.set_running_or_notify_cancel
        )
        # The portal itself answers in time. The margin is for a loop that is held by other work.
        return self._outcome(call, future, self._seconds(call) + JOIN_SECONDS)

    def _seconds(self, call: Call) -> float:
        return min(self.default_timeout if call.timeout is None else call.timeout, LONGEST_SECONDS)

    @staticmethod
    def _outcome(call: Call, future: "concurrent.futures.Future[bytes]", timeout: float) -> bytes:
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.cancel():
                raise Unavailable(
                    f"the sharding loop of this process did not take the call within {timeout:g} s: it was not started"
                ) from None
            if future.done():
                return future.result()
            raise AskTimeout(
                f"no answer to {call.command!r} from {call.type!r} {call.entity!r} within {timeout:g} s: the sharding loop of"
                " this process is blocked"
            ) from None

    def tell(self, call: Call) -> None:
        # On the loop itself it goes straight in, as an ask does. Otherwise the next ask would
        # overtake it.
        if asyncio._get_running_loop() is self.loop:
            self._take()
            self._enter(call, partial(self._told, call))
        else:
            self._post(call, partial(self._told, call), _always)

    def _told(self, call: Call, value: bytes | None, error: BaseException | None) -> None:
        """Count and log a tell that could not begin. Later drops are counted where they happen."""
        reason = error.code if isinstance(error, ShardingError) else "refused"
        self.drops[call.type, reason] += 1
        logger.warning(
            "a command for an entity of %s was not sent: %s", call.type, told(error) if error else reason,
            extra={"action": "dropped", "entity_type": call.type, "reason": reason},
        )  # fmt: skip

    def submit(self, job: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine on this process's loop, from any thread. It ends before the loop does."""
        with self._lock:
            if not self.closed:
                with contextlib.suppress(RuntimeError):  # the loop has ended, not in order
                    return asyncio.run_coroutine_threadsafe(self._told_of_the_end(job), self.loop)
        job.close()
        raise Unavailable(f"this process is not connected to the cluster: {self.trouble}", code="stopped")

    async def _told_of_the_end(self, job: Coroutine[Any, Any, T]) -> T:
        try:
            return await job
        except asyncio.CancelledError:
            if not self.closed:
                raise
            why = f"this process is not connected to the cluster: {self.trouble}"
            raise Unavailable(why, code="stopped_under_way") from None

    async def connected(self, timeout: float | None = None) -> Process:
        """Wait, on the loop, for the process to be there."""
        deadline = self.loop.time() + (timeout or self.default_timeout)
        while (process := self.process) is None:
            if self.closed or self.loop.time() >= deadline:
                raise Unavailable(
                    f"this process is not connected to the cluster: {self.trouble or 'joining'}"
                )
            await asyncio.sleep(RETRY_SECONDS / 5)
        return process

    # -- On the loop -------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Number of calls that are not begun."""
        return self._waiting

    @property
    def is_awaited(self) -> bool:
        """Whether calls wait for the process to join."""
        return bool(self._early)

    def joined(self, process: Process) -> None:
        """Take the process, and begin the calls that came before it."""
        self.process = process
        self.trouble = ""
        early, self._early = self._early, deque()
        self._let_in(early)

    def left(self, trouble: str) -> None:
        self._let_go()
        self.trouble = trouble

    def close(self, trouble: str) -> None:
        """Carry nothing any more: calls that wait, and later ones, fail."""
        self._let_go()
        self.trouble = trouble
        with self._lock:
            self.closed = True
        self.following.hub.close(f"this process is not connected to the cluster: {trouble}")
        self._take()
        while self._early:
            self._refuse(self._early.popleft(), trouble)

    def forked(self) -> None:
        """Carry nothing any more: this is a child process, where no thread runs the loop.

        Followers from before the fork still have this portal. A thread of the parent may have held
        the lock.
        """
        self._lock = threading.RLock()
        self.trouble = "it is a child of the process that was"
        self.closed = True

    def _let_go(self) -> None:
        """Keep the drops of the process: what is counted must never become less."""
        if self.process is not None:
            self.drops.update(self.process.region_client.drops)
        self.process = None

    def expire(self) -> None:
        """Fail calls whose time is over before the process has joined."""
        self._expiry = None
        now = self.loop.time()
        if any(each.until <= now for each in self._early):
            early, self._early = self._early, deque()
            for posted in early:
                if posted.until <= now:
                    self._refuse(posted, self._why())
                else:
                    self._early.append(posted)
        self._expire_later()

    def _expire_later(self) -> None:
        if self._early and self._expiry is None:
            self._expiry = self.loop.call_later(EXPIRE_SECONDS, self.expire)

    def _why(self) -> str:
        waits = f", waiting for {self.waits_for}" if self.waits_for else ""
        return self.trouble or f"it is joining{waits}"

    def _post(self, call: Call, resolve: Resolve, claim: Callable[[], bool]) -> None:
        posted = Posted(call, resolve, claim, self.loop.time(), self.default_timeout)
        with self._lock:
            self._queue(posted)

    def _post_all(self, calls: Iterable[tuple[Call, Resolve, Callable[[], bool]]]) -> None:
        """Post calls that cross over together. One that cannot be queued gets its error."""
        now = self.loop.time()
        refused: list[tuple[Posted, ShardingError]] = []
        with self._lock:
            for call, resolve, claim in calls:
                posted = Posted(call, resolve, claim, now, self.default_timeout)
                try:
                    self._queue(posted)
                except ShardingError as error:
                    refused.append((posted, error))
        for posted, why in refused:
            posted.resolve(None, why)

    def _queue(self, posted: Posted) -> None:
        # Under the lock with `close`, which refuses all calls that are queued before it. Later
        # calls find the portal closed.
        if self.closed:
            raise Unavailable(f"this process is not connected to the cluster: {self.trouble}")
        self._wake()
        self._count(posted)
        self._calls.append(posted)

    def _wake(self) -> None:
        """Have the loop look at the queue, which it can when the lock is free.

        A signal may raise at any line here: Ctrl-C, or the time limit of a worker's task. Were the
        loop noted as woken before it is, no later call would wake it.
        """
        if not self._scheduled:
            try:
                self.loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                raise Unavailable("the sharding loop of this process has ended") from None
            self._scheduled = True

    def _enter(self, call: Call, resolve: Resolve) -> None:
        """Begin a call that is made on the loop itself, or let it wait for the process."""
        posted = Posted(call, resolve, _always, self.loop.time(), self.default_timeout)
        if self.process is not None:
            self._begin(posted)
        else:
            with self._lock:
                self._count(posted)
            self._early.append(posted)
            self._expire_later()

    def _count(self, posted: Posted) -> None:
        limits = self._limits
        if self._waiting >= limits.max_calls or self._waiting_bytes + posted.size > limits.max_bytes:
            raise BufferFull(
                f"{self._waiting} calls ({self._waiting_bytes} bytes) are waiting for the sharding loop of this"
                f" process ({self._why()}): slow down"
            )
        self._waiting += 1
        self._waiting_bytes += posted.size

    def _uncount(self, number: int, size: int) -> None:
        with self._lock:
            self._waiting -= number
            self._waiting_bytes -= size

    def _take(self) -> None:
        with self._lock:
            self._scheduled = False
            calls, self._calls = self._calls, deque()
        if self.process is None and not self.closed:
            self._early += calls
            self._expire_later()
        else:
            self._let_in(calls)

    def _let_in(self, calls: deque[Posted]) -> None:
        self._uncount(len(calls), sum(each.size for each in calls))
        for posted in calls:
            self._begin(posted)

    def _begin(self, posted: Posted) -> None:
        call, resolve, process = posted.call, posted.resolve, self.process
        waited = self.loop.time() - posted.at
        if not posted.claim():
            return  # its caller has given up, and was told that the call would not begin
        if process is None:
            resolve(None, Unavailable(f"this process is not connected to the cluster: {self._why()}"))
            return
        if posted.at + waited >= posted.until and not call.tell:
            resolve(None, Unavailable("the call timed out before it could start"))
            return
        try:
            future = process.ask(call, waited)
        except Exception as error:  # noqa: BLE001  (an extractor is the user's, and other calls wait behind this one)
            resolve(None, error)
            return
        if not call.tell:
            future.add_done_callback(lambda done: _pass_on(done, resolve))

    def _refuse(self, posted: Posted, trouble: str) -> None:
        self._uncount(1, posted.size)
        if posted.claim():
            posted.resolve(None, Unavailable(f"this process is not connected to the cluster: {trouble}"))

    def _give_back(
        self,
        loop: asyncio.AbstractEventLoop,
        future: "asyncio.Future[bytes]",
        value: bytes | None,
        error: BaseException | None,
    ) -> None:
        with self._lock:
            returns = self._returns.get(loop)
            if returns is not None:
                returns.append((future, value, error))
                return
            # A loop may be closed before it hands out. Some programs make one for each call.
            for ended in [each for each in self._returns if each.is_closed()]:
                del self._returns[ended]
            self._returns[loop] = deque(((future, value, error),))
        try:
            loop.call_soon_threadsafe(self._hand_out, loop)
        except RuntimeError:
            # The caller's loop has ended, and with it the caller.
            with self._lock:
                self._returns.pop(loop, None)

    def _hand_out(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            returns = self._returns.pop(loop, ())
        for future, value, error in returns:
            _settle(future, value, error)


class BackgroundPortal:
    """A portal with a thread of its own, for processes that only call."""

    def __init__(
        self,
        make_process: Callable[[], Awaitable[Process]],
        new_loop: Callable[[], asyncio.AbstractEventLoop],
        timeout: float,
        limits: RegionLimits | None = None,
        followed: int = FOLLOWED,
    ) -> None:
        refuse_green_threads()
        self.pid = os.getpid()
        self._make_process = make_process
        loop = new_loop()
        self.portal = Portal(loop, timeout, limits, followed)
        self._halt = asyncio.Event()
        self._held = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(loop,), name="sharding-client", daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        """Whether its thread runs, and was not held."""
        return self._thread.is_alive() and not self._held.is_set()

    def close(self, seconds: float = JOIN_SECONDS) -> None:
        """End the thread. Calls that still wait fail."""
        if self.goes_on and threading.current_thread() is not self._thread:
            with contextlib.suppress(RuntimeError):  # it has ended just now
                self.portal.loop.call_soon_threadsafe(self._leave)
            self._thread.join(seconds)
            if self._thread.is_alive() and (left := self.portal.waiting):
                logger.warning(
                    "this process ends before it could join the cluster (%s): %d commands are not sent",
                    self.portal.trouble or f"waiting for {self.portal.waits_for}", left,
                    extra={"action": "dropped"},
                )  # fmt: skip

    def hold(self, seconds: float) -> None:
        """Keep the thread in one place for good, if it still runs: the interpreter is about to end.

        A callback of uvloop's loop enters the interpreter without a look whether it is still there.
        The process would end by SIGSEGV then, and not with its exit code.
        """

        def stay() -> None:
            self._held.set()
            threading.Event().wait()

        with contextlib.suppress(RuntimeError):  # it has ended just now
            self.portal.loop.call_soon_threadsafe(stay)
        until = time.monotonic() + seconds
        while self.goes_on and time.monotonic() < until:
            self._held.wait(HOLD_LOOK_SECONDS)

    def _leave(self) -> None:
        self.portal.following.hub.close("this process has left the cluster")
        self._halt.set()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(_Beside())
        try:
            loop.run_until_complete(self._live())
        except BaseException as error:
            logger.critical(
                "the client's loop ended: %r", error, exc_info=error, extra={"action": "client_failed"}
            )
            self.portal.close(f"its loop ended: {error!r}")
        else:
            self.portal.close("this process has left the cluster")
        finally:
            _end_jobs(loop)
            loop.close()

    async def _live(self) -> None:
        await self._keep_joined(self._halt)
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)

    async def _keep_joined(self, halt: asyncio.Event) -> None:
        """Belong to the cluster, joining it as often as necessary.

        A script may have told and ended before this began: then it joins once, for its tells.
        """
        delay = RETRY_SECONDS
        joins = self.portal.is_awaited
        while joins or not halt.is_set():
            joins = False
            process = None
            try:
                self.portal.waits_for = "PostgreSQL"
                process = await self._make_process()
                self.portal.waits_for = "a way to other processes"
                await process.start()
            except Exception as error:  # noqa: BLE001  (whatever it is, it may pass: a settings file, a missing table, memory)
                self._tell(error)
                if process is not None:
                    await _closed(process)
                await set_within(halt, delay)
                delay = min(delay * 2, RETRY_MAX_SECONDS)
                continue
            self.portal.joined(process)
            try:
                await _either(halt, process.failed)
            except asyncio.CancelledError:  # its loop has ended, not in order: calls under way are told
                await _closed(process)
                raise
            if halt.is_set():
                await _let_finish(process)
            self.portal.left("this process has left" if halt.is_set() else "a part of it failed")
            await _closed(process)
            if not halt.is_set():  # it may fail at once again
                await set_within(halt, RETRY_MAX_SECONDS)

    def _tell(self, error: Exception) -> None:
        """Report to callers and to the log why the cluster is not joined now."""
        if isinstance(error, StoreUnavailable | TransportError):
            self.portal.left(str(error))
            logger.warning("cannot reach the cluster: %s", error, extra={"action": "client_waits"})
        else:
            self.portal.left(f"it cannot join: {error!r}")
            logger.critical(
                "this process cannot join the cluster and tries again: %r", error, exc_info=error,
                extra={"action": "client_failed"},
            )  # fmt: skip


class _Beside(concurrent.futures.ThreadPoolExecutor):
    """Gives each job a thread of its own. They are few: a host's name is looked up there.

    Python's own executors take no job once the main thread has ended, and hold up the end of the
    process for those that they have. The goodbye of a client comes after that, and may still have
    to join.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[T]":
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  (who has submitted it raises it)
                    future.set_exception(error)

        threading.Thread(target=run, name="sharding-client-beside", daemon=True).start()
        return future


def _end_jobs(loop: asyncio.AbstractEventLoop) -> None:
    """End what callers have left on the loop: each of them waits for an outcome."""
    try:
        loop.run_until_complete(asyncio.sleep(0))  # those that were submitted last begin
        if jobs := asyncio.all_tasks(loop):
            for each in jobs:
                each.cancel()
            loop.run_until_complete(asyncio.wait(jobs, timeout=LAST_SECONDS))
            for _ in range(LAST_TURNS):  # the time may have passed before a starved thread had its turn
                loop.run_until_complete(asyncio.sleep(0))
    except BaseException as error:
        logger.critical("the client's loop: %r", error, exc_info=error, extra={"action": "client_failed"})


def refuse_green_threads() -> None:
    """Raise an error that names the remedy if no thread with an event loop can run here."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise WrongContext(
            "gevent has patched threading: sharding needs a real thread. Use gthread or ASGI workers"
        )
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and patcher.is_monkey_patched("thread"):
        raise WrongContext(
            "eventlet has patched threads: sharding needs a real thread. Use gthread or ASGI workers"
        )
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is not None and not (uwsgi.opt.get("enable-threads") or uwsgi.opt.get("threads")):
        raise WrongContext("uWSGI runs without threads: start it with --enable-threads")


def _always() -> bool:
    return True


def _settle(future: Any, value: bytes | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _pass_on(done: "asyncio.Future[bytes]", resolve: Resolve) -> None:
    if done.cancelled():
        text = "this process left the cluster while a call was in flight: its outcome is unknown"
        resolve(None, Unavailable(text, code="stopped_under_way"))
    elif (error := done.exception()) is not None:
        resolve(None, error)
    else:
        resolve(done.result(), None)


async def _let_finish(process: Process) -> None:
    """Give the last tells a moment: a script that tells and ends expects them to arrive."""
    now = process.ports.clock.now
    until = now() + FAREWELL_SECONDS
    while process.region_client.unfinished:
        if now() >= until:
            return
        await asyncio.sleep(0.005)


async def _closed(process: Process) -> None:
    """Close a process that did not start, or has failed.

    A broken process may not close either; another one is made all the same.
    """
    try:
        await process.close()
    except Exception as error:
        logger.warning("while closing: %r", error, exc_info=error, extra={"action": "client_failed"})


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(each.wait()) for each in (first, second)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
