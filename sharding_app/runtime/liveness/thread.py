"""A lifeline on its own thread and event loop, so that a user's blocking call cannot kill the node.

The node's loop calls the methods here. Callbacks come back to it through `call_soon_threadsafe`, in
order. Only values that need no lock, such as `lease.valid_until` and `term`, are read across the
threads. If the thread's loop ends for any reason but `stop`, the lease ends first, the reason is
logged, and the lifeline begins again.
"""

import _thread
import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sharding_app.ports.clock import Clock
from sharding_app.ports.lifeline import LifelineSession, Pulse
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.records import Lineage, Server
from sharding_app.runtime.base.config import LifelineSettings
from sharding_app.runtime.base.interfaces import Guard, Heart, LifelineCallbacks
from sharding_app.runtime.liveness.lifeline import Lifeline

logger = logging.getLogger("sharding.node")

T = TypeVar("T")

START_TIMEOUT_SECONDS = 10.0
BEGIN_AGAIN_SECONDS = 0.5
END_LOOK_SECONDS = 0.005
BEAT_SECONDS = 0.5


class LifelineThread:
    """The `LifelineControl` of real processes. All its methods are called on the node's loop."""

    def __init__(
        self,
        sessions: tuple[LifelineSession, LifelineSession],
        clock: Clock,
        lease: Lease,
        lock_keys: tuple[int, int],
        incarnation: Incarnation,
        settings: LifelineSettings,
        callbacks: LifelineCallbacks,
        heart: Heart | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.lease = lease
        self.beat = 0.0
        "A number that changes while this loop turns, if there is a guard."
        self._guard = guard
        self._unguard: Callable[[], None] = lambda: None
        self._clock = clock
        self._callbacks = callbacks
        self._candidate = False
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._halt: asyncio.Event | None = None
        self._lifeline: Lifeline | None = None
        self._make: Callable[[LifelineCallbacks], Lifeline] = lambda told: Lifeline(
            sessions, clock, lease, lock_keys, incarnation, settings, told, heart
        )

    @property
    def valid_until(self) -> float:
        return self.lease.valid_until

    @property
    def term(self) -> Term | None:
        return None if self._lifeline is None else self._lifeline.term

    @property
    def refused(self) -> str:
        return "" if self._lifeline is None else self._lifeline.refused

    @property
    def pulse(self) -> Pulse | None:
        return None if self._lifeline is None else self._lifeline.pulse

    @property
    def losses(self) -> int:
        return 0 if self._lifeline is None else self._lifeline.losses

    def start(self) -> None:
        self._begin(_OnMainLoop(self._callbacks, asyncio.get_running_loop()))

    def _begin(self, told: LifelineCallbacks) -> None:
        """Start the thread. Raises RuntimeError.

        Its `start` waits without end if the thread finds no memory to begin with. So another thread
        calls it, and this one waits for a limited time.

        The simulation puts another loop of a virtual process in its place, here and below.
        """
        self._thread = threading.Thread(target=self._run, args=(told,), name="sharding-lifeline", daemon=True)
        _thread.start_new_thread(self._thread.start, ())
        if not self._ready.wait(START_TIMEOUT_SECONDS):
            self._stopping.set()
            raise RuntimeError("the lifeline's thread did not start")
        if self._guard is not None:
            thread = self._thread.ident or 0
            self._unguard = self._guard.watch_over("the lifeline's loop", thread, lambda: self.beat)

    def set_candidate(self, candidate: bool) -> None:
        self._candidate = candidate
        self._post(lambda lifeline: lifeline.set_candidate(candidate))

    def told_term(self, term: Term) -> None:
        self._post(lambda lifeline: lifeline.told_term(term))

    def look_now(self) -> None:
        self._post(lambda lifeline: lifeline.look_now())

    async def resign(self) -> None:
        self._candidate = False
        await self._over_there(lambda lifeline: lifeline.resign(), None)

    async def resume(self, generation: int) -> bool:
        return await self._over_there(lambda lifeline: lifeline.resume(generation), False)

    async def stop(self) -> None:
        """End the lease, then the sessions, then the thread."""
        self._stopping.set()
        self._post(lambda _: self._halt.set() if self._halt is not None else None)
        # Polled, not joined in one more thread: a process without memory can start none.
        while self._goes_on():  # noqa: ASYNC110  (nothing else tells of a thread's end)
            await asyncio.sleep(END_LOOK_SECONDS)
        self._unguard()
        self.lease.drop()

    def _goes_on(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # -- From the node's loop to the thread --------------------------------------------------------

    def _post(self, act: Callable[[Lifeline], None]) -> None:
        def there() -> None:
            if self._lifeline is not None:
                act(self._lifeline)

        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(there)
            except RuntimeError:
                return  # between two loops: the next one starts from the values kept here

    async def _over_there(self, call: Callable[[Lifeline], Coroutine[Any, Any, T]], otherwise: T) -> T:
        async def there() -> T:
            return otherwise if self._lifeline is None else await call(self._lifeline)

        if self._loop is None or self._stopping.is_set():
            return otherwise
        work = there()
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            return otherwise
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled():  # its loop has ended
                return otherwise
            future.cancel()
            raise

    # -- On the thread -----------------------------------------------------------------------------

    def _run(self, told: LifelineCallbacks) -> None:
        while not self._stopping.is_set():
            try:
                with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                    runner.run(self._live(told))
            except BaseException:
                logger.exception(
                    "the lifeline's thread failed and begins again", extra={"action": "lifeline_failed"}
                )
            self._loop = None
            if not self._stopping.is_set():
                changes = [
                    change for index in (0, 1) for change in self.lease.session_lost(index, self._clock.now())
                ]
                if "suspended" in changes:
                    told.on_suspended()
                self._stopping.wait(BEGIN_AGAIN_SECONDS)

    async def _live(self, told: LifelineCallbacks) -> None:
        self._loop = asyncio.get_running_loop()
        if self._guard is not None:
            self._tick()
        self._halt = asyncio.Event()
        lifeline = self._lifeline = self._make(told)
        lifeline.set_candidate(self._candidate)
        lifeline.start()
        self._ready.set()
        if self._stopping.is_set():
            self._halt.set()
        halted = self._loop.create_task(self._halt.wait())
        broken = self._loop.create_task(lifeline.broken())
        try:
            await asyncio.wait({halted, broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            halted.cancel()
            if not broken.done():
                broken.cancel()
            if self._stopping.is_set():
                await lifeline.stop()
            else:
                await lifeline.abort()
        if broken.done() and not broken.cancelled():
            broken.result()

    def _tick(self) -> None:
        self.beat += 1
        if self._loop is not None:
            self._loop.call_later(BEAT_SECONDS, self._tick)


class _OnMainLoop:
    """Delivers each callback on the node's loop, in order, until that loop is closed."""

    def __init__(self, callbacks: LifelineCallbacks, loop: asyncio.AbstractEventLoop) -> None:
        self._callbacks = callbacks
        self._loop = loop

    def _deliver(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            logger.debug("the node's loop is closed", extra={"action": "lifeline_unheard"})

    def on_valid(self) -> None:
        self._deliver(self._callbacks.on_valid)

    def on_settled(self, server: Server) -> None:
        self._deliver(self._callbacks.on_settled, server)

    def on_suspended(self) -> None:
        self._deliver(self._callbacks.on_suspended)

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        self._deliver(self._callbacks.on_back, generation, settled, lineage)

    def on_elected(self, term: Term) -> None:
        self._deliver(self._callbacks.on_elected, term)

    def on_deposed(self) -> None:
        self._deliver(self._callbacks.on_deposed)

    def on_pulse(self, pulse: Pulse) -> None:
        self._deliver(self._callbacks.on_pulse, pulse)
