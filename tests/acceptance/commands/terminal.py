"""A command of manage.py on a terminal of its own: what it shows there, escapes and all, and what
is typed.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.live import ROOT, Live
from tests.support.slack import SLACK


class Terminal:
    def __init__(self, ours: int, child: subprocess.Popen[bytes]) -> None:
        self._ours = ours
        self._child = child
        self.seen = b""
        "All that was shown so far."

    def read_until(self, shown: Callable[[bytes], object]) -> None:
        while not shown(self.seen):
            self.seen += os.read(self._ours, 4096)

    def type(self, line: str) -> None:
        os.write(self._ours, f"{line}\n".encode())

    def interrupt(self) -> None:
        self._child.send_signal(signal.SIGINT)

    def exit_code(self) -> int:
        return self._child.wait(30 * SLACK)


@contextmanager
def on_terminal(live: Live, *arguments: str, **more: str) -> Iterator[Terminal]:
    """Run it for as long as the block lasts; `more` goes into its environment."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=live.environment(TERM="xterm", **more),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, child)
    finally:
        child.kill()
        child.wait()
        os.close(ours)
