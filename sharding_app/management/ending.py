"""Ends a process that cannot end by itself.

A handler that blocks forever must not keep the process of a node that has left. One that cannot go
on is ended at once, with exit code 1: its supervisor starts another one.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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


def act_by_default(numbers: Sequence[signal.Signals]) -> None:
    """Give this process the actions with which Python starts."""
    for number in numbers:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@contextmanager
def own_signals(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Within the block, give children that this process forks the default actions of these signals.

    A child has its parent's handlers, and the socket by which they wake the parent's event loop. A
    pool that ends its workers by SIGTERM would end its parent, and none of its workers.
    """
    active = True
    masks = threading.local()

    def block() -> None:  # one may come before the child has got so far
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def in_child() -> None:
        nonlocal active
        if active:
            active = False
            signal.set_wakeup_fd(-1)
            act_by_default(numbers)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=in_child)
    try:
        yield
    finally:
        active = False


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
