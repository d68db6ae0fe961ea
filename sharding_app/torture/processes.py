"""The processes of a run: nodes that can be killed and frozen, and the load.

Each ends with the process that started it, however that one ends (a waiting shell at the end of a pipe sees to it), and no
process is signalled that was not started here.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sharding_app.management.processes import up_line
from sharding_app.torture.load import round_file

START_SECONDS = 30.0
INSTANCES = "SHARDING_TORTURE_INSTANCES"
"""The variable of the environment that names the file in which instances say that they live."""
EPOLL_WAITS = {"x86_64": {232, 281, 441}, "aarch64": {22, 441}}
"""The numbers of the system calls in which an event loop waits for something to do."""
FREEZES_SECONDS = 1.0


def works(pid: int) -> bool:
    """Tell whether the event loop of a process that has just been sent SIGSTOP had something in hand, or may have had."""
    process = Path(f"/proc/{pid}")
    deadline = time.monotonic() + FREEZES_SECONDS
    try:
        while process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T":
            if time.monotonic() > deadline:
                return True
        number = process.joinpath("syscall").read_text().split()[0]
    except OSError:  # it is gone, or this is not told to us
        return True
    return not (number.isdigit() and int(number) in EPOLL_WAITS.get(platform.machine(), set()))


class NoAnswer(Exception):
    """The database does not answer now."""


class NotInTime(AssertionError):
    """A condition did not come true in its time: the cluster has not healed."""


def until(condition: Callable[[], Any], seconds: float, what: str, pause: float = 0.02) -> Any:
    """Wait for a condition, N seconds at most; return its value. Raises NotInTime.

    While the database does not answer the condition is not met: its operator may restart it meanwhile.
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
        with log.open("ab") as out:
            self.child = subprocess.Popen(
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
        if number == signal.SIGCONT and self._instances and self._frozen_at_work:
            with Path(self._instances).open("ab", buffering=0) as said:
                said.write(f"thaws {self.pid}\n".encode())
        self.child.send_signal(number)
        if number == signal.SIGSTOP:
            self._frozen_at_work = works(self.pid)

    def end(self) -> None:
        """Kill what is left of it."""
        self.guard.kill()
        self.guard.communicate()
        if self.alive:
            self.child.kill()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        self.child.wait()


class Node(Process):
    """A node under a name; its log says when it is up."""

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
        """Wait until it says so. Raises NotInTime."""

        def up() -> bool:
            if not self.alive:
                raise NotInTime(f"node {self.name} ended: {self.last_words()}")
            return up_line(self.name).encode() in self.log.read_bytes()[self._seen :]

        until(up, seconds, f"node {self.name} is up: {self.last_words()}")
        return self

    def recent(self) -> str:
        """Return what it has logged since it was started last."""
        return self.log.read_bytes()[self._seen :].decode(errors="replace")

    def last_words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])

    def address_space(self) -> int:
        """Return how many bytes of addresses it has taken."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[0]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """Return the processor time that it has used, all its threads together."""
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

    def new_round(self, number: int) -> None:
        self.order(f"round {number}")
        self.out = round_file(self.first_out, number)
