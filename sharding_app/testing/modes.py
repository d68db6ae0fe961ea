"""Routes refs in tests: to a new in-memory cluster per test, or to the real one if a test asks.

Django's test runner and pytest-django set up a test environment; from then on no gateway of this
process leads to a real journal unless a test has asked for the real mode, and then only to one in a
database that the test framework has made.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import SimpleTestCase

from sharding_app.adapters.django.database import OF_PERSIST, refuse_broken
from sharding_app.entities import gateway
from sharding_app.ports.journal import Journal
from sharding_app.runtime.base.interfaces import Together
from sharding_app.runtime.base.threads import PlainThreads
from sharding_app.settings.load import get_settings
from sharding_app.testing.projecting import MemoryControl
from sharding_app.testing.thread import ClusterThread
from sharding_app.testing.together import MemoryTogether

logger = logging.getLogger("sharding.entity")

THREAD_SECONDS = 5.0
"""How long the end of a cluster waits for handlers in threads."""
_lock = threading.RLock()
_cluster: ClusterThread | None = None
_control: MemoryControl | None = None
_real = 0


def is_real() -> bool:
    """Whether the present test wants the real cluster."""
    return _real > 0


def memory_cluster() -> ClusterThread:
    """The in-memory cluster of the present test, made at first use."""
    global _cluster
    with _lock:
        if _cluster is None:
            _reset_around_each_test_case()
            shared = open_connections()
            threads = _Threads(shared)
            _cluster = ClusterThread(
                **settings_of_this_site(),
                make_together=lambda journal: _together(journal, threads),
                threads=threads,
                prepare=lambda: share(shared),
                finish=threads.ended,
            )
        return _cluster


def memory_control() -> MemoryControl:
    """What runs projections in the present test."""
    global _control
    with _lock:
        cluster = memory_cluster()
        if _control is None:
            _control = MemoryControl(cluster)
        return _control


def settings_of_this_site() -> dict[str, Any]:
    """Return the settings of ``SHARDING`` that apply to a cluster in memory."""
    ours = get_settings()
    return {
        "config": ours.node(name="test"),
        "defaults": ours.type_defaults,
        "database": ours.database,
    }


def reset() -> None:
    """End the cluster of the last test, if any; the next use creates another."""
    global _cluster, _control
    with _lock:
        cluster, _cluster = _cluster, None
        _control = None
    if cluster is not None:
        gateway.forget()
        cluster.close()


@contextlib.contextmanager
def real() -> Iterator[None]:
    """Route refs to the real cluster within the block; close our connections at the end."""
    global _real
    reset()
    gateway.forget()
    _real += 1
    try:
        yield
    finally:
        from sharding_app import wiring

        wiring.close_client()
        _real -= 1
        gateway.forget()


# -- The test's own database connections -----------------------------------------------------------


def open_connections() -> dict[str, BaseDatabaseWrapper]:
    """Return this thread's connections in a test's transaction, which do not see others' writes."""
    return {each.alias: each for each in connections.all(initialized_only=True) if each.in_atomic_block}


def _together(journal: Journal, threads: "_Threads") -> Together:
    alias = get_settings().database

    @contextlib.contextmanager
    def atomic(begin_hooks: Callable[[], None]) -> Iterator[None]:
        with threads.borrowing(), transaction.atomic(using=alias):
            transaction.on_commit(begin_hooks, using=alias)
            yield

    return MemoryTogether(journal, atomic, lambda: refuse_broken(connections[alias], OF_PERSIST))


@contextlib.contextmanager
def borrowed(shared: Mapping[str, BaseDatabaseWrapper]) -> Iterator[None]:
    """Use the test's connections in the present thread for a while; others that are opened
    meanwhile are closed.
    """
    for each in shared.values():
        connections[each.alias] = each
    try:
        yield
    finally:
        for each in connections.all(initialized_only=True):
            if each.alias in shared:
                del connections[each.alias]
            else:
                _close(each)


def _close(own: BaseDatabaseWrapper) -> None:
    """Close a connection that a thread of ours has opened.

    The `close` of Django's sqlite backend leaves a database in memory open: closing its last
    connection would empty it. The test has one of its own, and a connection that is dropped without
    being closed is a ResourceWarning since Python 3.13.
    """
    BaseDatabaseWrapper.close(own)


class _Lane(ThreadSensitiveContext):
    """A thread for the async ORM of handlers, on the test's connections."""

    def __init__(self, shared: Mapping[str, BaseDatabaseWrapper]) -> None:
        super().__init__()
        self._shared = shared
        self._thread = concurrent.futures.ThreadPoolExecutor(
            1, thread_name_prefix="sharding-orm", initializer=_take_over, initargs=(shared,)
        )
        SyncToAsync.context_to_thread_executor[self] = self._thread

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Lead the async ORM of the present task here."""
        token = SyncToAsync.thread_sensitive_context.set(self)
        try:
            yield
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)

    async def ended(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, _give_back, self._shared)
        self._thread.shutdown(wait=False)


class _Threads(PlainThreads):
    """Runs handlers in threads on the test's connections, and leaves no connection open.

    As on a node, the async ORM has a thread for each depth of calls. The one that all of a process
    share may be that of sync code which waits for the handler.
    """

    def __init__(self, shared: dict[str, BaseDatabaseWrapper]) -> None:
        super().__init__()
        self._shared = shared
        self._lanes: dict[int, _Lane] = {}
        self._changes = threading.Condition()
        self._borrowers = 0

    def run(self, work: Callable[[], Any]) -> Any:
        with self.borrowing():
            return work()

    @contextlib.contextmanager
    def around(self, depth: int) -> Iterator[None]:
        if depth not in self._lanes:
            self._lanes[depth] = _Lane(self._shared)
        with self._lanes[depth].used():
            yield

    @contextlib.asynccontextmanager
    async def apart(self) -> AsyncIterator[None]:
        lane = _Lane(self._shared)
        try:
            with lane.used():
                yield
        finally:
            await lane.ended()

    @contextlib.contextmanager
    def borrowing(self) -> Iterator[None]:
        """Use the test's connections in the present thread for a while."""
        with self._changes:
            self._borrowers += 1
        try:
            with borrowed(self._shared):
                yield
        finally:
            with self._changes:
                self._borrowers -= 1
                self._changes.notify_all()

    async def ended(self) -> None:
        """Give the test's connections back, when no thread is at work with them: the rest of a
        handler would write behind the test's end, or break the transaction of the next test.
        """
        with concurrent.futures.ThreadPoolExecutor(1) as one:
            if not await asyncio.get_running_loop().run_in_executor(one, self._are_idle):
                logger.warning(
                    "a handler of a test that has ended is still at work in a thread, after %g s: what it does with the"
                    " database may break other tests", THREAD_SECONDS, extra={"action": "handler_left"},
                )  # fmt: skip
        lanes, self._lanes = list(self._lanes.values()), {}
        for each in lanes:
            await each.ended()
        await give_back(self._shared)

    def _are_idle(self) -> bool:
        """Wait until no thread uses the test's connections. False: it takes too long."""
        with self._changes:
            return self._changes.wait_for(lambda: not self._borrowers, THREAD_SECONDS)


async def share(shared: Mapping[str, BaseDatabaseWrapper]) -> None:
    """Run the async ORM on the test's connections, so that its writes are rolled back too."""
    if shared:
        await sync_to_async(_take_over)(shared)


async def give_back(shared: Mapping[str, BaseDatabaseWrapper]) -> None:
    """Leave no connection behind in the thread of the async ORM: the test's are the test's, others
    are closed.
    """
    await sync_to_async(_give_back)(shared)


def _take_over(shared: Mapping[str, BaseDatabaseWrapper]) -> None:
    for each in shared.values():
        each.inc_thread_sharing()
        connections[each.alias] = each


def _give_back(shared: Mapping[str, BaseDatabaseWrapper]) -> None:
    for alias, each in shared.items():
        each.dec_thread_sharing()
        del connections[alias]
    for own in connections.all(initialized_only=True):
        if own.alias not in shared:
            _close(own)


# -- Django's own test cases -----------------------------------------------------------------------

_wrapped = False


def _reset_around_each_test_case() -> None:
    """From the first use on, each test case begins and ends without a cluster; `run` and
    `doCleanups` are unittest's public methods.

    The test with the first use is within its `run` already. Its cleanups are yet to come, and
    Django rolls its transaction back behind them: what a handler still writes goes with it.
    """
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    run: Callable[..., Any] = SimpleTestCase.run

    def run_alone(self: SimpleTestCase, result: Any = None) -> Any:
        reset()
        try:
            return run(self, result)
        finally:
            reset()

    clean: Callable[..., Any] = SimpleTestCase.doCleanups

    def clean_all(self: SimpleTestCase) -> Any:
        try:
            return clean(self)
        finally:
            reset()

    SimpleTestCase.run = run_alone  # type: ignore[method-assign,assignment]
    SimpleTestCase.doCleanups = clean_all  # type: ignore[method-assign,assignment]
