"""Ends a child with its parent, which holds the other end of the child's standard input."""

import os
import signal
import threading
import time
from collections.abc import Callable


def at_end_of_input(do: Callable[[], object], patience_seconds: float) -> None:
    """Call `do` on a thread when standard input ends: the parent has ended, even by kill -9.

    A process that has not ended by itself after that time, because its event loop or a view is
    stuck, is killed: its parent would have done it.
    """

    def wait() -> None:
        while os.read(0, 4096):
            continue
        try:
            do()
        finally:
            time.sleep(patience_seconds)
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="sharding-parent", daemon=True).start()
