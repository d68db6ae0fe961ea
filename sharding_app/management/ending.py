"""The end of a process whose threads do not end: a handler that blocks for ever must not keep a node that has left."""

import logging
import os
import sys
import threading

logger = logging.getLogger("sharding.node")

PATIENCE_SECONDS = 5.0


def end_despite_threads(seconds: float = PATIENCE_SECONDS) -> None:
    """End this process, successfully, after that time at the latest. All that has to be done has been done.

    Python waits for every thread that is not a daemon, without a limit. A process that ends before does not notice this.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()


def _end() -> None:
    me, main = threading.current_thread(), threading.main_thread()
    names = sorted(each.name for each in threading.enumerate() if each not in (me, main) and not each.daemon)
    try:
        logger.warning(
            "the node has left; its process ends while threads still run: %s", ", ".join(names) or "none of Python's",
            extra={"action": "threads_left"},
        )  # fmt: skip
        logging.shutdown()
        sys.stdout.flush()
    finally:
        os._exit(0)
