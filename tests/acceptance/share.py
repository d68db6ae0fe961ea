"""Shares of the machine: most tests of real faults run beside each other, and some alone.

Several suites may run at once, in processes that know nothing of each other: files are locked. A
test that runs alone waits until those before it have ended, and the later ones wait for it.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def share_of_machine(*, alone: bool, folder: Path | None = None) -> Iterator[None]:
    place = (folder or Path(tempfile.gettempdir())) / f"sharding-acceptance-{os.getuid()}"
    with place.with_suffix(".turn").open("w") as turn, place.with_suffix(".share").open("w") as share:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(share, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(turn, fcntl.LOCK_UN)
            yield
        finally:
            # Processes that were forked meanwhile have the files open as well.
            for each in (turn, share):
                fcntl.flock(each, fcntl.LOCK_UN)
