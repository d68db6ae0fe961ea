"""From any event loop and any thread, after a fork too, to the one loop of this process; and where
that cannot be.
"""

import asyncio
import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import socket
import subprocess
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from project.shop.entities import Cart
from sharding_app import AskTimeout, BufferFull, ShardingError, Unavailable, WrongContext, wiring
from sharding_app.client import portal as portal_module
from sharding_app.client.portal import BackgroundPortal, Portal, refuse_green_threads
from sharding_app.entities import gateway
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.builtin_commands import EVENTS
from sharding_app.protocol.call import Call
from sharding_app.protocol.following import Question, encode
from sharding_app.protocol.region import RegionLimits
from sharding_app.runtime.links import links
from sharding_app.runtime.node.process import Process
from tests.support.live import ROOT, Live, until
from tests.support.slack import SLACK


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


def test_a_loop_that_ends_while_it_waits_hurts_no_other(client: Live) -> None:
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
        wiring.close_client()


def test_after_a_fork_the_child_begins_anew_and_the_parent_goes_on(client: Live) -> None:
    assert Cart.ref("portal-fork").sync.add("parent") == 1
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_in_child, args=(theirs,))
    child.start()
    assert ours.poll(30 * SLACK), "the child hangs"
    pid, count = ours.recv()
    child.join(30 * SLACK)
    assert (pid, count) == (child.pid, 1)
    assert Cart.ref("portal-fork").sync.add("parent") == 2


def test_a_follower_from_before_a_fork_raises_in_the_child(client: Live) -> None:
    """The child has no thread that would serve it; a new one follows by the child's own client."""
    script = (
        "import os\n"
        "import django; django.setup()\n"
        "from project.shop.entities import Cart\n"
        "from sharding_app import Unavailable\n"
        "ref = Cart.ref('portal-follows', timeout=60)\n"
        "ref.sync.add('a')\n"
        "events = ref.sync.events()\n"
        "print(next(events).number, flush=True)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: next(events)\n"
        "    except Unavailable as error: print(error.code, flush=True)\n"
        "    print(next(ref.sync.events()).number, flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "ref.sync.add('b')\n"
        "print(next(events).number)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=client.environment(), cwd=ROOT, check=False, timeout=60 * SLACK,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["1", "stopped", "1", "2"]


def test_a_follower_of_a_client_that_has_ended_is_told(client: Live) -> None:
    ref = Cart.ref("portal-followed")
    ref.sync.add("a")
    events = ref.sync.events()
    assert next(events).number == 1
    portal = wiring.portal()
    wiring.close_client()
    with pytest.raises(Unavailable) as told:
        next(events)
    assert told.value.code == "stopped"
    with pytest.raises(Unavailable):
        asyncio.run(portal.following.follow("shop.Cart", "portal-followed").moved(-1))


def test_what_is_submitted_while_the_loop_ends_has_an_outcome() -> None:
    """From several threads, up to its last turn and beyond: none of them waits for ever."""

    async def forever() -> None:
        await asyncio.Event().wait()

    for _ in range(20):
        background = BackgroundPortal(Attempts().make, asyncio.new_event_loop, 5.0)
        outcomes: list[BaseException] = []

        def submit(portal: Portal = background.portal, outcomes: list[BaseException] = outcomes) -> None:
            while True:
                futures: list[concurrent.futures.Future[None]] = []
                try:
                    futures += [portal.submit(forever()) for _ in range(5)]
                except Unavailable as told:
                    outcomes.append(told)
                    return
                finally:
                    outcomes.extend(ended for each in futures if (ended := each.exception(20 * SLACK)))

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for each in threads:
            each.start()
        background.close()
        for each in threads:
            each.join(60)
            assert not each.is_alive()
        assert {type(each) for each in outcomes} == {Unavailable}


def test_a_call_under_way_is_told_of_a_loop_that_has_ended_by_an_exit(client: Live) -> None:
    """As by an extractor of the user's that exits. A caller on another loop has no clock for it."""
    Cart.ref("portal-exits").sync.add("a")
    portal = wiring.portal()

    async def main() -> None:
        call = Call("shop.Cart", "portal-exits", EVENTS, encode(Question(1, 0, 1, 20.0)), 30.0)
        asked = asyncio.ensure_future(portal.ask(call))
        process = portal.process
        assert process is not None
        while not process.region_client.pending:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)
        portal.loop.call_soon_threadsafe(sys.exit)
        async with asyncio.timeout(10):
            await asked

    try:
        with pytest.raises(Unavailable) as told:
            asyncio.run(main())
        assert told.value.code == "stopped_under_way"
        with pytest.raises(Unavailable, match="its loop ended"):
            Cart.ref("portal-exits").sync.add("a")
    finally:
        wiring.close_client()


def test_closing_lets_the_next_use_begin_again(client: Live) -> None:
    assert Cart.ref("portal-close").sync.add("a") == 1
    before = gateway.current()
    wiring.close_client()
    assert Cart.ref("portal-close").sync.add("a") == 2
    assert gateway.current() is not before


async def _fails() -> None:
    raise MemoryError


def test_a_process_of_which_a_part_has_failed_joins_again(client: Live) -> None:
    assert Cart.ref("portal-fails").sync.add("a") == 1
    portal = wiring.portal()
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


class Attempts:
    """What a client's processes are made of: nothing, again and again."""

    def __init__(self) -> None:
        self.number = 0

    async def make(self) -> Process:
        self.number += 1
        raise RuntimeError("cannot be made")


def test_a_client_that_cannot_begin_says_why_and_tries_again() -> None:
    attempts = Attempts()
    failing = BackgroundPortal(attempts.make, asyncio.new_event_loop, 5.0)
    try:
        with pytest.raises(Unavailable, match="cannot be made"):
            failing.portal.ask_sync(a_call(timeout=0.3))
        until(lambda: attempts.number >= 3, 20, "it tries again")
    finally:
        failing.close()
    assert failing.portal.closed


def a_call(args: bytes = b"", timeout: float | None = None, *, tell: bool = False) -> Call:
    return Call("t", "e", "c", args, timeout, tell=tell)


class Loop:
    """The part of a loop that a portal needs, on which nothing runs until the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wakes: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.wakes.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """Leave it: the tests expire calls by hand."""

    def run(self) -> None:
        wakes, self.wakes = self.wakes, []
        for each in wakes:
            each()


class Asked:
    """Stands for the process: takes calls, answers none."""

    def __init__(self) -> None:
        self.calls: list[tuple[Call, float]] = []
        self.region_client = types.SimpleNamespace(drops={})

    def ask(self, call: Call, waited: float) -> "concurrent.futures.Future[bytes]":
        self.calls.append((call, waited))
        return concurrent.futures.Future()


def standing(limits: RegionLimits | None = None, *, joined: bool = True) -> tuple[Portal, Loop, Asked]:
    loop, process = Loop(), Asked()
    portal = Portal(cast(asyncio.AbstractEventLoop, loop), 5.0, limits)
    if joined:
        portal.joined(cast(Process, process))
    return portal, loop, process


def in_a_thread(portal: Portal, call: Call) -> tuple[threading.Thread, list[ShardingError]]:
    errors: list[ShardingError] = []

    def ask() -> None:
        try:
            portal.ask_sync(call)
        except ShardingError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, errors


@pytest.fixture(autouse=True)
def _no_margin(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "stands_still" in request.node.name:
        monkeypatch.setattr(portal_module, "JOIN_SECONDS", 0.05)


def test_a_call_that_was_taken_by_a_loop_that_stands_still_may_have_had_an_effect() -> None:
    portal, loop, process = standing()
    thread, errors = in_a_thread(portal, a_call(timeout=0.5 * SLACK))
    until(lambda: bool(loop.wakes), 10, "it is posted")
    loop.run()
    thread.join(20)
    assert len(process.calls) == 1
    assert [type(each) for each in errors] == [AskTimeout]


def test_a_call_that_a_loop_that_stands_still_never_took_is_not_begun_later() -> None:
    portal, loop, process = standing()
    thread, errors = in_a_thread(portal, a_call(timeout=0.01))
    thread.join(20)
    assert [type(each) for each in errors] == [Unavailable]
    assert "not started" in str(errors[0])
    loop.run()
    assert process.calls == []


def test_a_signal_that_raises_in_a_call_leaves_the_next_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does, or the time limit of a worker's task."""
    portal, loop, process = standing()

    def interrupted(callback: Callable[[], None]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            portal.tell(a_call(tell=True))
    portal.tell(a_call(tell=True))
    loop.run()
    assert len(process.calls) == 1


def test_a_handler_of_a_signal_that_comes_in_a_tell_may_tell() -> None:
    """It runs on the same thread, in the middle of the other tell."""

    class Limits:
        max_bytes = 1_000_000

        @property
        def max_calls(self) -> int:
            if not handled:
                handled.append(True)
                portal.tell(a_call(tell=True))
            return 10

    handled: list[bool] = []
    portal, loop, process = standing(cast(RegionLimits, Limits()))
    thread = threading.Thread(target=portal.tell, args=(a_call(tell=True),), daemon=True)
    thread.start()
    thread.join(20 * SLACK)
    assert not thread.is_alive()
    loop.run()
    assert len(process.calls) == 2


def test_the_time_before_a_call_is_begun_counts() -> None:
    portal, loop, process = standing()
    portal.tell(a_call(tell=True))
    loop.now += 3.0
    loop.run()
    assert [waited for _, waited in process.calls] == [3.0]


@pytest.mark.parametrize("joined", [True, False])
def test_what_waits_is_bounded_in_count(joined: bool) -> None:
    portal, loop, process = standing(RegionLimits(max_calls=3), joined=joined)
    for _ in range(3):
        portal.tell(a_call(tell=True))
    loop.run()
    if joined:
        for _ in range(3):
            portal.tell(a_call(tell=True))
    with pytest.raises(BufferFull, match="3 calls"):
        portal.tell(a_call(tell=True))
    loop.run()
    portal.joined(cast(Process, process))
    assert len(process.calls) == (6 if joined else 3)
    portal.tell(a_call(tell=True))


def test_what_waits_is_bounded_in_bytes() -> None:
    portal, loop, _ = standing(RegionLimits(max_bytes=10_000), joined=False)
    portal.tell(a_call(b"x" * 8000, tell=True))
    loop.run()
    with pytest.raises(BufferFull):
        portal.tell(a_call(b"x" * 8000, tell=True))
    loop.now += 6.0
    portal.expire()
    portal.tell(a_call(b"x" * 8000, tell=True))
    portal.close("over")
    assert (portal._waiting, portal._waiting_bytes) == (0, 0)


def test_a_call_that_comes_when_the_loop_is_over_is_told() -> None:
    """`close` has taken what there was: nothing would ever take this one."""
    portal, loop, _ = standing()
    waits, errors = in_a_thread(portal, a_call(timeout=30))
    until(lambda: bool(loop.wakes), 10, "it is posted")
    portal.close("it ends")
    waits.join(20)
    assert [type(each) for each in errors] == [Unavailable]
    with pytest.raises(Unavailable, match="it ends"):
        portal.ask_sync(a_call(timeout=30))


def test_a_loop_that_ends_before_its_answer_is_handed_out_is_let_go() -> None:
    portal, _, _ = standing()
    for _ in range(10):
        loop = asyncio.new_event_loop()
        portal._give_back(loop, loop.create_future(), b"", None)
        loop.close()
    assert len(portal._returns) == 1


class Picky(Asked):
    """Raises what no call should raise, as a user's extractor may."""

    def ask(self, call: Call, waited: float) -> "concurrent.futures.Future[bytes]":
        if call.args == b"bad":
            raise LookupError("no shard")
        return super().ask(call, waited)


@pytest.mark.parametrize("joined", [True, False])
def test_a_call_that_cannot_begin_holds_up_no_other(joined: bool) -> None:
    portal, loop, _ = standing(joined=False)
    process = Picky()
    if joined:
        portal.joined(cast(Process, process))
    outcomes: list[BaseException | None] = []
    calls = [a_call(b"first"), a_call(b"bad"), a_call(b"last")]
    portal._post_all([(each, lambda _, error: outcomes.append(error), lambda: True) for each in calls])
    loop.run()
    if not joined:
        portal.joined(cast(Process, process))
    assert [call.args for call, _ in process.calls] == [b"first", b"last"]
    assert [type(each) for each in outcomes] == [LookupError]


@pytest.mark.parametrize("ends", ["expires", "closes", "refused"])
def test_a_tell_that_cannot_begin_is_counted_and_logged(ends: str, caplog: pytest.LogCaptureFixture) -> None:
    portal, loop, _ = standing(joined=False)
    portal.tell(a_call(b"bad", tell=True))
    loop.run()
    if ends == "expires":
        loop.now += 6.0
        portal.expire()
    elif ends == "closes":
        portal.close("it ends")
    else:
        portal.joined(cast(Process, Picky()))
    reason = "refused" if ends == "refused" else "unavailable"
    assert portal.drops == {("t", reason): 1}
    assert [(each.__dict__["action"], each.__dict__["reason"]) for each in caplog.records] == [
        ("dropped", reason)
    ]


def test_a_script_that_ends_before_it_could_join_says_what_is_not_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    async def make() -> Process:
        await asyncio.to_thread(release.wait, 30)
        raise StoreUnavailable("no server")

    background = BackgroundPortal(make, asyncio.new_event_loop, 5.0)
    try:
        background.portal.tell(a_call(tell=True))
        until(lambda: background.portal.is_awaited, 10, "it waits")
        background.close(0.05)
        assert "1 commands are not sent" in caplog.text
        assert "waiting for PostgreSQL" in caplog.text
    finally:
        release.set()
        background.close()


def test_a_thread_may_wait_for_longer_than_threads_can() -> None:
    portal, loop, _ = standing()
    waits, errors = in_a_thread(portal, a_call(timeout=1e308))
    until(lambda: bool(loop.wakes), 10, "it is posted")
    portal.close("it ends")
    waits.join(20)
    assert [type(each) for each in errors] == [Unavailable]


def test_calls_before_the_process_is_there_expire() -> None:
    async def main() -> None:
        portal = Portal(asyncio.get_running_loop(), 0.05)
        answer = portal.ask(a_call(timeout=0.05))
        await asyncio.sleep(0.06)
        portal.expire()
        with pytest.raises(Unavailable, match="not connected to the cluster"):
            await answer

    asyncio.run(main())


def links_of_the_home(entity: str) -> float:
    """How many links the node has on which that entity lives."""
    portal = wiring.portal()
    process = portal.process
    assert process is not None
    homes = {
        route.home
        for region in process.region_client.regions.values()
        for route in region.routes.values()
        if route.home
    }

    async def ask() -> float:
        stats = await process.queries.stats(sorted(homes), 10.0 * SLACK)
        return sum(each.gauges["links"] for each in stats.values())

    return asyncio.run_coroutine_threadsafe(ask(), portal.loop).result(20 * SLACK)


def _asks_and_ends(connection: multiprocessing.connection.Connection) -> None:
    connection.send(Cart.ref("portal-goodbye").sync.add("child"))


def test_the_child_of_a_pool_says_goodbye(client: Live) -> None:
    """It ends without atexit, as the workers of Celery's pools do."""
    Cart.ref("portal-goodbye").sync.add("parent")
    before = links_of_the_home("portal-goodbye")
    for _ in range(4):
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_asks_and_ends, args=(theirs,))
        child.start()
        assert ours.poll(30 * SLACK), "the child hangs"
        ours.recv()
        child.join(30 * SLACK)
        assert child.exitcode == 0
    until(lambda: links_of_the_home("portal-goodbye") <= before, 15, "their links are gone")


def test_a_script_that_tells_and_ends_says_goodbye(client: Live) -> None:
    """As cron jobs and Celery tasks do: what it told is delivered, and no link stays.

    On a busy machine its goodbye may need more time than a script is given: this one has more.
    """
    Cart.ref("portal-script").sync.add("parent")
    script = (
        "import django; django.setup()\n"
        "from sharding_app import wiring\n"
        "from sharding_app.client import portal\n"
        "from sharding_app.runtime.links import links\n"
        "portal.FAREWELL_SECONDS, wiring.GOODBYE_SECONDS, links.LAST_WORDS_SECONDS = 15.0, 40.0, 15.0\n"
        "from project.shop.entities import Cart\n"
        "for number in range(3): Cart.ref('portal-script').add.tell('script')\n"
    )
    before = links_of_the_home("portal-script")
    done = subprocess.run(
        [sys.executable, "-c", script], env=client.environment(), cwd=ROOT, check=False, timeout=60 * SLACK,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Cart.ref("portal-script").sync.total() == 4
    until(lambda: links_of_the_home("portal-script") <= before, 15, "its link is gone")


@pytest.mark.parametrize(
    "end",
    [
        "",
        "wiring.close_client()\n",  # as a server does before it exits
        "def interrupted(*_): raise KeyboardInterrupt\nBackgroundPortal.close = interrupted\n",
    ],
)
def test_a_script_that_ends_while_it_joins_keeps_its_exit_code(client: Live, end: str) -> None:
    """A socket has bytes when the script's interpreter is gone, and the process still there."""
    ours, theirs = socket.socketpair()
    script = (
        "import asyncio, ctypes, sys\n"
        "import django; django.setup()\n"
        "from sharding_app import wiring\n"
        "from sharding_app.client.portal import BackgroundPortal\n"
        "async def join():\n"
        f"    asyncio.get_running_loop().add_reader({theirs.fileno()}, print)\n"
        "    print('joins', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "wiring.GOODBYE_SECONDS = 0.2\n"
        "wiring._background = BackgroundPortal(join, wiring.new_loop, 5.0)\n"
        "wiring._say_goodbye_in_children()\n"
        "own = ctypes.CDLL(None)\n"
        "ctypes.pythonapi.Py_AtExit(own.getchar)\n"  # it waits there; the last one is called first
        "ctypes.pythonapi.Py_AtExit(own.setsid)\n"
        "sys.stdin.readline()\n"
        f"{end}"
        "sys.exit(3)\n"
    )
    with ours, subprocess.Popen(
        [sys.executable, "-c", script], env=client.environment(), cwd=ROOT, pass_fds=[theirs.fileno()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        theirs.close()
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "joins\n"
        process.stdin.write("\n")
        process.stdin.flush()
        until(lambda: os.getsid(process.pid) == process.pid, 30, "its interpreter is gone")
        ours.send(b"bytes")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)  # a thread that goes on has its turn
        process.stdin.close()
        assert process.wait(30 * SLACK) == 3


def test_a_script_that_has_loaded_multiprocessing_is_held_once(client: Live) -> None:
    """That calls the goodbye as well. A thread that is held cannot be held again."""
    script = (
        "import asyncio, sys\n"
        "import multiprocessing.util\n"
        "import django; django.setup()\n"
        "from sharding_app import wiring\n"
        "from sharding_app.client.portal import BackgroundPortal\n"
        "async def join():\n"
        "    await asyncio.Event().wait()\n"
        "wiring.GOODBYE_SECONDS, wiring.HOLD_SECONDS = 0.2, 3600.0\n"
        "wiring._background = BackgroundPortal(join, wiring.new_loop, 5.0)\n"
        "wiring._say_goodbye_in_children()\n"
        "sys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=client.environment(), cwd=ROOT, check=False, timeout=30 * SLACK
    )
    assert done.returncode == 3


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
def test_a_script_that_ends_before_it_looks_up_its_server_sends_its_tells(client: Live, fast: bool) -> None:
    """asyncio looks names up in a thread, and Python's executors have ended by then."""
    script = (
        "import asyncio, sys, threading\n"
        f"if not {fast}: sys.modules['uvloop'] = None\n"
        "import django; django.setup()\n"
        "from sharding_app import wiring\n"
        "from sharding_app.client import portal\n"
        "portal.FAREWELL_SECONDS, wiring.GOODBYE_SECONDS = 15.0, 40.0\n"
        "process, main = wiring.client_process, threading.main_thread()\n"
        "async def late():\n"
        "    while main.is_alive(): await asyncio.sleep(0.01)\n"  # its executors have ended
        "    return await process()\n"
        "wiring.client_process = late\n"
        "from project.shop.entities import Cart\n"
        f"Cart.ref('portal-name-{fast}').add.tell('script')\n"
    )
    url = client.database_url.replace("127.0.0.1", "localhost")
    done = subprocess.run(
        [sys.executable, "-c", script], env=client.environment(DATABASE_URL=url), cwd=ROOT, check=False,
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert Cart.ref(f"portal-name-{fast}").sync.total() == 1


def test_what_runs_at_an_exit_may_tell_or_is_told_that_it_may_not(client: Live) -> None:
    """The handler that was registered last runs first."""
    script = (
        "import atexit\n"
        "def too_late():\n"
        "    try: Cart.ref('portal-atexit').add.tell('late')\n"
        "    except Unavailable as error: print(error)\n"
        "atexit.register(too_late)\n"
        "import django; django.setup()\n"
        "from project.shop.entities import Cart\n"
        "from sharding_app import Unavailable, wiring\n"
        "from sharding_app.client import portal\n"
        "portal.FAREWELL_SECONDS, wiring.GOODBYE_SECONDS = 15.0, 40.0\n"
        "atexit.register(lambda: Cart.ref('portal-atexit').add.tell('last'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=client.environment(), cwd=ROOT, check=False, timeout=90,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "this process ends" in done.stdout
    assert Cart.ref("portal-atexit").sync.total() == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_script_without_a_standard_file_ends_in_order(client: Live, closed: str) -> None:
    """As daemons and some cron jobs run."""
    Cart.ref("portal-closed").sync.add("parent")
    script = (
        "import django; django.setup()\n"
        "from project.shop.entities import Cart\n"
        "Cart.ref('portal-closed').sync.add('script')\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", script],
        env=client.environment(), cwd=ROOT, check=False, timeout=90, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_portal_whose_thread_begins_after_its_end_says_goodbye(
    client: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short script may be over before the thread of its client has had a turn.

    On a busy machine its goodbye may need more time, as above.
    """
    monkeypatch.setattr(portal_module, "FAREWELL_SECONDS", 15.0 * SLACK)
    monkeypatch.setattr(links, "LAST_WORDS_SECONDS", 15.0 * SLACK)
    Cart.ref("portal-late").sync.add("parent")
    before = links_of_the_home("portal-late")
    left = threading.Event()

    class LateLoop(asyncio.SelectorEventLoop):
        def run_until_complete(self, future: Any) -> Any:
            assert left.wait(30)
            return super().run_until_complete(future)

    arguments = Cart.ref("portal-late").add._handler.encode(("script",), {})
    told = Call("shop.Cart", "portal-late", "add", arguments, None, "", tell=True)
    background = BackgroundPortal(wiring.client_process, LateLoop, 30.0 * SLACK)
    for _ in range(3):
        background.portal.tell(told)
    background.close(0.0)
    left.set()
    background._thread.join(60 * SLACK)
    assert not background._thread.is_alive()
    until(lambda: Cart.ref("portal-late").sync.total() == 4, 30, "its tells have arrived")
    until(lambda: links_of_the_home("portal-late") <= before, 15, "its link is gone")


def test_what_was_dropped_stays_counted_when_the_process_joins_anew() -> None:
    """A counter that becomes less is a restart to Prometheus, which adds all of it once more."""

    def process(dropped: int) -> Process:
        client = types.SimpleNamespace(drops=Counter({("shop.Cart", "timeout"): dropped}))
        return cast(Process, types.SimpleNamespace(region_client=client))

    async def main() -> Portal:
        portal = Portal(asyncio.get_running_loop(), 5.0)
        portal.drops["shop.Cart", "unavailable"] = 3
        portal.joined(process(7))
        portal.left("a part of it failed")
        portal.left("it cannot join")
        portal.joined(process(2))
        portal.close("the process ends")
        return portal

    assert asyncio.run(main()).drops == {("shop.Cart", "unavailable"): 3, ("shop.Cart", "timeout"): 9}
