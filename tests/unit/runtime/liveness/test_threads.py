"""The parts that need real threads: the lifeline beside a blocked loop, the watchdog, the clock."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharding_app.ports.lifeline import Pulse, SessionLost
from sharding_app.protocol.liveness.node_lease import Lease
from sharding_app.protocol.records import Backend, Lineage, Server
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.base.config import LifelineSettings
from sharding_app.runtime.liveness import thread
from sharding_app.runtime.liveness.thread import LifelineThread
from sharding_app.runtime.liveness.watchdog import Watchdog
from tests.support.slack import SLACK

SERVER = Server(started="one", timeline=1)
QUICK = LifelineSettings(ping_interval_seconds=0.05, retry_seconds=0.01, retry_max_seconds=0.02)


def hold_the_loop_by_a_handler(seconds: float) -> None:
    time.sleep(seconds)


def stands_in_a_ping(released: threading.Event) -> None:
    released.wait()


class Session:
    """Always answers, unless told otherwise."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.lost = False
        self.poison: BaseException | None = None
        self.closed = 0
        self.term = 0
        self.older = 0

    async def open(self) -> Backend:
        self.threads.add(threading.get_ident())
        if self.lost:
            raise SessionLost("refused")
        return Backend(pid=1, started="now")

    async def lock(self, key: int) -> bool:
        return True

    async def unlock(self, key: int) -> None: ...

    async def ping(self) -> Pulse:
        if self.poison is not None:
            poison, self.poison = self.poison, None
            raise poison
        if self.lost:
            raise SessionLost("gone")
        return Pulse(SERVER, self.term > 0)

    async def elect(self, incarnation: str) -> int | None:
        self.term = 1
        return 1

    async def resign(self) -> None:
        self.term = 0

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def close(self) -> None:
        self.closed += 1


class Shell:
    def __init__(self, guard: Watchdog | None = None) -> None:
        self.sessions = (Session(), Session())
        self.told: list[str] = []
        self.threads: set[int] = set()
        self.generation = -1
        self.lease = Lease(2.0 * SLACK, 3.0 * SLACK)
        self.clock = BootClock()
        self.lifeline = LifelineThread(
            self.sessions, self.clock, self.lease, (1, 2), "me", QUICK, self, heart=None, guard=guard
        )

    def note(self, what: str) -> None:
        self.told.append(what)
        self.threads.add(threading.get_ident())

    def on_valid(self) -> None:
        self.note("valid")

    def on_settled(self, server: Server) -> None:
        self.note("settled")

    def on_suspended(self) -> None:
        self.note("suspended")

    def on_back(self, generation: int, settled: Server | None, lineage: Lineage) -> None:
        self.generation = generation
        self.note("back")

    def on_elected(self, term: int) -> None:
        self.note("elected")

    def on_deposed(self) -> None:
        self.note("deposed")

    def on_pulse(self, pulse: Pulse) -> None:
        self.threads.add(threading.get_ident())


async def eventually(condition: Callable[[], bool], within: float = 20.0 * SLACK) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


def with_shell(main: Callable[[Shell], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        shell = Shell()
        shell.lifeline.start()
        try:
            await main(shell)
        finally:
            await shell.lifeline.stop()
        assert "sharding-lifeline" not in {each.name for each in threading.enumerate()}
        assert not shell.lease.is_valid(shell.clock.now())

    asyncio.run(whole())


def test_a_thread_that_cannot_begin_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CPython's `Thread.start` never returns if the new thread has no memory to begin with."""
    released = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", lambda _self: released.wait())
    monkeypatch.setattr(thread, "START_TIMEOUT_SECONDS", 0.05)

    async def main() -> None:
        lifeline = Shell().lifeline
        with pytest.raises(RuntimeError, match="did not start"):
            lifeline.start()
        await lifeline.stop()

    try:
        asyncio.run(main())
    finally:
        released.set()


def test_sessions_live_on_the_thread_and_callbacks_on_the_loop() -> None:
    async def main(shell: Shell) -> None:
        await eventually(lambda: "settled" in shell.told)
        assert shell.threads == {threading.get_ident()}
        assert threading.get_ident() not in shell.sessions[0].threads

    with_shell(main)


def test_a_blocked_main_loop_keeps_its_lease() -> None:
    async def main(shell: Shell) -> None:
        await eventually(lambda: "settled" in shell.told)
        before = shell.lifeline.valid_until
        hold_the_loop_by_a_handler(0.4 * SLACK)
        assert shell.lifeline.valid_until > before

    with_shell(main)


def test_elects_resigns_and_resumes_across_the_threads() -> None:
    async def main(shell: Shell) -> None:
        shell.lifeline.set_candidate(True)
        await eventually(lambda: "elected" in shell.told)
        assert shell.lifeline.term == 1
        await shell.lifeline.resign()
        await eventually(lambda: "deposed" in shell.told)
        assert shell.sessions[0].term == 0
        for session in shell.sessions:
            session.lost = True
        await eventually(lambda: "suspended" in shell.told)
        for session in shell.sessions:
            session.lost = False
        await eventually(lambda: "back" in shell.told)
        assert not shell.lease.is_valid(shell.clock.now())
        assert not await shell.lifeline.resume(shell.generation - 1)
        assert await shell.lifeline.resume(shell.generation)
        assert shell.lease.is_valid(shell.clock.now())

    with_shell(main)


def test_whatever_ends_the_threads_loop_is_logged_and_it_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(shell: Shell) -> None:
        shell.lifeline.set_candidate(True)
        await eventually(lambda: "elected" in shell.told)
        shell.sessions[1].poison = SystemExit("somebody's exit() in the wrong place")
        await eventually(lambda: shell.told.count("back") == 1)
        assert shell.told.index("suspended") < shell.told.index("back")
        assert await shell.lifeline.resume(shell.generation)
        await eventually(lambda: shell.told.count("elected") == 2)

    with caplog.at_level(logging.ERROR, "sharding.node"):
        with_shell(main)
    assert "begins again" in caplog.text


def test_stopping_before_anything_is_connected() -> None:
    async def main() -> None:
        shell = Shell()
        shell.lifeline.start()
        await shell.lifeline.stop()
        assert not await shell.lifeline.resume(0)
        shell.lifeline.look_now()

    asyncio.run(main())


def test_the_clock_counts_suspended_time_and_never_steps() -> None:
    clock = BootClock()
    number = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
    before = time.clock_gettime(number)
    assert before <= clock.now() <= time.clock_gettime(number)


def test_a_lifeline_that_stands_still_for_good_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease lapses, and nothing else of the node would notice: the main loop turns."""
    monkeypatch.setattr(thread, "BEAT_SECONDS", 0.02)
    released, ended = threading.Event(), threading.Event()

    async def main() -> None:
        watchdog = Watchdog(BootClock(), 30.0, 2.0 * SLACK, ended.set)
        watchdog.start()
        shell = Shell(guard=watchdog)
        shell.lifeline.start()
        first = shell.lifeline.beat
        await eventually(lambda: shell.lifeline.beat > first)
        assert not ended.is_set()

        async def hang() -> Pulse:
            stands_in_a_ping(released)
            return Pulse(SERVER, False)

        monkeypatch.setattr(shell.sessions[0], "ping", hang)
        await eventually(ended.is_set)
        released.set()
        await shell.lifeline.stop()
        watchdog.stop()
        assert not watchdog._others, "an incarnation that has ended is watched over no more"

    with caplog.at_level(logging.CRITICAL, "sharding.node"):
        asyncio.run(main())
    (told,) = caplog.records
    assert told.__dict__["action"] == "stalled_process_ends"
    assert "the lifeline's loop has stood still" in told.getMessage()
    assert "stands_in_a_ping" in told.getMessage()


def test_the_watchdog_names_the_handler_and_shows_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watchdog = Watchdog(BootClock(), limit_seconds=0.3 * SLACK)
        watchdog.start()
        try:
            await asyncio.sleep(0.15 * SLACK)
            assert not caplog.records
            watchdog.running = ("shop.Cart", "add")
            hold_the_loop_by_a_handler(0.8 * SLACK)
            await eventually(lambda: len(caplog.records) == 2)
        finally:
            watchdog.stop()
        assert watchdog.blocked == 1
        assert watchdog.worst_lag_seconds > 0.3 * SLACK
        assert watchdog.take_lag_seconds() > 0.3 * SLACK
        assert watchdog.take_lag_seconds() < 0.3 * SLACK, "a delay is taken once"

    with caplog.at_level(logging.WARNING, "sharding.node"):
        asyncio.run(main())
    told, over = caplog.records
    assert told.__dict__["action"] == "handler_blocks_loop"
    assert (told.__dict__["entity_type"], told.__dict__["command"]) == ("shop.Cart", "add")
    assert "shop.Cart.add" in told.getMessage()
    assert "hold_the_loop_by_a_handler" in told.getMessage()
    assert over.__dict__["action"] == "loop_turns_again"


def test_the_watchdog_is_silent_about_a_loop_that_turns(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watchdog = Watchdog(BootClock(), limit_seconds=0.6 * SLACK)
        watchdog.start()
        first = watchdog.beat
        for _ in range(10):
            hold_the_loop_by_a_handler(0.1 * SLACK)
            await asyncio.sleep(0.001)
        await eventually(lambda: watchdog.beat > first)
        watchdog.stop()

    with caplog.at_level(logging.WARNING, "sharding.node"):
        asyncio.run(main())
    assert caplog.records == []


def test_a_stall_is_reported_with_the_stack(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(BootClock())
    watchdog.running = ("shop.Cart", "add")
    watchdog._main = threading.get_ident()
    with caplog.at_level(logging.CRITICAL, "sharding.node"):
        watchdog.report_stall(10.0)
    assert caplog.records[0].__dict__["action"] == "loop_stalled"
    assert "test_a_stall_is_reported_with_the_stack" in caplog.text


def test_a_stall_in_a_recovery_names_type_and_entity(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = Watchdog(BootClock())
    watchdog.recovering = ("shop.Cart", "alice")
    watchdog._main = threading.get_ident()
    with caplog.at_level(logging.WARNING, "sharding.node"):
        watchdog.report_stall(10.0)
        watchdog._tell(0.5)
    for said in caplog.records:
        assert "the recovery of shop.Cart 'alice'" in said.getMessage()
        assert (said.__dict__["entity_type"], said.__dict__["entity"]) == ("shop.Cart", "alice")
    assert "`snapshot_every`" in caplog.records[1].getMessage()


def test_it_ends_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that gets no memory any more: its end must not hang for that."""

    async def main() -> None:
        shell = Shell()
        shell.lifeline.start()
        while not shell.lease.is_valid(shell.clock.now()):  # noqa: ASYNC110  (another thread makes it so)
            await asyncio.sleep(0.01)

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            await shell.lifeline.stop()
        assert not shell.lease.is_valid(shell.clock.now())
        assert all(session.closed for session in shell.sessions)

    asyncio.run(main())
