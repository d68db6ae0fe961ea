"""Threads for handlers that leave the event loop.

Contract: a handler that waits in a thread for an entity's answer never takes the thread that this
answer needs. Each depth of a call chain has threads of its own. A callee is one deeper than its
caller, and cycles of calls are refused. So handlers that wait for a thread wait only for handlers
of their own depth, which need deeper ones. Closing does not wait for a handler that blocks.
"""

import asyncio
import concurrent.futures
import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from sharding_app.runtime.base import call_chain

T = TypeVar("T")

MAX_DEPTH = 64
"""Longer call chains share the threads of this depth."""
THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Threads of each depth, started when they are needed."""


def depth_of(chain: tuple[str, ...]) -> int:
    """Return how many entities wait for the callee of this chain."""
    waiting = len(chain) - 1 if chain and chain[0].startswith(call_chain.TOLD) else len(chain)
    return min(waiting, MAX_DEPTH)


class Threads(Protocol):
    """The surroundings of handlers in threads, and of those that use the async ORM."""

    def executor(self, depth: int) -> concurrent.futures.Executor:
        """Return the pool for handlers that are declared for a thread."""
        ...

    def run(self, work: Callable[[], Any]) -> Any:
        """Run a handler's work. Called in its thread."""
        ...

    def around(self, depth: int) -> contextlib.AbstractContextManager[None]:
        """Surround an async handler, in its task."""
        ...

    def apart(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Surround a long-lived job, in its task: its sync work has a thread of its own."""
        ...

    async def tend(self) -> None:
        """Tidy up. Called now and then on the node's loop."""
        ...

    def lost(self) -> str:
        """Return the name of a thread that has ended although its pool goes on, or nothing.

        A thread that finds no memory to begin with ends in silence. Its pool still counts on it,
        and the work that it was given waits for ever.
        """
        ...

    async def close(self) -> None:
        """Close everything: the node ends."""
        ...


class PlainThreads:
    """Threads that need nothing around them."""

    def __init__(self) -> None:
        self._pools: dict[int, concurrent.futures.ThreadPoolExecutor] = {}

    def executor(self, depth: int) -> concurrent.futures.Executor:
        pool = self._pools.get(depth)
        if pool is None:
            pool = concurrent.futures.ThreadPoolExecutor(
                THREADS, thread_name_prefix=f"sharding-handler-{depth}"
            )
            self._pools[depth] = pool
        return pool

    def run(self, work: Callable[[], Any]) -> Any:
        return work()

    def around(self, depth: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def apart(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def tend(self) -> None:
        """Do nothing."""

    def pools(self) -> Iterable[concurrent.futures.ThreadPoolExecutor]:
        return self._pools.values()

    def lost(self) -> str:
        if concurrent.futures.thread._shutdown:
            return ""  # the process ends, and idle threads end first
        threads = (each for pool in self.pools() for each in list(pool._threads))
        return next((each.name for each in threads if not each.is_alive()), "")

    async def close(self) -> None:
        """End the threads that are idle, and the others when their handlers have returned."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()


class Escaped(RuntimeError):
    """Stands for an error of a thread that no future may carry."""

    speaks_for_itself = True


def sendable(work: Callable[[], T]) -> Callable[[], T]:
    """Let errors of a function in a thread reach its waiter.

    A future does not take a StopIteration, and a SystemExit on its way through tasks would end the
    loop.
    """

    def run() -> T:
        try:
            return work()
        except StopIteration as error:
            raise Escaped("StopIteration was raised") from error
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise Escaped(f"{type(error).__qualname__} was raised") from error

    return run
