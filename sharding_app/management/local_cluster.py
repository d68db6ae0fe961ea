"""A cluster on one machine: starts node processes and the site, restarts them, rolls out code."""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sharding_app.management.reload import ProjectFiles
from sharding_app.management.steered_nodes import SteeredNodes
from sharding_app.processes.child_processes import (
    LOOK_SECONDS,
    OVERTIME_SECONDS,
    Child,
    Supervisor,
    manage,
    up_line,
)
from sharding_app.processes.control import ControlServer

UP_SECONDS = 30.0
WATCH_SECONDS = 0.5
LEAVE_SECONDS = 10.0


class LocalCluster:
    """Runs until a signal arrives. `say` prints a line; `all_up` is called once all are up."""

    def __init__(
        self,
        nodes: int,
        site: Child | None,
        *,
        say: Callable[[str], object],
        all_up: Callable[[], object],
        files: ProjectFiles | None,
        options: tuple[str, ...] = (),
        control: ControlServer | None = None,
    ) -> None:
        """With `control`, the site may ask for more."""
        self._options = options
        children = [self._node(f"node-{number}") for number in range(1, nodes + 1)]
        everyone = [*children, *([site] if site else [])]
        self.supervisor = Supervisor(everyone, say, LEAVE_SECONDS + OVERTIME_SECONDS)
        self._control = control
        self._say = self.supervisor.say
        self._steered = SteeredNodes(self.supervisor, self._node, self._say)
        self._all_up = all_up
        self._files = files
        self._announced: set[Child] = set()
        self._complete = False
        self._patience_until = 0.0
        self._look_at = 0.0
        self._changed: list[Path] = []

    def run(self) -> None:
        self._patience_until = time.monotonic() + UP_SECONDS
        self.supervisor.run(self._look)

    def heard(self, child: Child, line: str) -> None:
        """Handle a line that a child has printed."""
        if line == up_line(child.name):
            child.ready.set()
            if self._complete:
                self._announce(child)
        elif line:
            self._say(f"{child.name} | {line}")

    # -- Inside ------------------------------------------------------------------------------------

    def _node(self, name: str) -> Child:
        arguments = (
            "sharding_node",
            f"--name={name}",
            f"--leave-timeout={LEAVE_SECONDS:g}",
            "--end-with-stdin",
        )
        return Child(
            name,
            manage(*arguments, *self._options),
            rank=1,
            environment={"PYTHONUNBUFFERED": "1"},
            listener=self.heard,
        )

    def _serve(self) -> None:
        if self._control is not None:
            self._control.serve(self._steered.handle)

    def _look(self) -> None:
        self._serve()
        if not self._complete:
            self._come_up()
        elif self._files is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + WATCH_SECONDS
            self._watch(self._files)

    def _come_up(self) -> None:
        waiting = [child for child in self.supervisor.children if not child.look_ready()]
        for child in self.supervisor.children:
            if child not in waiting:
                self._announce(child)
        if not waiting:
            self._complete = True
            with suppress(OSError):  # a full disk, or a closed pipe
                self._all_up()
        elif time.monotonic() > self._patience_until:
            self._patience_until = time.monotonic() + UP_SECONDS
            self._say(f"Still waiting for {', '.join(child.name for child in waiting)}.")

    def _announce(self, child: Child) -> None:
        """Say that it is up, at its first start."""
        if child not in self._announced:
            self._announced.add(child)
            self._say(f"{child.name} is up.")

    def _watch(self, files: ProjectFiles) -> None:
        changed = files.changed()
        if changed:
            # More may follow: an editor, or git, writes one file after the other.
            self._changed += [each for each in changed if each not in self._changed]
        elif self._changed:
            names, self._changed = [each.name for each in self._changed], []
            self._say(f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''} changed.")
            self._roll_out()

    def _roll_out(self) -> None:
        """Restart all processes one by one with the new code, if the code loads at all."""
        trouble = self._trouble()
        if trouble is None:
            return
        if trouble:
            self._say(f"{trouble}\nThe new code does not load. The cluster continues with the old code.")
            return
        for child in list(self.supervisor.children):
            if child.retiring:
                continue
            self.supervisor.restart(child)
            if self.supervisor.stopping:
                return
            if not self.supervisor.wait_ready(child, UP_SECONDS):
                if not self.supervisor.stopping:
                    self._say(
                        f"{child.name} does not start with the new code. "
                        "The other processes continue with the old code."
                    )
                return
            self._say(f"{child.name} runs the new code.")

    def _trouble(self) -> str | None:
        """Return the output of Django's checks on the new code if they find an error; None if they
        were given up: the code was changed again, or the cluster is to stop.

        The code may take its time, or hang. Nodes that die and requests of the site do not wait.
        """
        try:
            tried = subprocess.Popen(
                manage("check", *self._options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        except OSError as error:  # no process or descriptor to spare for a while
            return f"It cannot be tried: {error}"
        while True:
            with suppress(subprocess.TimeoutExpired):
                _, said = tried.communicate(timeout=LOOK_SECONDS)
                return said.strip() if tried.returncode else ""
            self._changed += [] if self._files is None else self._files.changed()
            if self._changed or self.supervisor.stopping:
                tried.kill()
                tried.communicate()
                return None
            self.supervisor.look()
            self._serve()
