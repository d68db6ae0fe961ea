"""A process that has left ends, whatever its threads do."""

import subprocess
import sys

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
    ended = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert "threads are still running: " in ended.stderr
    assert "asyncio_0" in ended.stderr


def test_one_whose_threads_end_does_not_wait() -> None:
    ended = subprocess.run([sys.executable, "-c", FREE], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
