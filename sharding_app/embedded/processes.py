"""Which process is which: a pid alone is used again, a pid with its start time is not.

A zombie counts as dead: it holds nothing any more, whether or not its parent has looked.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, for ever: its pid and when it started."""

    pid: int
    started: str


@functools.cache
def _boot() -> str:
    """Tell this boot from others: start times count from it, and a data folder outlives it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    """Return the fields behind the command's name, or none where there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except (OSError, UnicodeDecodeError):
        return []
    # The name may hold spaces and parentheses: what follows the last one is regular.
    return text.rpartition(")")[2].split()


def _from_proc(pid: int) -> ProcessId | None:
    fields = _stat(pid)
    if not fields or fields[0] in {"Z", "X"}:
        return None
    return ProcessId(pid, f"{_boot()}:{fields[19]}")


def _from_ps(pids: Iterable[int]) -> dict[int, ProcessId]:
    wanted = ",".join(str(pid) for pid in pids)
    if not wanted:
        return {}
    command = ["ps", "-o", "pid=,stat=,lstart=", "-p", wanted]  # no /proc on macOS
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    found = {}
    for line in answer.stdout.splitlines():
        pid, state, started = line.split(maxsplit=2)
        if not state.startswith("Z"):
            found[int(pid)] = ProcessId(int(pid), started.strip())
    return found


def identify(pid: int) -> ProcessId | None:
    """Return the living process with this pid, or None."""
    if (_PROC / "self/stat").exists():
        return _from_proc(pid)
    return _from_ps([pid]).get(pid)


def living(processes: Iterable[ProcessId]) -> set[ProcessId]:
    """Return those of the processes that still run."""
    asked = set(processes)
    if (_PROC / "self/stat").exists():
        return {process for process in asked if _from_proc(process.pid) == process}
    return asked & set(_from_ps(process.pid for process in asked).values())


def alive(process: ProcessId) -> bool:
    """Tell whether this very process still runs."""
    return bool(living([process]))


def _table() -> list[tuple[int, int, str]]:
    """Return pid, parent and command name of every process."""
    if (_PROC / "self/stat").exists():
        rows = []
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    before, _, after = (entry / "stat").read_text(errors="replace").rpartition(")")
                    rows.append((int(entry.name), int(after.split()[1]), before.partition("(")[2]))
        return rows
    command = ["ps", "-A", "-o", "pid=,ppid=,comm="]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    split = (line.split(maxsplit=2) for line in lines)
    return [(int(pid), int(parent), Path(name).name) for pid, parent, name in split]


def children(pid: int) -> list[ProcessId]:
    """Return the living direct children of a process."""
    found = [identify(child) for child, parent, _ in _table() if parent == pid]
    return [process for process in found if process is not None]


def command_name(pid: int) -> str:
    """Return the name of the program that a process runs, or nothing where there is no such
    process.
    """
    return next((name for each, _, name in _table() if each == pid), "")


def working_in(directory: Path) -> list[ProcessId] | None:
    """Return the living processes whose working directory this is; None where the system does not
    tell.
    """
    if not (_PROC / "self/stat").exists():
        return None
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "cwd").samefile(directory) and (process := identify(int(entry.name))):
                    found.append(process)
    return found


def is_stopped(pid: int) -> bool:
    """Tell whether a signal has stopped a process: it runs no further."""
    if (_PROC / "self/stat").exists():
        return _stat(pid)[:1] in (["T"], ["t"])
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip().startswith("T")


def send(process: ProcessId, number: signal.Signals) -> None:
    """Signal this very process; one that is gone already is no error."""
    if alive(process):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def gone(process: ProcessId, seconds: float) -> bool:
    """Wait for the end of a process; tell whether it came in time."""
    deadline = time.monotonic() + seconds
    while alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
