"""Threads for handlers: none waits for the one that its callee needs, and connections end while
no handler uses them.
"""

import asyncio
import concurrent.futures
import contextlib
import threading

import pytest
from asgiref.sync import sync_to_async

from sharding_app import Entity, command
from sharding_app.adapters.django import connections as subject
from sharding_app.adapters.django.connections import MAX_LANES, DjangoThreads
from sharding_app.runtime.base.threads import THREADS, depth_of
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


class Inner(Entity, name="threads.Inner"):
    @command
    async def with_the_orm(self) -> int:
        return await sync_to_async(lambda: 7)()

    @command(thread=True)
    def in_a_thread(self) -> int:
        return 8


class Outer(Entity, name="threads.Outer"):
    @command
    async def with_the_orm(self) -> int:
        return await sync_to_async(lambda: Inner.ref(self.entity_id).sync.with_the_orm())()

    @command(thread=True)
    def in_a_thread(self) -> int:
        everybody.wait(20)
        return Inner.ref(self.entity_id).sync.in_a_thread()


everybody = threading.Barrier(THREADS)


@pytest.fixture
def tended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads whose connections were looked at."""
    names: list[str] = []
    monkeypatch.setattr(
        subject, "close_old_connections", lambda: names.append(threading.current_thread().name)
    )
    return names


async def test_one_that_uses_the_orm_may_ask_another_one_that_does() -> None:
    async with MemoryCluster([Inner, Outer], threads=DjangoThreads()) as cluster:
        with cluster.in_use():
            answers = await asyncio.gather(*(Outer.ref(number).with_the_orm() for number in range(5)))
            assert answers == [7] * 5


async def test_all_threads_may_wait_for_others_in_threads() -> None:
    async with MemoryCluster([Inner, Outer], threads=DjangoThreads()) as cluster:
        with cluster.in_use():
            asked = (Outer.ref(number, timeout=30).in_a_thread() for number in range(THREADS))
            assert await asyncio.gather(*asked) == [8] * THREADS


async def test_connections_are_left_alone_under_a_running_handler(tended: list[str]) -> None:
    threads = DjangoThreads()
    with threads.around(0):
        await sync_to_async(lambda: None)()
        await threads.tend()
        assert tended == [], "it may stand in the middle of an iteration"
        with threads.around(0):
            await sync_to_async(lambda: None)()
        await threads.tend()
        assert len(tended) == 1, "the next handler has got another thread, and that one is free"
    await threads.tend()
    assert len(tended) == 2
    await threads.tend()
    assert len(tended) == 2, "nothing has been used since"
    await threads.close()


async def test_handlers_that_never_return_do_not_add_up_to_more_threads_than_allowed() -> None:
    threads = DjangoThreads()
    idents = set()
    with contextlib.ExitStack() as running:
        for _ in range(3 * MAX_LANES):
            running.enter_context(threads.around(0))
            idents.add(await sync_to_async(lambda: threading.get_ident())())
            await threads.tend()
    assert len(idents) == MAX_LANES
    await threads.close()


async def test_closing_does_not_wait_for_a_query_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "CLOSE_SECONDS", 0.01)
    threads, goes_on = DjangoThreads(), threading.Event()
    with threads.around(0):
        query = asyncio.ensure_future(sync_to_async(goes_on.wait)(60))
        await asyncio.sleep(0)
        await threads.close()
        assert not query.done()
        goes_on.set()
        await query


@pytest.mark.parametrize("way", ["in a thread", "with the ORM", "apart"])
async def test_a_thread_that_has_ended_by_itself_is_named(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """As one does that finds no memory to begin with. Its pool counts on it all the same."""
    monkeypatch.setattr("concurrent.futures.thread._worker", lambda *_: None)
    threads = DjangoThreads()
    async with contextlib.AsyncExitStack() as stack:
        if way == "in a thread":
            work = asyncio.get_running_loop().run_in_executor(threads.executor(0), lambda: None)
        else:
            if way == "apart":
                await stack.enter_async_context(threads.apart())
            else:
                stack.enter_context(threads.around(0))
            work = asyncio.ensure_future(sync_to_async(lambda: None)())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        (pool,) = threads.pools()
        (thread,) = pool._threads
        thread.join(20 * SLACK)
        assert threads.lost() == thread.name
        assert not work.done()
        work.cancel()
        monkeypatch.setattr(subject, "CLOSE_SECONDS", 0.01)
        await threads.close()


async def test_a_thread_of_a_watched_pool_is_lost_unless_the_pool_was_shut_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = DjangoThreads()
    pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="watched")
    threads.watch(pool)
    with monkeypatch.context() as patched:
        patched.setattr("concurrent.futures.thread._worker", lambda *_: None)
        work = pool.submit(lambda: None)
    (thread,) = pool._threads
    thread.join(20 * SLACK)
    assert threads.lost() == thread.name
    assert not work.done()
    pool.shutdown(wait=False, cancel_futures=True)
    assert threads.lost() == ""


async def test_idle_threads_are_not_lost() -> None:
    threads = DjangoThreads()
    assert await asyncio.get_running_loop().run_in_executor(threads.executor(0), lambda: 7) == 7
    with threads.around(0):
        await sync_to_async(lambda: None)()
        assert threads.lost() == ""
    await threads.close()
    assert threads.lost() == ""


async def test_the_depth_counts_those_that_wait() -> None:
    assert depth_of(()) == 0
    assert depth_of(("a/1", "b/2")) == 2
    assert depth_of(("~a/1",)) == 0, "who told does not wait"
    assert depth_of(("~a/1", "b/2")) == 1
