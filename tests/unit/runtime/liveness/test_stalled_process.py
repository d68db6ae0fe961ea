"""A process whose event loop stands still without end: its watchdog ends it, in words if it can."""

import subprocess
import sys

import pytest

from tests.support.slack import SLACK

START = """
import asyncio, logging, os, sys, threading, time
from sharding_app.management.ending import end_at_once
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.liveness import watchdog
{before}
def stands_here():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
async def main():
    dog = watchdog.Watchdog(BootClock(), 0.1, {seconds}, end_at_once)
    dog.running = ("shop.Cart", "add")
    dog.start()
    {work}
    dog.stop()
    print("went on")
asyncio.run(main())
"""


def run(
    work: str, *, seconds: float = 0.5 * SLACK, before: str = "logging.basicConfig()"
) -> tuple[int, str, str]:
    code = START.format(work=work, seconds=seconds, before=before)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60 * SLACK)
    return ended.returncode, ended.stdout, ended.stderr


def test_it_is_ended_and_its_log_says_where_it_stood() -> None:
    code, said, log = run("stands_here()")
    assert (code, said) == (1, "")
    assert "this process is ended" in log
    assert log.count("shop.Cart.add") == log.count("in stands_here") == 2, "when it blocks, and at the end"


def test_one_whose_loop_turns_again_goes_on() -> None:
    code, said, _ = run("time.sleep(0.3)", seconds=30)
    assert (code, said) == (0, "went on\n")


def test_one_without_a_limit_is_left_alone() -> None:
    code, said, log = run("time.sleep(1)", seconds=0)
    assert (code, said) == (0, "went on\n")
    assert "this process is ended" not in log


def test_its_log_takes_nothing_more() -> None:
    """The loop stands in a write to the log, and holds the lock that the watchdog's words need."""
    before = """
class Full(logging.Handler):
    def emit(self, record):
        threading.Event().wait()
watchdog.WORDS_SECONDS = 0.5
logging.getLogger().addHandler(Full())
"""
    code, said, _ = run('logging.getLogger().error("one line too many")', before=before)
    assert (code, said) == (1, "")


@pytest.mark.parametrize("words", ["_tell", "stack"])
def test_there_is_no_memory_for_words(words: str) -> None:
    before = f"""
def no_memory(*_):
    raise MemoryError
watchdog.Watchdog.{words} = no_memory
"""
    code, said, _ = run("stands_here()", before=before)
    assert (code, said) == (1, "")


def test_no_timer_can_be_set() -> None:
    before = """
import faulthandler
def no_memory(*_, **__):
    raise RuntimeError("unable to start watchdog thread")
faulthandler.dump_traceback_later = no_memory
logging.basicConfig()
"""
    code, _, log = run("stands_here()", before=before)
    assert code == 1
    assert "this process is ended" in log


def test_a_timer_that_was_set_ends_no_loop_that_turns() -> None:
    code, said, _ = run(
        f"time.sleep(0.5); await asyncio.sleep({2.5 * SLACK})",
        seconds=2 * SLACK,
        before="watchdog.WORDS_SECONDS = 0.1",
    )
    assert (code, said) == (0, "went on\n")


def test_a_loop_that_is_watched_over_stands_still() -> None:
    code, said, log = run(
        "dog.watch_over('the other loop', threading.get_ident(), lambda: 1.0); await asyncio.sleep(600)"
    )
    assert (code, said) == (1, "")
    assert "the other loop has stood still" in log
    assert "in main" not in log, "the main loop waits in its selector"
    assert "select" in log


def test_one_that_is_watched_over_no_more_may_stand_still() -> None:
    code, said, _ = run(
        f"dog.watch_over('other', 0, lambda: 1.0)(); await asyncio.sleep({1.5 * SLACK})",
        before="import faulthandler",
    )
    assert (code, said) == (0, "went on\n")
