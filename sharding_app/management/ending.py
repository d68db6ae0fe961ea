"""Ends a process that cannot end by itself.

A handler that blocks forever must not keep the process of a node that has left. One that cannot go
on is ended at once, with exit code 1: its supervisor starts another one.
"""

import logging
import os
import sys
import threading

logger = logging.getLogger("sharding.node")

PATIENCE_SECONDS = 5.0


def end_despite_threads(seconds: float = PATIENCE_SECONDS) -> None:
    """End this process with exit code 0 within that time. All its work is done.

    Python waits for every non-daemon thread, without a limit. A process that ends earlier is not
    affected.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()


def end_at_once() -> None:
    """End this process with exit code 1, whatever its threads do."""
    try:
        logging.shutdown()
    finally:  # there may be no memory to write the rest of a log
        os._exit(1)


def _end() -> None:
    me, main = threading.current_thread(), threading.main_thread()
    names = sorted(each.name for each in threading.enumerate() if each not in (me, main) and not each.daemon)
    try:
        logger.warning(
            "the node has left; its process ends while threads are still running: %s", ", ".join(names) or "none of Python's",
            extra={"action": "threads_left"},
        )  # fmt: skip
        logging.shutdown()
        sys.stdout.flush()
    finally:
        os._exit(0)
