"""With DEBUG, `runserver` has a node beside it, as a child process (SHARDING["RUNSERVER_NODE"]).

No part of the `runserver` command is replaced, whichever app brings it: the app's `ready()` looks
at the command line. Under the autoreloader only its child, the process that serves, starts a node.
When that process ends to be restarted, so does the node. The node leaves in order, and it ends even
after kill -9: it watches its standard input, whose other end only this process holds.

A page that is requested right after a reload waits at its first call of an entity for the node to
be up, a few seconds at most. Otherwise it would fail because no node hosts the type yet.
"""

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

if TYPE_CHECKING:
    from sharding_app.processes.child_processes import Child

T = TypeVar("T")
NAME = "runserver"
LEAVE_SECONDS = 3.0
UP_SECONDS = 8.0


def wanted(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this process is the one of `runserver` that serves."""
    if (
        arguments[1:2] != ["runserver"]
        or not settings.DEBUG
        or {"-h", "--help", "--version"} & set(arguments)
    ):
        return False
    return environment.get(DJANGO_AUTORELOAD_ENV) == "true" or "--noreload" in arguments


def start_node_beside() -> None:
    """Start the node, if this is `runserver` and the setting says so."""
    if not wanted(sys.argv, os.environ):
        return
    from sharding_app.settings.load import get_settings

    try:
        if not get_settings().runserver_node:
            return
    except ImproperlyConfigured:
        return  # the system checks report the error, and runserver shows them
    from sharding_app.entities import gateway
    from sharding_app.processes.child_processes import Child, manage
    from sharding_app.wiring import make_gateway

    arguments = [
        f"--name={NAME}",
        f"--leave-timeout={LEAVE_SECONDS:g}",
        "--end-with-stdin",
        *_passed(sys.argv),
    ]
    # It is no process of the autoreloader's, and a buffer would delay its output.
    environment = {DJANGO_AUTORELOAD_ENV: "", "PYTHONUNBUFFERED": "1"}
    node = NodeBeside(
        Child(NAME, manage("sharding_node", *arguments), environment=environment, listener=_hear)
    )
    gateway.set_gateway(lambda: node.wait_for(make_gateway))
    node.start()


def _hear(node: "Child", line: str) -> None:
    from sharding_app.processes.child_processes import up_line

    if line == up_line(NAME):
        node.ready.set()
        line = "A node runs beside the site; SHARDING['RUNSERVER_NODE'] = False turns it off."
    if line:
        sys.stderr.write(f"{line}\n")


class NodeBeside:
    """The node that lives as long as this process."""

    def __init__(self, node: "Child") -> None:
        self._node = node
        self._ending = False

    def start(self) -> None:
        self._node.start()
        atexit.register(self.stop)
        threading.Thread(target=self._watch, name="sharding-node-beside", daemon=True).start()

    def wait_for(self, make: Callable[[], T]) -> T:
        """Make something that needs the node; wait until that is up."""
        deadline = time.monotonic() + UP_SECONDS
        while not self._node.ready.wait(0.1) and self._node.alive and time.monotonic() < deadline:
            continue
        return make()

    def stop(self) -> None:
        self._ending = True
        self._node.signal(signal.SIGTERM)
        if not self._node.wait(LEAVE_SECONDS + 2):
            self._node.signal(signal.SIGKILL)
            self._node.wait(LEAVE_SECONDS)
        self._node.release()

    def _watch(self) -> None:
        self._node.wait()
        if not self._ending:
            sys.stderr.write(f"The node beside the site {self._node.end}: the next reload starts it again.\n")


def _passed(arguments: Sequence[str]) -> list[str]:
    """Return options for Django itself that the node needs too: the settings and their path."""
    found: list[str] = []
    for place, each in enumerate(arguments):
        if each in ("--settings", "--pythonpath"):
            found += arguments[place : place + 2]
        elif each.startswith(("--settings=", "--pythonpath=")):
            found.append(each)
    return found
