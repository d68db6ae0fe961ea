"""Child processes of a command: started, watched, started again when they die, ended in order together with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

RESTART_SECONDS = 0.5
RESTART_MAX_SECONDS = 10.0
STEADY_SECONDS = 10.0
LOOK_SECONDS = 0.1


def manage(*arguments: str) -> list[str]:
    """The command line of this project's manage.py, as this process was started."""
    script = sys.argv[0]
    launcher = ["-m", "django"] if os.path.basename(script) in ("__main__.py", "django-admin") else [script]
    return [sys.executable, *launcher, *arguments]


class Child:
    """One process that should be there."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.command = list(command)
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.start_after = 0.0
        self.delay = RESTART_SECONDS
        self.restarts = 0

    def start(self) -> None:
        # A session of its own would outlive a killed parent; a group of its own keeps Ctrl-C for us to hand on.
        self.process = subprocess.Popen(self.command, process_group=0, stdin=subprocess.PIPE)
        self.started_at = time.monotonic()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        if self.process is not None and self.alive:
            self.process.send_signal(number)


class Supervisor:
    """Keeps children running until SIGTERM or Ctrl-C; then ends them, all at once, within their patience."""

    def __init__(self, children: list[Child], say: Callable[[str], object], patience_seconds: float = 35.0) -> None:
        self.children = children
        self.say = say
        self.patience_seconds = patience_seconds
        self.stopping = False

    def run(self, each_look: Callable[[], None] = lambda: None) -> None:
        before = {number: signal.signal(number, self._asked) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for child in self.children:
                child.start()
            while not self.stopping:
                self._look()
                each_look()
                time.sleep(LOOK_SECONDS)
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def restart(self, child: Child) -> None:
        """End one in order and start it again, as for new code."""
        child.signal(signal.SIGTERM)
        self._wait([child], self.patience_seconds)
        child.start()

    def stop(self) -> None:
        for child in self.children:
            child.signal(signal.SIGTERM)
        self._wait(self.children, self.patience_seconds)

    def _look(self) -> None:
        now = time.monotonic()
        for child in self.children:
            if child.alive:
                if now - child.started_at > STEADY_SECONDS:
                    child.delay = RESTART_SECONDS
            elif child.start_after <= child.started_at:
                code = child.process.returncode if child.process is not None else None
                self.say(f"{child.name} ended ({code}); it is started again in {child.delay:g} s")
                child.start_after = now + child.delay
                child.delay = min(child.delay * 2, RESTART_MAX_SECONDS)
            elif now >= child.start_after:
                child.restarts += 1
                child.start()

    def _wait(self, children: list[Child], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for child in children:
            if child.process is None:
                continue
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.say(f"{child.name} does not end: killed")
                child.process.kill()
                child.process.wait()

    def _asked(self, number: int, _: object) -> None:
        self.stopping = True
