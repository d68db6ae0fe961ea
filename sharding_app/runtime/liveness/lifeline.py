"""The lifeline: two sessions that show that this process is alive, and that elect the coordinator.

Each session has one task: open, lock, ping. Between pings it listens, so that a session that the
server has ended is noticed at once. On any loss the lease is told first; then the session is
closed, and opened again after a short back-off. The two sessions ping half an interval apart, so
that one of them sees a vacant coordinator's lock within a quarter of a second. At rest this is all:
two pings in each interval.

The coordinator's lock is held on session 0; the loss of that session deposes. A candidate asks for
the lock (`elect`) once with each of session 0's pings while pulses show it vacant. It asks quickly,
for a bounded time, when the lock has just become vacant or `look_now` was called.

It runs on any asyncio loop: the simulation's, or one of its own in a thread
(`runtime.liveness.thread`). Callbacks are plain functions, called on that loop, that neither wait
nor raise. The lease belongs to this loop too. Other threads read `lease.valid_until` and nothing
else of it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, assert_never

from sharding_app.ports.clock import Clock
from sharding_app.ports.lifeline import LifelineSession, Pulse, SessionLost, SessionRefused
from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.liveness.node_lease import Lease, LeaseChange
from sharding_app.protocol.records import Backend
from sharding_app.runtime.base.config import LifelineSettings
from sharding_app.runtime.base.interfaces import Heart, LifelineCallbacks
from sharding_app.runtime.liveness.watchdog import Stall

logger = logging.getLogger("sharding.node")

T = TypeVar("T")

WATCH = 2
LOCK_AGAIN_SECONDS = 0.15
CLOSE_SECONDS = 0.15


class Waits:
    """Waits for answers that may never come, and between pings, until one is woken.

    Contract: no wait is longer than its limit. A call that ignores its cancellation is left behind.
    """

    def __init__(self, answer_seconds: float) -> None:
        self._answer_seconds = answer_seconds
        self._abandoned: set[asyncio.Future[Any]] = set()
        self._sleepers: dict[int, asyncio.Future[None]] = {}

    async def answer(self, call: Coroutine[Any, Any, T], seconds: float = 0.0) -> T:
        """Await an answer, for `seconds` at most, or for the usual time.

        Raises SessionLost, or the error of the call.
        """
        limit = seconds or self._answer_seconds
        task = asyncio.ensure_future(call)
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise SessionLost(f"no answer within {limit:g} s")
        return task.result()

    async def pause(self, who: int, seconds: float) -> None:
        """Sleep for `seconds`, or until `who` is woken."""
        loop = asyncio.get_running_loop()
        sleeper = self._sleepers[who] = loop.create_future()
        timer = loop.call_later(seconds, _finish, sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.pop(who, None)

    def wake(self, who: int) -> None:
        if (sleeper := self._sleepers.get(who)) is not None:
            _finish(sleeper)

    def _abandon(self, task: "asyncio.Future[Any]") -> None:
        def forget(done: "asyncio.Future[Any]") -> None:
            self._abandoned.discard(done)
            if not done.cancelled():
                done.exception()

        self._abandoned.add(task)
        task.add_done_callback(forget)
        task.cancel()


def _finish(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class Lifeline:
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
    ) -> None:
        self.lease = lease
        self.term: Term | None = None
        "Set while this node is the coordinator."
        self.pulse: Pulse | None = None
        self.backends: list[Backend | None] = [None, None]
        self.losses = 0
        "Sessions lost since the start, for metrics."
        self._refusals = ["", ""]
        self._sessions = sessions
        self._clock = clock
        self._keys = lock_keys
        self._incarnation = incarnation
        self._settings = settings
        self._callbacks = callbacks
        self._candidate = False
        self._vacant = False
        self._highest_term: Term = 0
        self._quick_until = float("-inf")
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._ask_now = [False, False]
        "Ping at once: the other session was lost, or the server has said something."
        self._waits = Waits(settings.answer_timeout_seconds)
        self._released = asyncio.Event()
        "Set while the coordinator's lock is neither held nor asked for."
        self._released.set()
        self._phase = 0.0
        self._heart = heart
        self._stall = Stall(clock.now())

    @property
    def valid_until(self) -> float:
        return self.lease.valid_until

    @property
    def refused(self) -> str:
        return next(filter(None, self._refusals), "")

    # -- Requests of the node ----------------------------------------------------------------------

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._phase = loop.time()
        jobs: Iterable[Coroutine[Any, Any, None]] = (self._hold(0), self._hold(1), self._watch())
        self._tasks = [loop.create_task(job) for job in jobs]

    def set_candidate(self, candidate: bool) -> None:
        """Stand for coordinator or not. Standing down gives the lock back."""
        self._candidate = candidate
        self._waits.wake(0)

    def told_term(self, term: Term) -> None:
        """Learn the term of the rows: an older one is over."""
        self._highest_term = max(self._highest_term, term)
        if self.term is not None and self.term < term:
            self._waits.wake(0)

    def look_now(self) -> None:
        """Watch the coordinator's lock closely for a while: the coordinator is suspected."""
        self._quick_until = self._clock.now() + self._settings.quick_for_seconds
        self._waits.wake(0)

    async def resign(self) -> None:
        """Stand down, and return when the coordinator's lock is given back or lost."""
        self.set_candidate(False)
        await self._released.wait()

    async def resume(self, generation: int) -> bool:
        """Become valid again after the rows were compared.

        False: lost again, wait for the next `on_back`.
        """
        resumed = self.lease.resume(generation, self._clock.now())
        self._waits.wake(WATCH)
        return resumed

    async def stop(self) -> None:
        """Give up the lease, then the sessions and with them all locks."""
        self.lease.drop()
        await self.abort()

    async def abort(self) -> None:
        """End the tasks and close the sessions.

        The lease is lost with them, and may be taken up again.
        """
        self._stopping = True
        for index in (0, 1):
            self._lost(index, connected=False, why="stopped")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for index in (0, 1):
            await self._close(index)

    async def broken(self) -> None:
        """Wait until one of the tasks ends, which none ever should, and raise its error."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    # -- One session -------------------------------------------------------------------------------

    async def _hold(self, index: int) -> None:
        """Keep a session for as long as the node lives, whatever happens to it."""
        failures = 0
        while not self._stopping:
            connected = False
            try:
                self.backends[index] = await self._waits.answer(
                    self._sessions[index].open(), self._settings.open_timeout_seconds
                )
                connected = True
                self._refusals[index] = ""
                await self._lock(index)
                await self._renew(index)
            except SessionLost as error:
                self._refusals[index] = str(error) if isinstance(error, SessionRefused) else ""
                self._failed(index, connected=connected, why=str(error))
            except Exception:
                logger.exception("lifeline session %d failed", index, extra={"action": "lifeline_failed"})
                self._failed(index, connected=connected, why="a mistake of ours, see above")
            failures = 0 if connected else failures + 1
            await self._close(index)
            await self._waits.pause(index, self._back_off(index, failures))

    def _back_off(self, index: int, failures: int) -> float:
        """Return the pause before the next attempt.

        A hundred nodes that have lost the server at the same moment must not come back at once
        while it starts, nor two of them together each time.
        """
        longest = doubled(self._settings.retry_seconds, failures, self._settings.retry_max_seconds)
        chance = self._settings.chance(self._incarnation, index, failures)
        return longest * (1 - chance / 2)

    async def _lock(self, index: int) -> None:
        """Take the lock.

        Our own former session may hold it until the server has given up on that one.
        """
        while not await self._waits.answer(self._sessions[index].lock(self._keys[index])):
            await self._waits.pause(index, LOCK_AGAIN_SECONDS)
        self.lease.locked(index)

    async def _renew(self, index: int) -> None:
        while True:
            self._ask_now[index] = False
            stalled = self._main_loop_stalls()
            if not stalled:
                await self._ping(index)
            due = self._next_ping(index)
            while not self._ask_now[index] and (left := due - asyncio.get_running_loop().time()) > 0:
                if index == 0 and self.term is not None and (not self._candidate or self._outdated()):
                    await self._resign()
                if index == 0 and self._wants_election():
                    await self._elect()
                    quick = self._clock.now() < self._quick_until and self.term is None
                    left = min(left, self._next_try()) if quick else left
                # While stalled, no ping reads the server's messages, and an unread one would wake
                # us for ever.
                await (self._waits.pause(index, left) if stalled else self._listen(index, left))

    def _main_loop_stalls(self) -> bool:
        """Whether the main loop has stood still for too long, while this one turned."""
        if self._heart is None:
            return False
        limit, before = self._settings.loop_stall_limit_seconds, self._stall.seconds
        held = self._stall.look(self._heart.beat, self._clock.now(), self._settings.ping_interval_seconds)
        if before < limit <= held:
            self._heart.report_stall(held)
        return held >= limit

    async def _listen(self, index: int, seconds: float) -> None:
        """Wait, and listen.

        When the server ends the sessions it frees the locks, and other nodes do not wait.
        """

        def heard() -> None:
            self._ask_now[index] = True
            self._waits.wake(index)

        ends = self._sessions[index].watch(heard)
        try:
            await self._waits.pause(index, seconds)
        finally:
            ends()

    async def _ping(self, index: int) -> None:
        sent_at = self._clock.now()
        self.lease.ping_sent(index, sent_at)
        pulse = await self._waits.answer(self._sessions[index].ping())
        changes = self.lease.ping_answered(index, sent_at, pulse.server, self._clock.now())
        self._tell(changes + self.lease.confirm(self._clock.now()))
        self._take(pulse)

    def _next_ping(self, index: int) -> float:
        """Return the next point of this session's grid; the two grids lie half an interval
        apart.
        """
        interval = self._settings.ping_interval_seconds
        now = asyncio.get_running_loop().time()
        passed = (now - self._phase - index * interval / 2) % interval
        return now + interval - passed

    # -- The coordinator's lock --------------------------------------------------------------------

    def _take(self, pulse: Pulse) -> None:
        self.pulse = pulse
        vacant = not pulse.coordinator_locked
        if vacant and not self._vacant:
            self._quick_until = self._clock.now() + self._settings.quick_for_seconds
            self._waits.wake(0)
        self._vacant = vacant
        self._call(self._callbacks.on_pulse, pulse)

    def _wants_election(self) -> bool:
        now = self._clock.now()
        if not self._candidate or self.term is not None or not self.lease.is_valid(now):
            return False
        return self._vacant or now < self._quick_until

    def _next_try(self) -> float:
        """Return the pause before the next try for the lock.

        It grows with the number of older candidates.

        Each try reads all members' locks, and it is enough that the next in line is quick.
        """
        return self._settings.quick_interval_seconds * max(1, self._sessions[0].older)

    def _outdated(self) -> bool:
        if self.term is None or self.term >= self._highest_term:
            return False
        logger.warning(
            "another node has raised the coordinator's term to %d, ours was %d: standing down",
            self._highest_term,
            self.term,
            extra={"action": "coordinator_deposed"},
        )
        return True

    async def _elect(self) -> None:
        self._released.clear()
        term = await self._waits.answer(self._sessions[0].elect(self._incarnation))
        if term is None:
            self._released.set()
            return
        self._vacant = False
        if not self._candidate:
            await self._resign()
            return
        self.term = term
        self._call(self._callbacks.on_elected, term)

    async def _resign(self) -> None:
        self._depose()
        await self._waits.answer(self._sessions[0].resign())
        self._released.set()

    def _depose(self) -> None:
        if self.term is not None:
            self.term = None
            self._call(self._callbacks.on_deposed)

    # -- Losses and callbacks ----------------------------------------------------------------------

    def _failed(self, index: int, *, connected: bool, why: str) -> None:
        """Withdraw a session that failed, if it had opened.

        The loss of one that did not open was reported before. It must not wake the other session
        out of its back-off: the two would wake each other without a pause while the server is away.
        """
        if connected:
            self._lost(index, connected=True, why=why)

    def _lost(self, index: int, *, connected: bool, why: str) -> None:
        """Withdraw the session from the lease, before closing it lets the server free its lock."""
        self._tell(self.lease.session_lost(index, self._clock.now()))
        self._ask_now[1 - index] = True
        self._waits.wake(1 - index)
        if index == 0:
            self._depose()
            self._released.set()
        if connected and not self._stopping:
            self.losses += 1
            logger.warning(
                "lifeline session %d lost: %s",
                index,
                why,
                extra={"action": "lifeline_lost", "session": index},
            )

    def _tell(self, changes: list[LeaseChange]) -> None:
        for change in changes:
            match change:
                case "valid":
                    self._call(self._callbacks.on_valid)
                case "settled":
                    if self.lease.settled is not None:
                        self._call(self._callbacks.on_settled, self.lease.settled)
                case "suspended":
                    self._call(self._callbacks.on_suspended)
                case "back" if self.lease.lineage is not None:
                    lease = self.lease
                    self._call(self._callbacks.on_back, lease.generation, lease.settled, lease.lineage)
                case "back":
                    pass
                case _:
                    assert_never(change)
        if changes:
            self._waits.wake(WATCH)

    def _call(self, callback: Callable[..., None], *args: object) -> None:
        """Call back. A mistake in the node's callback must not cost the node its sessions."""
        try:
            callback(*args)
        except Exception:
            logger.exception("a callback of the lifeline failed", extra={"action": "lifeline_failed"})

    async def _watch(self) -> None:
        """Notice in time that the lease has lapsed, also when no session reports anything."""
        while True:
            now = self._clock.now()
            self._tell(self.lease.tick(now))
            left = self.lease.valid_until - now
            await self._waits.pause(
                WATCH, max(left, 0.001) if left > 0 else self._settings.ping_interval_seconds
            )

    async def _close(self, index: int) -> None:
        self.backends[index] = None
        try:
            await self._waits.answer(self._sessions[index].close(), CLOSE_SECONDS)
        except SessionLost:
            return
        except Exception:
            logger.exception("closing lifeline session %d failed", index, extra={"action": "lifeline_failed"})
