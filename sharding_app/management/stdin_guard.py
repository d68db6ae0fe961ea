"""Ends a child with its parent, which holds the other end of the child's standard input."""

import os
import threading
from collections.abc import Callable


def at_end_of_input(do: Callable[[], object]) -> None:
    """Call `do` on a thread when standard input ends: the parent has ended, even by kill -9."""

    def wait() -> None:
        while os.read(0, 4096):
            continue
        do()

    threading.Thread(target=wait, name="sharding-parent", daemon=True).start()
