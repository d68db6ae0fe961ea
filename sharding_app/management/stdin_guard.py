"""A child that ends with its parent: the parent holds the other end of its standard input, and says nothing there."""

import os
import threading
from collections.abc import Callable


def at_end_of_input(do: Callable[[], object]) -> None:
    """Call `do` on a thread when standard input ends: the process that started this one is gone, even if by kill -9."""

    def wait() -> None:
        while os.read(0, 4096):
            continue
        do()

    threading.Thread(target=wait, name="sharding-parent", daemon=True).start()
