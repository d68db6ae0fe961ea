"""`python -m tests.support.fork_server FD`: a process that has imported Django and the app, and is
copied for each program that `tests.support.forks` starts.

An order comes over a socket: a line of JSON, with four descriptors. Three become the program's
standard ones. The fourth gets the program's process id, then the status that it ended with. No
settings are read before the copy is made: they come from the program's own environment.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from django.conf import settings

IMPORTED = (
    "channels_redis.pubsub", "django.contrib.admin.apps", "django.contrib.auth.apps", "django.contrib.sessions.apps",
    "django.contrib.staticfiles.apps", "django.core.management.commands.migrate", "django.core.management.commands.shell",
    "django.db.backends.postgresql.base", "sharding_app.adapters.channels.transport", "sharding_app.apps", "sharding_app.checks",
    "sharding_app.management.commands.sharding_node", "sharding_app.management.report_command",
    "sharding_app.management.runserver_node", "sharding_app.wiring", "uvloop",
)  # fmt: skip
"""What most programs import, as far as it needs no settings: these modules and all below them. None
of them may look into the environment: `sharding_app.torture.instances` does.
"""
END_OF_ORDER = b"\n"


def receive(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next order and its descriptors; nothing: the process that gives orders is gone."""
    text, descriptors, _, _ = socket.recv_fds(line, 1 << 16, 4)
    while text and not text.endswith(END_OF_ORDER):
        text += line.recv(1 << 16)
    return (json.loads(text), descriptors) if text else None


def serve(line: socket.socket) -> dict[str, Any]:
    """Obey until the other end is closed. Returns only in a copy, with its order."""
    told, wakes = os.pipe()
    os.set_blocking(told, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reports: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([line.fileno(), told], [], [])
        if told in ready:
            os.read(told, 1 << 16)
            bury(reports)
        if line.fileno() not in ready:
            continue
        if (received := receive(line)) is None:
            os._exit(0)
        order, descriptors = received
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (told, wakes, *reports.values()):
                os.close(each)
            line.close()
            stand_in_for_a_new_process(order, descriptors)
            return order
        *given, report = descriptors
        for each in given:
            os.close(each)
        reports[pid] = report
        tell(report, pid)


def bury(reports: dict[int, int]) -> None:
    """Report the copies that have ended. Each has its process id until that is done."""
    while reports and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        report = reports.pop(ended.si_pid)
        tell(report, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
        os.close(report)
        os.waitpid(ended.si_pid, 0)


def tell(report: int, number: int) -> None:
    try:
        os.write(report, b"%d\n" % number)
    except BrokenPipeError:  # it is not waited for any more
        return


def stand_in_for_a_new_process(order: dict[str, Any], descriptors: list[int]) -> None:
    """Take on the standard streams, session, folder and environment that were ordered."""
    for number, given in enumerate(descriptors[:3]):
        os.dup2(given, number)
    for each in descriptors:
        os.close(each)
    os.setsid()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])


def run(order: dict[str, Any]) -> None:
    """Go on as `python SCRIPT ...` or `python -m MODULE ...` would."""
    program, *arguments = order["program"]
    if program == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        sys.path[0] = order["folder"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        sys.path[0] = str(Path(program).resolve().parent)
        runpy.run_path(program, run_name="__main__")


def main() -> dict[str, Any]:
    line = socket.socket(fileno=int(sys.argv[1]))
    for each in IMPORTED:
        importlib.import_module(each)
    if threading.active_count() > 1 or settings.configured or "sharding_app.torture.instances" in sys.modules:
        raise RuntimeError("a process that has threads, settings or values of its environment is not copied")
    gc.collect()
    gc.freeze()
    return serve(line)


if __name__ == "__main__":
    run(main())
