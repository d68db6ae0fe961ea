"""The processes of a run: nodes that can be killed and frozen, and the load.

Each ends with the process that started it, however that one ends: a shell that waits at the end of
a pipe kills it. No process is signalled that was not started here.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from sharding_app.processes.child_processes import up_line
from sharding_app.torture.load import round_file

START_SECONDS = 30.0
slack = 1.0
"""Factor of the time that a process has to start. Tests raise it where suites share a machine."""
INSTANCES = "SHARDING_TORTURE_INSTANCES"
"""Environment variable with the name of the file to which instances report."""
EPOLL_WAITS = {"x86_64": {232, 281, 441}, "aarch64": {22, 441}}
"""Numbers of the system calls in which an event loop waits for work."""
FREEZES_SECONDS = 1.0
UNAWARE_SECONDS = 2.5
"""A process whose lifelines are ended may go on within its lease for this time
(`LEASE_OWN_LIMIT_SECONDS`, and the time that it takes to write a line here).
"""


def works(pid: int) -> bool:
    """Whether the event loop of a process that was just sent SIGSTOP was, or may have been, at
    work.
    """
    process = Path(f"/proc/{pid}")
    deadline = time.monotonic() + FREEZES_SECONDS
    try:
        while process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                return True
        number = process.joinpath("syscall").read_text().split()[0]
    except OSError:  # it is gone, or we may not read this
        return True
    return not (number.isdigit() and int(number) in EPOLL_WAITS.get(platform.machine(), set()))


class NoAnswer(Exception):
    """The database does not answer now."""


class NotInTime(AssertionError):
    """A condition did not come true in time: the cluster has not healed."""


def until(condition: Callable[[], Any], seconds: float, what: str, pause: float = 0.02) -> Any:
    """Wait for a condition, N seconds at most; return its value. Raises NotInTime.

    While the database does not answer, the condition is not met. It may be restarting.
    """
    deadline = time.monotonic() + seconds
    while True:
        with suppress(NoAnswer):
            if found := condition():
                return found
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {seconds:g} s: {what}")
        time.sleep(pause)


class Process:
    """One child, its log, and the shell that ends it when this process is gone."""

    popen: ClassVar[Callable[..., subprocess.Popen[bytes]]] = subprocess.Popen
    "Starts the child."

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        talks: bool = False,
        prefix: Iterable[str] = (),
        folder: Path | None = None,
    ) -> None:
        self.log = log
        self._instances = environment.get(INSTANCES, "")
        self._frozen_at_work = False
        self._frozen_at = 0.0
        with log.open("ab") as out:
            self.child = self.popen(
                [*prefix, *command],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else out,
                stderr=out,
                start_new_session=True,
            )
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; kill -9 "$1"', "sh", str(self.child.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        if number == signal.SIGCONT:
            if self._frozen_at_work:
                self._report("thaws")
            self._unaware_until(self._frozen_at + UNAWARE_SECONDS)
        self.child.send_signal(number)
        if number == signal.SIGSTOP:
            self._frozen_at = time.monotonic()
            self._frozen_at_work = works(self.pid)
            self._report("loses")

    def loses_connections(self) -> None:
        """Take in that the connections of this process are about to be reset, all at once."""
        self._report("loses")
        self._unaware_until(time.monotonic() + UNAWARE_SECONDS)

    def _unaware_until(self, moment: float) -> None:
        """Report that the process may not have heard of the end of its lifelines, until then."""
        left = moment - time.monotonic()
        if left > 0:
            self._report("unaware")
            timer = threading.Timer(left, self._report, ["aware"])
            timer.daemon = True
            timer.start()

    def _report(self, word: str) -> None:
        """Add a line about this process to the reports of instances."""
        if self._instances:
            with Path(self._instances).open("ab", buffering=0) as said:
                said.write(f"{word} {self.pid}\n".encode())

    def end(self) -> None:
        """Kill the process if it still runs."""
        self.guard.kill()
        self.guard.communicate()
        if self.alive:
            self.child.kill()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        self.child.wait()


class Node(Process):
    """A node under a name. Its log shows when it is up."""

    def __init__(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        prefix: Iterable[str] = (),
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self._seen = log.stat().st_size if log.exists() else 0
        super().__init__(command, environment, log, prefix=prefix, folder=folder)

    def wait_up(self, seconds: float = START_SECONDS) -> Node:
        """Wait until its log shows that it is up. Raises NotInTime."""

        def up() -> bool:
            if not self.alive:
                raise NotInTime(f"node {self.name} ended: {self.last_words()}")
            return up_line(self.name).encode() in self.log.read_bytes()[self._seen :]

        until(up, seconds * slack, f"node {self.name} is up: {self.last_words()}")
        return self

    def recent(self) -> str:
        """Return its log since its last start."""
        return self.log.read_bytes()[self._seen :].decode(errors="replace")

    def last_words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])

    def address_space(self) -> int:
        """Return the bytes of address space that it uses."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[0]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """Return its processor time, over all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load(Process):
    """The load process (`torture.load`)."""

    def __init__(
        self,
        out: Path,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        folder: Path | None = None,
        **options: object,
    ) -> None:
        self.first_out = self.out = out
        given = [f"--{name.replace('_', '-')}={value}" for name, value in {"out": out, **options}.items()]
        super().__init__([*command, *given], environment, log, talks=True, folder=folder)

    def send(self, order: str) -> None:
        """Give it an order, without waiting for its answer."""
        if self.child.stdin is None:
            raise NotInTime("the load has no input")
        self.child.stdin.write(order.encode() + b"\n")
        self.child.stdin.flush()

    def answer(self) -> str:
        """Wait for the answer to an order. Raises NotInTime if the load has ended."""
        line = "" if self.child.stdout is None else self.child.stdout.readline().decode().strip()
        if not line:
            raise NotInTime(f"the load ended: {self.log.read_text(errors='replace')[-2000:]}")
        return line

    def order(self, order: str) -> str:
        self.send(order)
        return self.answer()

    def caught_up(self, at: float) -> bool:
        """Return whether no call is under way that began before that time."""
        _, _, oldest = self.order("oldest").partition(" ")
        return oldest == "none" or float(oldest) >= at

    def new_round(self, number: int) -> None:
        self.order(f"round {number}")
        self.out = round_file(self.first_out, number)
