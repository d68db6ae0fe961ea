"""Threads for handlers that leave the event loop.

Contract: a handler that waits in a thread for an entity's answer never takes the thread that this answer needs. Each depth of
the chain of callers has threads of its own; a callee is one deeper than its caller and a cycle of calls is refused, so
whatever waits for threads waits for handlers that need others. Closing does not wait for a handler that blocks.
"""

import concurrent.futures
import contextlib
import os
from collections.abc import Callable
from typing import Any, Protocol

from sharding_app.runtime import calls

MAX_DEPTH = 64
"""Chains of calls that are longer share the threads of this depth."""
THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Of each depth, made when they are needed."""


def depth_of(chain: tuple[str, ...]) -> int:
    """How many entities wait for what is called by this chain."""
    waiting = len(chain) - 1 if chain and chain[0].startswith(calls.TOLD) else len(chain)
    return min(waiting, MAX_DEPTH)


class Threads(Protocol):
    """What handlers in threads, and those that use the async ORM, need around them."""

    def executor(self, depth: int) -> concurrent.futures.Executor:
        """Where handlers run that are declared for a thread."""
        ...

    def run(self, work: Callable[[], Any]) -> Any:
        """Run a handler's work; called in its thread."""
        ...

    def around(self, depth: int) -> contextlib.AbstractContextManager[None]:
        """Stand around an async handler, in its task."""
        ...

    async def tend(self) -> None:
        """Called now and then on the node's loop."""
        ...

    async def close(self) -> None:
        """The node ends."""
        ...


class PlainThreads:
    """Where nothing but the threads themselves has to be tended."""

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

    async def tend(self) -> None:
        """Nothing is held."""

    async def close(self) -> None:
        """End the threads that are idle, and each other one when its handler has returned."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._pools.clear()
