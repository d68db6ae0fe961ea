"""From any event loop and any thread, after a fork too, to the one loop of this process; and where that cannot be."""

import asyncio
import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import types

import pytest

from project.shop.entities import Cart
from sharding_app import Unavailable, WrongContext, bootstrap
from sharding_app.model import gateway
from sharding_app.portal import BackgroundPortal, Portal, refuse_green_threads
from sharding_app.runtime.process import Process
from tests.live import Live, until


def test_one_loop_serves_every_event_loop_and_every_thread(client: Live) -> None:
    async def add(sku: str) -> int:
        return await Cart.ref("portal-loops").add(sku)

    assert asyncio.run(add("a")) == 1
    assert asyncio.run(add("a")) == 2, "another event loop"
    assert Cart.ref("portal-loops").sync.add("a") == 3, "no event loop at all"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: Cart.ref("portal-loops").sync.add("a"), range(8)))
    assert sorted(counts) == list(range(4, 12))
    threads = [each.name for each in threading.enumerate()]
    assert threads.count("sharding-client") == 1


def test_many_asks_of_one_loop_cross_together(client: Live) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(*(Cart.ref("portal-many").add("a") for _ in range(200)))

    assert asyncio.run(main()) == list(range(1, 201)), "in the order of the calls"


def test_a_tell_from_a_thread_comes_before_the_next_ask(client: Live) -> None:
    for _ in range(10):
        Cart.ref("portal-tell").add.tell("a")
    assert Cart.ref("portal-tell").sync.total() == 10


def test_a_loop_that_ends_while_it_waits_hurts_nobody(client: Live) -> None:
    async def impatient() -> None:
        task = asyncio.ensure_future(Cart.ref("portal-ends").add("a"))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(impatient())
    assert Cart.ref("portal-ends").sync.add("a") in (1, 2)


def test_exists_from_both_sides(client: Live) -> None:
    ref = Cart.ref("portal-exists")
    assert ref.sync.exists() is False
    ref.sync.add("a")

    async def main() -> bool:
        return await ref.exists()

    assert asyncio.run(main()) is True


def _in_child(connection: multiprocessing.connection.Connection) -> None:
    try:
        connection.send((os.getpid(), Cart.ref("portal-fork").sync.add("child")))
    except BaseException as error:
        connection.send((os.getpid(), repr(error)))
        raise
    finally:
        bootstrap.close_client()


def test_after_a_fork_the_child_begins_anew_and_the_parent_goes_on(client: Live) -> None:
    assert Cart.ref("portal-fork").sync.add("parent") == 1
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(theirs,))
    child.start()
    assert ours.poll(30), "the child hangs"
    pid, count = ours.recv()
    child.join(30)
    assert (pid, count) == (child.pid, 1)
    assert Cart.ref("portal-fork").sync.add("parent") == 2


def test_closing_lets_the_next_use_begin_again(client: Live) -> None:
    assert Cart.ref("portal-close").sync.add("a") == 1
    before = gateway.current()
    bootstrap.close_client()
    assert Cart.ref("portal-close").sync.add("a") == 2
    assert gateway.current() is not before


async def _fails() -> None:
    raise MemoryError


def test_a_process_of_which_a_part_has_failed_joins_again(client: Live) -> None:
    assert Cart.ref("portal-fails").sync.add("a") == 1
    portal = bootstrap.portal()
    before = portal.process
    assert before is not None
    portal.loop.call_soon_threadsafe(lambda: before.run(_fails(), "what fails"))
    until(lambda: portal.process not in (None, before), 20, "another one is there")
    assert Cart.ref("portal-fails").sync.add("a") == 2


def _fake(name: str, **members: object) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module).update(members)
    return module


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (_fake("gevent.monkey", is_module_patched=lambda _: True), "gevent has patched threading"),
        (_fake("eventlet.patcher", is_monkey_patched=lambda _: True), "eventlet has patched threads"),
        (_fake("uwsgi", opt={}), "--enable-threads"),
    ],
    ids=["gevent", "eventlet", "uwsgi"],
)
def test_green_threads_get_an_error_instead_of_a_hang(
    monkeypatch: pytest.MonkeyPatch, module: types.ModuleType, said: str
) -> None:
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(WrongContext, match=said):
        refuse_green_threads()


def test_real_threads_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", _fake("uwsgi", opt={"enable-threads": True}))
    refuse_green_threads()
    assert sys.modules["uwsgi"] is not None


def _never() -> Process:
    raise RuntimeError("cannot be made")


def test_a_background_loop_that_fails_tells_whoever_waits() -> None:
    failing = BackgroundPortal(_never, asyncio.new_event_loop, 5.0)
    until(lambda: failing.portal.closed, 10, "the portal closes")
    with pytest.raises(Unavailable, match="cannot be made"):
        failing.portal.ask_sync(("t", "e", "c", b"", 1.0, None, False, (), ""))


def test_calls_before_the_process_is_there_expire() -> None:
    async def main() -> None:
        portal = Portal(asyncio.get_running_loop(), 0.05)
        answer = portal.ask(("t", "e", "c", b"", 0.05, None, False, (), ""))
        await asyncio.sleep(0.06)
        portal.expire()
        with pytest.raises(Unavailable, match="not connected to the cluster"):
            await answer

    asyncio.run(main())
