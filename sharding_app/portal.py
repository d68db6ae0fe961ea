"""The way from any thread and any event loop to the one loop on which this process's links live.

A process that hosts nothing gets a thread with a loop of its own at first use; after a fork the child begins anew. In a
node process the loop is the node's. Calls from the loop itself go straight in; calls from elsewhere cross over in
batches: one wake-up carries all that has gathered, in both directions.

Contract: a call is begun or given up, never both. A caller that waits no longer is told `Unavailable` only where its call
was not begun and never will be; else `AskTimeout`, since it may have had an effect. What waits to cross over, or for the process
to join, is bounded in count and bytes: beyond it the call raises `BufferFull`.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sharding_app.core.region import RegionLimits
from sharding_app.errors import AskTimeout, BufferFull, ShardingError, Unavailable, WrongContext
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.process import Process

logger = logging.getLogger("sharding.client")

Call = tuple[str, str, str, bytes, float | None, str | None, bool, tuple[str, ...], str]
"""type, entity id, command, arguments, timeout, command id, tell, who led to it, the caller's trace."""
Resolve = Callable[[bytes | None, BaseException | None], None]

OVERHEAD_BYTES = 500
"""About what a call that waits holds beside its arguments."""
RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 1.0
JOIN_SECONDS = 5.0
FAREWELL_SECONDS = 0.5
"""So long at most does the end of a process wait for calls that are under way."""


class Posted:
    """A call that waits to be begun."""

    __slots__ = ("at", "call", "claim", "resolve", "size", "until")

    def __init__(
        self, call: Call, resolve: Resolve, claim: Callable[[], bool], now: float, default_timeout: float
    ) -> None:
        self.call = call
        self.resolve = resolve
        self.claim = claim
        "Asked once, before it is begun: no, if its caller has given up."
        self.at = now
        self.until = now + (default_timeout if call[4] is None else call[4])
        self.size = len(call[3]) + len(call[1]) + OVERHEAD_BYTES


class Portal:
    """Carries calls to a process of the cluster, from wherever they are made."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, default_timeout: float, limits: RegionLimits | None = None
    ) -> None:
        self.loop = loop
        self.process: Process | None = None
        self.trouble = ""
        "Why there is no process yet."
        self.joining: Process | None = None
        "What tries to become the process."
        self.closed = False
        self._default_timeout = default_timeout
        self._limits = limits or RegionLimits()
        self._calls: deque[Posted] = deque()
        self._scheduled = False
        self._early: deque[Posted] = deque()
        self._waiting = 0
        self._waiting_bytes = 0
        "In both: how many, and how large. With what closes the portal under the lock."
        self._returns: dict[asyncio.AbstractEventLoop, deque[tuple[asyncio.Future[bytes], Any, Any]]] = {}
        self._lock = threading.Lock()

    # -- From anywhere ---------------------------------------------------------------------------------------------

    def ask(self, call: Call) -> Awaitable[bytes]:
        loop = asyncio.get_running_loop()
        if loop is self.loop and self.process is not None:
            return self.process.ask(*call[:6], tell=call[6], chain=call[7], trace=call[8])
        future: asyncio.Future[bytes] = loop.create_future()
        if loop is self.loop:
            self._enter(call, lambda value, error: _settle(future, value, error))
        else:
            self._post(call, lambda value, error: self._give_back(loop, future, value, error), _always)
        return future

    def ask_sync(self, call: Call) -> bytes:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        self._post(
            call, lambda value, error: _settle(future, value, error), future.set_running_or_notify_cancel
        )
        # The portal itself answers in time; the margin is for a loop that is held by something else.
        timeout = (call[4] or self._default_timeout) + JOIN_SECONDS
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.cancel():
                raise Unavailable(
                    f"the sharding loop of this process did not take the call within {timeout:g} s: it was not begun"
                ) from None
            if future.done():
                return future.result()
            raise AskTimeout(
                f"no answer to {call[2]!r} from {call[0]!r} {call[1]!r} within {timeout:g} s: the sharding loop of"
                " this process stands still"
            ) from None

    def tell(self, call: Call) -> None:
        # On the loop itself it goes straight in, as an ask does: else the next ask would overtake it.
        if asyncio._get_running_loop() is self.loop:
            self._take()
            self._enter(call, _ignore)
        else:
            self._post(call, _ignore, _always)

    async def connected(self, timeout: float | None = None) -> Process:
        """Wait, on the loop, for the process to be there."""
        deadline = self.loop.time() + (timeout or self._default_timeout)
        while (process := self.process) is None:
            if self.closed or self.loop.time() >= deadline:
                raise Unavailable(
                    f"this process is not connected to the cluster: {self.trouble or 'joining'}"
                )
            await asyncio.sleep(RETRY_SECONDS / 5)
        return process

    # -- On the loop -----------------------------------------------------------------------------------------------

    def joined(self, process: Process) -> None:
        """The process is there: begin what came before it."""
        self.process = process
        self.trouble = ""
        early, self._early = self._early, deque()
        self._let_in(early)

    def left(self, trouble: str) -> None:
        self.process = None
        self.trouble = trouble

    def close(self, trouble: str) -> None:
        """Nothing is carried any more: callers that wait are told, and later ones."""
        self.process = None
        self.trouble = trouble
        with self._lock:
            self.closed = True
        self._take()
        while self._early:
            self._refuse(self._early.popleft(), trouble)

    def expire(self) -> None:
        """Tell those whose time is over before the process is there."""
        now = self.loop.time()
        if any(each.until <= now for each in self._early):
            early, self._early = self._early, deque()
            for posted in early:
                if posted.until <= now:
                    self._refuse(posted, self._why())
                else:
                    self._early.append(posted)

    def _why(self) -> str:
        waits = "" if self.joining is None else f", waiting for {self.joining.waits_for}"
        return self.trouble or f"it is about to join{waits}"

    def _post(self, call: Call, resolve: Resolve, claim: Callable[[], bool]) -> None:
        posted = Posted(call, resolve, claim, self.loop.time(), self._default_timeout)
        with self._lock:
            # Under the lock with `close`: what is put here before it is refused by it, and later calls see it closed.
            if self.closed:
                raise Unavailable(f"this process is not connected to the cluster: {self.trouble}")
            self._count(posted)
            self._calls.append(posted)
            wake, self._scheduled = not self._scheduled, True
        if wake:
            try:
                self.loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                raise Unavailable("the sharding loop of this process has ended") from None

    def _enter(self, call: Call, resolve: Resolve) -> None:
        """Begin a call that is made on the loop itself, or let it wait for the process."""
        posted = Posted(call, resolve, _always, self.loop.time(), self._default_timeout)
        if self.process is not None:
            self._begin(posted)
        else:
            with self._lock:
                self._count(posted)
            self._early.append(posted)

    def _count(self, posted: Posted) -> None:
        limits = self._limits
        if self._waiting >= limits.max_parcels or self._waiting_bytes + posted.size > limits.max_bytes:
            raise BufferFull(
                f"{self._waiting} calls of {self._waiting_bytes} bytes wait for the sharding loop of this process"
                f" ({self._why()}): slow down"
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
            return  # its caller has given up, and was told that it would not be begun
        if process is None:
            resolve(None, Unavailable(f"this process is not connected to the cluster: {self._why()}"))
            return
        if posted.at + waited >= posted.until and not call[6]:
            resolve(None, Unavailable("the time of the call was over before it could be begun"))
            return
        try:
            future = process.ask(*call[:6], tell=call[6], chain=call[7], trace=call[8], waited=waited)
        except ShardingError as error:
            resolve(None, error)
            return
        if not call[6]:
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
            self._returns[loop] = deque(((future, value, error),))
        try:
            loop.call_soon_threadsafe(self._hand_out, loop)
        except RuntimeError:
            # The caller's loop has ended, and with it whoever waited.
            with self._lock:
                self._returns.pop(loop, None)

    def _hand_out(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            returns = self._returns.pop(loop)
        for future, value, error in returns:
            _settle(future, value, error)


class BackgroundPortal:
    """A portal with a thread of its own, for processes that only ask."""

    def __init__(
        self,
        make_process: Callable[[], Process],
        new_loop: Callable[[], asyncio.AbstractEventLoop],
        timeout: float,
        limits: RegionLimits | None = None,
    ) -> None:
        refuse_green_threads()
        self.pid = os.getpid()
        self._make_process = make_process
        loop = new_loop()
        self.portal = Portal(loop, timeout, limits)
        self._halt: asyncio.Event
        self._thread = threading.Thread(target=self._run, args=(loop,), name="sharding-client", daemon=True)
        self._thread.start()

    def close(self, seconds: float = JOIN_SECONDS) -> None:
        """End the thread; what still waits is told."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            with contextlib.suppress(RuntimeError):  # it has ended just now
                self.portal.loop.call_soon_threadsafe(lambda: self._halt.set())
            self._thread.join(seconds)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
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
            loop.close()

    async def _live(self) -> None:
        self._halt = asyncio.Event()
        expiry = asyncio.ensure_future(self._expire())
        try:
            await self._keep_joined(self._halt)
        finally:
            expiry.cancel()
            await asyncio.wait([expiry])  # else its end would never be seen, and be complained of

    async def _keep_joined(self, halt: asyncio.Event) -> None:
        """Belong to the cluster, joining it as often as it takes."""
        delay = RETRY_SECONDS
        while not halt.is_set():
            self.portal.joining = process = None
            try:
                process = self.portal.joining = self._make_process()
                await process.start()
            except Exception as error:  # noqa: BLE001  (whatever it is, it may pass: a settings file, a missing table, memory)
                self._tell(error)
                if process is not None:
                    await _closed(process)
                await _within(halt, delay)
                delay = min(delay * 2, RETRY_MAX_SECONDS)
                continue
            self.portal.joined(process)
            await _either(halt, process.failed)
            if halt.is_set():
                await _let_finish(process)
            self.portal.left("this process has left" if halt.is_set() else "a part of it has failed")
            await _closed(process)
            if not halt.is_set():  # it may do so again at once
                await _within(halt, RETRY_MAX_SECONDS)

    def _tell(self, error: Exception) -> None:
        """Why the cluster is not joined now: to callers, and to the log."""
        if isinstance(error, StoreUnavailable | TransportError):
            self.portal.left(str(error))
            logger.warning("cannot reach the cluster: %s", error, extra={"action": "client_waits"})
        else:
            self.portal.left(f"it cannot join: {error!r}")
            logger.critical(
                "this process cannot join the cluster, and tries again: %r", error, exc_info=error,
                extra={"action": "client_failed"},
            )  # fmt: skip

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(0.05 if self.portal.process is None else 1.0)
            self.portal.expire()


def refuse_green_threads() -> None:
    """Say what to do where a thread with an event loop cannot run, instead of hanging."""
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
        text = "this process is leaving the cluster while a call was under way: its fate is unknown"
        resolve(None, Unavailable(text, code="stopped_under_way"))
    elif (error := done.exception()) is not None:
        resolve(None, error)
    else:
        resolve(done.result(), None)


def _ignore(value: bytes | None, error: BaseException | None) -> None:
    """Nobody waits for the outcome of a tell; drops are counted and logged where they happen."""


async def _let_finish(process: Process) -> None:
    """Give what was told just before a moment: a script that tells and ends has meant it."""
    now = process.ports.clock.now
    until = now() + FAREWELL_SECONDS
    while process.asker.pending:
        if now() >= until:
            return
        await asyncio.sleep(0.005)


async def _closed(process: Process) -> None:
    """Close what did not start, or has failed: what is broken may not close either, and another one is made all the same."""
    try:
        await process.close()
    except Exception as error:
        logger.warning("while closing: %r", error, exc_info=error, extra={"action": "client_failed"})


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(each.wait()) for each in (first, second)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
