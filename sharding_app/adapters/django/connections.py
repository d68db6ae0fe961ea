"""Django's connections in the threads of handlers, which nothing else tends.

A request gives its connections back at its end, and Django drops unusable ones then. Handlers have
no request. Without this a thread would go on with a connection that a restarted server has ended,
and would keep those that CONN_MAX_AGE limits.

The async ORM, and `sync_to_async` in general, does the work of a context in one thread. Async
handlers of one depth of calls share a context (a *lane*), and with it a connection: one for each
node and depth, however many handlers run. A connection is closed only while no handler of its lane
is under way, since one of them may be in the middle of an iteration. A lane that is never without a
handler is relieved by another one, and tended when its last handler has returned. A worker's `run`
has a lane of its own, whose connection is closed when the worker has stopped.
"""

import asyncio
import concurrent.futures
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.db import close_old_connections, connections

from sharding_app.runtime.base.threads import PlainThreads

P = ParamSpec("P")
T = TypeVar("T")

MAX_LANES = 4
"""Lanes of one depth. More are needed only if handlers use the ORM and then wait for seconds."""
CLOSE_SECONDS = 1.0


class _Thread(concurrent.futures.ThreadPoolExecutor):
    def __init__(self, name: str) -> None:
        super().__init__(1, thread_name_prefix=name)
        self.used = False
        "Whether it was used since its connections were tended."

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "concurrent.futures.Future[T]":
        self.used = True
        return super().submit(fn, *args, **kwargs)


class _Lane(ThreadSensitiveContext):
    """One thread for the sync work of async handlers."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.handlers = 0
        self.thread = _Thread(f"sharding-orm-{depth}")
        SyncToAsync.context_to_thread_executor[self] = self.thread

    def do(self, work: Callable[[], None]) -> "asyncio.Future[None]":
        """Do the work behind everything that the thread was given before."""
        done = asyncio.get_running_loop().run_in_executor(self.thread, work)
        self.thread.used = False
        return done


class DjangoThreads(PlainThreads):
    """`runtime.base.threads.Threads`."""

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[int, list[_Lane]] = {}
        "By depth; the last one is that of the next handler."
        self._apart: dict[_Lane, None] = {}
        self._watched: WeakSet[concurrent.futures.ThreadPoolExecutor] = WeakSet()

    def watch(self, pool: concurrent.futures.ThreadPoolExecutor) -> None:
        """Tell of threads of another pool too that are `lost`, until it is shut down."""
        self._watched.add(pool)

    def run(self, work: Callable[[], Any]) -> Any:
        """Run a handler in the present thread, as Django runs a request."""
        close_old_connections()
        try:
            return work()
        finally:
            close_old_connections()

    @contextlib.contextmanager
    def around(self, depth: int) -> Iterator[None]:
        lanes = self._lanes.get(depth)
        if lanes is None:
            lanes = self._lanes[depth] = [_Lane(depth)]
        lane = lanes[-1]
        lane.handlers += 1
        token = SyncToAsync.thread_sensitive_context.set(lane)
        try:
            yield
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)
            lane.handlers -= 1

    @contextlib.asynccontextmanager
    async def apart(self) -> AsyncIterator[None]:
        lane = _Lane(0)
        self._apart[lane] = None
        token = SyncToAsync.thread_sensitive_context.set(lane)
        try:
            yield
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)
            del self._apart[lane]
            await _closed([lane])

    async def tend(self) -> None:
        """Close old or broken connections in idle lanes, and relieve lanes that are never idle."""
        for depth, lanes in list(self._lanes.items()):
            for lane in [each for each in lanes if each.thread.used and not each.handlers]:
                done = lane.do(close_old_connections)
                await asyncio.wait([done], timeout=CLOSE_SECONDS)  # its thread may have ended: see `lost`
                if done.done():
                    done.result()
            busy = lanes[-1].handlers and lanes[-1].thread.used
            if busy and (rested := next((each for each in lanes if not each.handlers), None)) is not None:
                lanes.remove(rested)
                lanes.append(rested)
            elif busy and len(lanes) < MAX_LANES:
                lanes.append(_Lane(depth))

    def pools(self) -> Iterable[concurrent.futures.ThreadPoolExecutor]:
        lanes = itertools.chain(self._apart, *self._lanes.values())
        watched = [each for each in self._watched if not each._shutdown]
        return itertools.chain(super().pools(), (each.thread for each in lanes), watched)

    async def close(self) -> None:
        """Close the lanes' connections, without waiting for a query under way there."""
        await super().close()
        lanes = [lane for each in self._lanes.values() for lane in each]
        self._lanes.clear()
        await _closed(lanes)


async def _closed(lanes: list[_Lane]) -> None:
    """Close the connections of lanes, and end their threads. A query under way is not waited for
    long.
    """
    closing = [lane.do(connections.close_all) for lane in lanes]
    if closing:
        await asyncio.wait(closing, timeout=CLOSE_SECONDS)
    for lane in lanes:
        lane.thread.shutdown(wait=False)
