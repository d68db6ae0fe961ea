"""What both servers have in common: a process in a session of its own, ready or ended within a
deadline.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from sharding_app.embedded.account import Account
from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.embedded.processes import ProcessId, alive, children, gone, identify, is_stopped, send

START_SECONDS = 60.0
STOP_SECONDS = 20.0
CLAIM_SECONDS = 20.0
"""On a busy machine the processes of a killed server take seconds to end."""


class Server(ABC):
    """One server program with its data, port and password."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, place: Path, port: int, password: str, log: Path, account: Account) -> None:
        self.home = place / self.name
        self.port = port
        self.password = password
        self.log = log
        self.account = account
        self.child: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Return the URL that clients use."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments; no password among them, since every user can
        list those.
        """

    @abstractmethod
    def ready(self, process: ProcessId) -> bool:
        """Tell whether the server takes connections."""

    def prepare(self) -> None:
        """Make what the program needs before it starts."""
        if not self.home.exists():
            self.home.mkdir(mode=0o700, parents=True)
            self.account.own(self.home, 0o700)

    def configuration(self) -> bytes:
        """Return what the program reads from its standard input."""
        return b""

    def start(self, known: Callable[[ProcessId], object] = lambda process: None) -> ProcessId:
        """Start the server and wait until it takes connections. `known` hears at once which process
        it is: the start may take long, and we may be killed meanwhile.
        """
        self.prepare()
        with self._claimed() as claim, self.log.open("ab") as log:
            self.log.chmod(0o600)
            child = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=self.environment(),
                start_new_session=True,
                pass_fds=(claim,),
                **self.account.spawn_options(),
            )
        process = identify(child.pid)
        self.child = child
        if process is not None:
            try:
                known(process)
            except BaseException:
                self.end(process, signal.SIGKILL)
                raise
        if child.stdin is not None:
            with suppress(BrokenPipeError), child.stdin as stream:
                stream.write(self.configuration())
        deadline = time.monotonic() + START_SECONDS
        while process is None or not self.ready(process):
            if child.poll() is not None or process is None:
                raise ServersError(
                    f"{self.name} did not start on {LOOPBACK}:{self.port}: {self.last_words()}"
                )
            if time.monotonic() > deadline:
                self.end(process, signal.SIGKILL)
                raise ServersError(f"{self.name} was not ready in {START_SECONDS:.0f} s: {self.last_words()}")
            time.sleep(0.01)
        return process

    @contextmanager
    def _claimed(self) -> Iterator[int]:
        """Lock the data. A child that gets the descriptor keeps the lock, and so do its children.

        A server of another container, which shares the data, has no pid here: neither we nor
        PostgreSQL see it otherwise, and two servers on the same files destroy them.
        """
        descriptor = os.open(self.home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        deadline = time.monotonic() + CLAIM_SECONDS
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise ServersError(
                            f"A server of another container, or one that is not known here, works on {self.home}. End it, or "
                            "name another data folder."
                        ) from error
                    time.sleep(0.02)
                except OSError:
                    break  # a file system that locks no directories, such as NFS
                else:
                    break
            yield descriptor
        finally:
            os.close(descriptor)

    def end(self, process: ProcessId, number: signal.Signals | None = None) -> None:
        """Ask the server to end, and see it gone; one that does not listen is killed with its
        children.
        """
        end(process, number or self.stop_signal)
        if self.child is not None and self.child.pid == process.pid:
            self.child.wait()
            self.child = None

    def environment(self) -> dict[str, str]:
        """Return a small environment: nothing of ours is meant for the server."""
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}

    def last_words(self) -> str:
        """Return the end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()[-6:]
        return " | ".join(lines) or f"see {self.log}"


def end(process: ProcessId, first: signal.Signals) -> None:
    """End a server's process and its children by signals alone: its files may be gone."""
    if first == signal.SIGKILL:
        # One that is stopped makes no more children between the list and its end.
        send(process, signal.SIGSTOP)
        while alive(process) and not is_stopped(process.pid):
            time.sleep(0.001)
    helpers = children(process.pid)
    send(process, first)
    if first != signal.SIGKILL and not gone(process, STOP_SECONDS):
        send(process, signal.SIGKILL)
    gone(process, STOP_SECONDS)
    for helper in helpers:
        # Backends of a killed server still hold its shared memory; they would keep the next one
        # from starting.
        send(helper, signal.SIGKILL)
        gone(helper, STOP_SECONDS)
