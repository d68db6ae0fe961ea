"""The way from any thread and any event loop to the one loop on which this process's links live.

A process that hosts nothing gets a thread with a loop of its own at first use; after a fork the child begins anew. In a
node process the loop is the node's. Calls from the loop itself go straight in; calls from elsewhere cross over in
batches: one wake-up carries all that has gathered, in both directions.
"""

import asyncio
import concurrent.futures
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from sharding_app.errors import ShardingError, Unavailable, WrongContext
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.process import Process

logger = logging.getLogger("sharding.client")

Call = tuple[str, str, str, bytes, float | None, str | None, bool, tuple[str, ...], str]
"""type, entity id, command, arguments, timeout, command id, tell, who led to it, the caller's trace."""
Resolve = Callable[[bytes | None, BaseException | None], None]

RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 1.0
JOIN_SECONDS = 5.0


class Portal:
    """Carries calls to a process of the cluster, from wherever they are made."""

    def __init__(self, loop: asyncio.AbstractEventLoop, default_timeout: float) -> None:
        self.loop = loop
        self.process: Process | None = None
        self.trouble = ""
        "Why there is no process yet."
        self.joining: Process | None = None
        "What tries to become the process."
        self.closed = False
        self._default_timeout = default_timeout
        self._calls: deque[tuple[Call, Resolve]] = deque()
        self._scheduled = False
        self._early: deque[tuple[Call, Resolve, float]] = deque()
        self._returns: dict[asyncio.AbstractEventLoop, deque[tuple[asyncio.Future[bytes], Any, Any]]] = {}
        self._lock = threading.Lock()

    # -- From anywhere ---------------------------------------------------------------------------------------------

    def ask(self, call: Call) -> Awaitable[bytes]:
        loop = asyncio.get_running_loop()
        if loop is self.loop and self.process is not None:
            return self.process.ask(*call[:6], tell=call[6], chain=call[7], trace=call[8])
        future: asyncio.Future[bytes] = loop.create_future()
        if loop is self.loop:
            self._begin(call, lambda value, error: _settle(future, value, error))
        else:
            self._post(call, lambda value, error: self._give_back(loop, future, value, error))
        return future

    def ask_sync(self, call: Call) -> bytes:
        future: concurrent.futures.Future[bytes] = concurrent.futures.Future()
        self._post(call, lambda value, error: _settle(future, value, error))
        # The portal itself answers in time; the margin is for a loop that is held by something else.
        timeout = (call[4] or self._default_timeout) + JOIN_SECONDS
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            raise Unavailable(
                f"the sharding loop of this process did not answer within {timeout:g} s"
            ) from None

    def tell(self, call: Call) -> None:
        # On the loop itself it goes straight in, as an ask does: else the next ask would overtake it.
        if asyncio._get_running_loop() is self.loop:
            self._take()
            self._begin(call, _ignore)
        else:
            self._post(call, _ignore)

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
        while self._early:
            call, resolve, _ = self._early.popleft()
            self._begin(call, resolve)

    def left(self, trouble: str) -> None:
        self.process = None
        self.trouble = trouble

    def close(self, trouble: str) -> None:
        """Nothing is carried any more: whoever waits is told, and whoever comes."""
        self.process = None
        self.trouble = trouble
        self.closed = True
        self._take()
        while self._early:
            self._early.popleft()[1](
                None, Unavailable(f"this process is not connected to the cluster: {trouble}")
            )

    def expire(self) -> None:
        """Tell those whose time is over before the process is there."""
        now = self.loop.time()
        for entry in [each for each in self._early if each[2] <= now]:
            self._early.remove(entry)
            entry[1](
                None,
                Unavailable(f"this process is not connected to the cluster: {self._why()}"),
            )

    def _why(self) -> str:
        waits = "" if self.joining is None else f", waiting for {self.joining.waits_for}"
        return self.trouble or f"it is about to join{waits}"

    def _post(self, call: Call, resolve: Resolve) -> None:
        if self.closed:
            raise Unavailable(f"this process is not connected to the cluster: {self.trouble}")
        self._calls.append((call, resolve))
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                raise Unavailable("the sharding loop of this process has ended") from None

    def _take(self) -> None:
        self._scheduled = False
        calls = self._calls
        while calls:
            self._begin(*calls.popleft())

    def _begin(self, call: Call, resolve: Resolve) -> None:
        process = self.process
        if process is None:
            self._early.append((call, resolve, self.loop.time() + (call[4] or self._default_timeout)))
            return
        try:
            future = process.ask(*call[:6], tell=call[6], chain=call[7], trace=call[8])
        except ShardingError as error:
            resolve(None, error)
            return
        if not call[6]:
            future.add_done_callback(lambda done: _pass_on(done, resolve))

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
    ) -> None:
        refuse_green_threads()
        self.pid = os.getpid()
        self._make_process = make_process
        loop = new_loop()
        self.portal = Portal(loop, timeout)
        self._halt: asyncio.Event
        self._thread = threading.Thread(target=self._run, args=(loop,), name="sharding-client", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; what still waits is told."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self.portal.loop.call_soon_threadsafe(lambda: self._halt.set())
            self._thread.join(JOIN_SECONDS)

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
            process = self.portal.joining = self._make_process()
            try:
                await process.start()
            except (StoreUnavailable, TransportError) as error:
                self.portal.left(str(error))
                logger.warning("cannot reach the cluster: %s", error, extra={"action": "client_waits"})
                await process.close()
                await _within(halt, delay)
                delay = min(delay * 2, RETRY_MAX_SECONDS)
                continue
            self.portal.joined(process)
            await _either(halt, process.failed)
            self.portal.left("this process has left" if halt.is_set() else "a part of it has failed")
            await process.close()
            if not halt.is_set():  # it may do so again at once
                await _within(halt, RETRY_MAX_SECONDS)

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


def _settle(future: Any, value: bytes | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _pass_on(done: "asyncio.Future[bytes]", resolve: Resolve) -> None:
    if done.cancelled():
        resolve(None, Unavailable("this process is leaving the cluster"))
    elif (error := done.exception()) is not None:
        resolve(None, error)
    else:
        resolve(done.result(), None)


def _ignore(value: bytes | None, error: BaseException | None) -> None:
    """Nobody waits for the outcome of a tell; drops are counted and logged where they happen."""


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
