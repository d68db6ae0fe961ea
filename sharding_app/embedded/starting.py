"""Starts the servers of a data folder, and counts this process as their user until it ends."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from sharding_app.embedded.entries import follow
from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.folder import DataFolder, unlock
from sharding_app.embedded.holders import register, withdraw
from sharding_app.embedded.processes import alive

_ROOT = Path(__file__).resolve().parents[2]
_WAIT_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are; `started` names those that this call had to wait for.

    Without a Redis `redis_url` is empty.
    """

    database_url: str
    redis_url: str
    folder: DataFolder | None
    started: tuple[str, ...] = ()

    def release(self) -> None:
        """Say that this process needs the embedded servers no longer; ending the process says it
        too.
        """
        if self.folder is not None:
            with self.folder.lock():
                withdraw(self.folder)


def ensure_servers(folder: Path, *, announce: bool = False) -> Servers:
    """Return the servers that DATABASE_URL and REDIS_URL name, or else those of the folder, started
    if need be.
    """
    database_url, redis_url = os.environ.get("DATABASE_URL", ""), os.environ.get("REDIS_URL", "")
    if database_url:
        return Servers(database_url, redis_url, None)
    found = start(folder, frozenset({"postgres"} if redis_url else {"postgres", "redis"}), announce=announce)
    return replace(found, redis_url=redis_url or found.redis_url)


def start(path: Path, servers: frozenset[str], *, announce: bool = False) -> Servers:
    """Return servers that take connections; this process counts as their user until it ends."""
    if os.name != "posix":
        raise ServersError("The embedded servers need Linux or macOS; on Windows, use WSL.")
    folder = DataFolder(path)
    folder.access()
    with folder.lock():
        register(folder, servers)
        _try_again(folder, servers)
        absent = tuple(sorted(servers - _running(folder)))
        if absent and announce:
            first = (
                ""
                if (folder.path / "postgres.log").exists()
                else " for the first time: this takes a few seconds"
            )
            print(f"Starting {' and '.join(absent)} in {folder.path}{first}.", file=sys.stderr, flush=True)
        if not supervised(folder):
            _start_supervisor(folder)
    _wait(folder, servers)
    access = folder.access()
    follow(folder.path, access)
    return Servers(access.database_url, access.redis_url, folder, absent)


def _try_again(folder: DataFolder, servers: frozenset[str]) -> None:
    """Forget why these servers did not start before: the user may have mended it."""
    failures = folder.failures()
    others = {name: sentence for name, sentence in failures.items() if name and name not in servers}
    if others != failures:
        folder.write(folder.failure_file, others)


def _running(folder: DataFolder) -> set[str]:
    return {name for name, (process, ready) in folder.servers().items() if ready and alive(process)}


def supervised(folder: DataFolder) -> bool:
    """Tell whether a supervisor lives: it alone holds this lock."""
    descriptor = folder.open(folder.supervisor_lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        unlock(descriptor)


def _start_supervisor(folder: DataFolder) -> None:
    descriptor = folder.open(folder.supervisor_log, os.O_WRONLY | os.O_APPEND)
    try:
        subprocess.run(
            [sys.executable, "-m", "sharding_app.embedded.supervisor", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_import_path())},
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise ServersError(f"The servers' supervisor did not start: see {folder.supervisor_log}") from error
    finally:
        os.close(descriptor)


def _import_path() -> list[str]:
    """Return where this process finds its modules: not all of it may be the interpreter's own."""
    return [*(str(Path(each).absolute()) for each in sys.path if each), str(_ROOT)]


def _wait(folder: DataFolder, servers: frozenset[str]) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not servers <= _running(folder):
        failures = folder.failures()
        for name in sorted({"", *servers} & failures.keys()):
            raise ServersError(failures[name])
        if not supervised(folder):
            raise ServersError(f"The servers' supervisor ended unexpectedly: see {folder.supervisor_log}")
        if time.monotonic() > deadline:
            raise ServersError(
                f"The servers were not ready in {_WAIT_SECONDS:.0f} s: see the logs in {folder.path}"
            )
        time.sleep(0.05)
