"""A process that has left ends, whatever its threads do, and the end of a child is not its own."""

import subprocess
import sys

import pytest

from tests.support.slack import SLACK

BLOCKED = """
import asyncio, logging, time
from sharding_app.management.ending import end_despite_threads
logging.basicConfig()
async def main():
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
    end_despite_threads(0.1)
asyncio.run(main())
"""
FREE = """
from sharding_app.management.ending import end_despite_threads
end_despite_threads(600)
"""


def test_a_handler_that_blocks_in_a_thread_does_not_keep_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60 * SLACK
    )
    assert ended.returncode == 0
    assert "threads are still running: " in ended.stderr
    assert "asyncio_0" in ended.stderr


def test_one_whose_threads_end_does_not_wait() -> None:
    ended = subprocess.run([sys.executable, "-c", FREE], capture_output=True, text=True, timeout=60 * SLACK)
    assert (ended.returncode, ended.stderr) == (0, "")


FORKS = """
import asyncio, multiprocessing, signal, sys, time
from sharding_app.management.ending import own_signals

def end_a_child():
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join(20)
    print(child.exitcode)
    child.kill()

async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, print, "the parent is asked to end")
    with own_signals([signal.SIGTERM, signal.SIGINT]):
        await asyncio.to_thread(end_a_child)
        end_a_child()
        await asyncio.sleep(0.1)

if sys.argv[1] == "asyncio":
    asyncio.run(main())
else:
    import uvloop
    uvloop.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_child_that_is_asked_to_end_does_so_and_its_parent_does_not(loop: str) -> None:
    """As by the end of a pool of multiprocessing in a handler."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    ended = subprocess.run([sys.executable, "-c", FORKS, loop], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr) == ("-15\n-15\n", "")
