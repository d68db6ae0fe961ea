"""Child processes of a command: starts them, restarts those that die, and stops all with itself.

Contract: a child's standard input is a pipe whose other end is ours, so that it notices however our
process ends (`stdin_guard`). It has its own process group, so that Ctrl-C reaches it only through
us. One SIGTERM, SIGINT or SIGHUP stops all in order (children of a lower `rank` first); a second
SIGTERM or SIGINT kills them at once.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from django.core.management import get_commands

RESTART_SECONDS = 0.5
RESTART_MAX_SECONDS = 10.0
STEADY_SECONDS = 10.0
LOOK_SECONDS = 0.1
OVERTIME_SECONDS = 5.0
"How long after its time to leave a child is killed."
LAST_LINES_SECONDS = 2.0
"""Time for the last lines of a child that has ended. Another process may hold their pipe open."""

Listener = Callable[["Child", str], None]


def manage(*arguments: str) -> list[str]:
    """Return a command line of this project's manage.py, run as this process is.

    A script that calls a command itself is none: its children would run all of it again.
    """
    script, *given = sys.argv
    is_manage = bool(given) and given[0] in get_commands()
    own = is_manage and Path(script).name not in ("__main__.py", "django-admin")
    return [sys.executable, *([script] if own else ["-m", "django"]), *arguments]


def up_line(name: str) -> str:
    """Return the line that a node prints when it is up; its parent waits for it."""
    return f"node {name} is up"


def ending_signals() -> list[signal.Signals]:
    """Return the signals that stop us in order; under nohup SIGHUP is not one of them."""
    asked = [signal.SIGTERM, signal.SIGINT]
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*asked, signal.SIGHUP]


class Child:
    """One process that should be running."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        rank: int = 0,
        environment: Mapping[str, str] | None = None,
        listener: Listener | None = None,
        probe: Callable[[], bool] | None = None,
        inherits: Sequence[int] = (),
    ) -> None:
        """Create it. With a listener, it gets the child's output line by line, on a thread.

        Without one, the output goes where ours goes. A child is ready once its listener calls
        `ready.set()`, or once the probe returns true. It inherits these file descriptors.
        """
        self.name = name
        self.command = list(command)
        self.rank = rank
        self.ready = threading.Event()
        "Set when it does its work; cleared at each start."
        self.restarts = 0
        self.started_at = 0.0
        self.again_at: float | None = None
        "The time to restart it, if it has died."
        self.delay = RESTART_SECONDS
        self.retiring = False
        "It is asked to end, and is not started again."
        self.thaws_at: float | None = None
        "The time to continue it, if it is frozen."
        self._inherits = tuple(inherits)
        self._environment = {**os.environ, **(environment or {})}
        self._listener = listener
        self._probe = probe
        self._process: subprocess.Popen[bytes] | None = None
        self._listening: threading.Thread | None = None

    def start(self) -> None:
        self.ready.clear()
        self.again_at = None
        self.thaws_at = None
        self.started_at = time.monotonic()
        output = None if self._listener is None else subprocess.PIPE
        error = None if self._listener is None else subprocess.STDOUT
        self._process = subprocess.Popen(
            self.command,
            process_group=0,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=error,
            env=self._environment,
            pass_fds=self._inherits,
        )
        if self._listener is not None and self._process.stdout is not None:
            heard = (self._process.stdout, self._listener)
            self._listening = threading.Thread(target=self._listen, args=heard, daemon=True)
            self._listening.start()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def look_ready(self) -> bool:
        if not self.ready.is_set() and self.alive and self._probe is not None and self._probe():
            self.ready.set()
        return self.ready.is_set()

    @property
    def end(self) -> str:
        """Return in words how it ended."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "runs"
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def signal(self, number: int) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(number)

    def freeze(self, seconds: float) -> None:
        """Stop it for that time, without its knowledge. Its supervisor continues it."""
        self.signal(signal.SIGSTOP)
        self.thaws_at = time.monotonic() + seconds

    def thaw(self) -> None:
        """Continue it, if it is frozen."""
        if self.thaws_at is not None:
            self.thaws_at = None
            self.signal(signal.SIGCONT)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end; False: it is still running."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        return True

    def release(self) -> None:
        """Release the pipes of an ended process, once its last lines are heard.

        A thread that still writes when the interpreter ends can end our process by SIGABRT.
        """
        if self._listening is not None:
            self._listening.join(LAST_LINES_SECONDS)
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _listen(self, output: IO[bytes], listener: Listener) -> None:
        with output:
            for line in output:
                with suppress(OSError):  # a full disk: the next line may find room
                    listener(self, line.decode(errors="replace").rstrip())


class Supervisor:
    """Keeps children running until it is asked to stop, then stops them, rank by rank."""

    def __init__(
        self, children: list[Child], say: Callable[[str], object], patience_seconds: float = 35.0
    ) -> None:
        self.children = children
        self._say = say
        self.patience_seconds = patience_seconds
        self.stopping = False
        self.hurried = False

    def run(self, each_look: Callable[[], None] = lambda: None) -> None:
        """Start the children and run until a signal arrives; call `each_look` several times a
        second.
        """
        before = {number: signal.signal(number, self._asked) for number in ending_signals()}
        try:
            for child in self.children:
                child.start()
            while not self.stopping:
                self.look()
                each_look()
                time.sleep(LOOK_SECONDS)
        finally:
            self.stopping = True
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def look(self) -> None:
        """Restart children that have died: at once the first time, later if they die soon after a
        start.
        """
        now = time.monotonic()
        for child in list(self.children):
            if child.alive:
                if child.thaws_at is not None and now >= child.thaws_at:
                    child.thaw()
                    self.say(f"{child.name} goes on.")
                if now - child.started_at > STEADY_SECONDS:
                    child.delay = RESTART_SECONDS
            elif child.retiring:
                self.say(f"{child.name} has left: it {child.end}.")
                child.release()
                self.children.remove(child)
            elif child.again_at is None:
                self.say(f"{child.name} {child.end}; it is started again in {child.delay:g} s.")
                child.again_at = now + child.delay
                child.delay = min(child.delay * 2, RESTART_MAX_SECONDS)
            elif now >= child.again_at:
                child.restarts += 1
                child.release()
                self._start(child)

    def say(self, text: str) -> None:
        """Tell how children do. A full disk or a closed pipe must not end them."""
        with suppress(OSError):
            self._say(text)

    def add(self, child: Child) -> None:
        """Start one more."""
        self.children.append(child)
        self._start(child)

    def retire(self, child: Child) -> None:
        """Ask one to end in order, and start it no more. `look` finds its end."""
        child.retiring = True
        child.signal(signal.SIGTERM)

    def restart(self, child: Child) -> None:
        """Stop one in order and start it again, as for new code."""
        self._end([child])
        if not self.stopping:
            child.delay = RESTART_SECONDS
            self._start(child)

    def _start(self, child: Child) -> None:
        """Start a child. One that cannot be started costs no other: the next look tries again."""
        try:
            child.start()
        except OSError as error:
            self.say(f"{child.name} cannot be started: {error}")

    def wait_ready(self, child: Child, seconds: float) -> bool:
        """Wait until a child is ready; False if it dies, is too slow, or we are asked to stop."""
        deadline = time.monotonic() + seconds
        while not child.look_ready():
            if self.stopping or not child.alive or time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS / 2)
        return True

    def stop(self) -> None:
        for rank in sorted({child.rank for child in self.children}):
            self._end([child for child in self.children if child.rank == rank])

    def _end(self, children: list[Child]) -> None:
        for child in children:
            child.signal(signal.SIGTERM)
            child.thaw()
        deadline = time.monotonic() + self.patience_seconds
        killed: set[str] = set()
        while running := [child for child in children if child.alive]:
            if self.hurried or time.monotonic() > deadline:
                for child in running:
                    if child.name not in killed:
                        self.say(
                            f"{child.name} is killed{'' if self.hurried else ': it did not end in time'}."
                        )
                    killed.add(child.name)
                    child.signal(signal.SIGKILL)
            time.sleep(LOOK_SECONDS / 5)
        for child in children:
            child.release()

    def _asked(self, number: int, _: object) -> None:
        # A terminal that closes sends SIGHUP twice: its shell does, and the kernel at its end.
        self.hurried = self.hurried or (self.stopping and number != signal.SIGHUP)
        self.stopping = True
