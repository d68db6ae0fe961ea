"""The small process beside the servers of one data folder: starts those that are wanted, ends those
no longer wanted.

    python -m sharding_app.embedded.supervisor FOLDER

It holds `supervisor.lock` for as long as it lives, so there is one for each folder and a killed one
is noticed. The servers outlive it: the next supervisor finds them by pid and start time and takes
them over. It looks at the list of users (`holders`) a few times a second, so a user killed with -9
leaks nothing and stops no other user's servers. A server that does not start is tried again for as
long as a user wants it, and harms no other server. Once its folder has been removed or replaced, no
process can use or end the servers any more: it ends them, and itself.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sharding_app.embedded.account import reachable_place, server_account, use_place
from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.folder import ADMINISTRATOR, Access, DataFolder
from sharding_app.embedded.holders import wanted
from sharding_app.embedded.ports import STARTS, free_port, port_is_free
from sharding_app.embedded.postgres import Postgres
from sharding_app.embedded.processes import ProcessId, alive
from sharding_app.embedded.server import Server, end
from sharding_app.embedded.valkey import Valkey

POLL_SECONDS = 0.25
LINGER_SECONDS = 3.0
AGAIN_SECONDS, AGAIN_MAX_SECONDS = 1.0, 30.0
LOCK_SECONDS = 5.0
KINDS: dict[str, type[Server]] = {Postgres.name: Postgres, Valkey.name: Valkey}


@dataclass(slots=True)
class Failing:
    """A server that did not start: when it is tried again, and the pause after that."""

    again_at: float
    pause: float


class Supervisor:
    """Keeps the running servers equal to the wanted ones."""

    def __init__(self, folder: DataFolder, lock: int) -> None:
        self.folder = folder
        self.lock = lock
        "The descriptor on which `supervisor.lock` is held."
        recorded = folder.servers()
        self.running = {name: process for name, (process, _) in recorded.items()}
        self.starting = {name for name, (_, ready) in recorded.items() if not ready}
        "Those that are not known to take connections: a killed supervisor may have left them so."
        self.asked_to_end = False
        self.server_objects: dict[str, Server] = {}
        """Those that this process has started: their children are waited for."""
        self.failing: dict[str, Failing] = {}
        """Those that did not start."""

    def there(self) -> bool:
        """Tell whether the folder is still the one whose lock we hold."""
        try:
            return os.path.samestat(self.folder.supervisor_lock.stat(), os.fstat(self.lock))
        except OSError:
            return False

    def run(self) -> None:
        """Work until no server has been wanted for LINGER_SECONDS."""
        idle_since: float | None = None
        while self.there():
            want = wanted(self.folder)
            if want and not self.asked_to_end:
                idle_since = None
                for name in sorted(want):
                    self.keep(name)
            elif self.asked_to_end or self.waited(idle_since):
                with self.folder.lock():
                    if self.asked_to_end or not wanted(self.folder):
                        self.end_all()
                        # Before the folder's lock: the next process must not take us for a
                        # supervisor that still works.
                        fcntl.flock(self.lock, fcntl.LOCK_UN)
                        return
            elif idle_since is None:
                idle_since = time.monotonic()
            time.sleep(POLL_SECONDS)

    @staticmethod
    def waited(idle_since: float | None) -> bool:
        """Tell whether the last user has been gone for long enough: commands often follow each
        other.
        """
        return idle_since is not None and time.monotonic() - idle_since > LINGER_SECONDS

    def keep(self, name: str) -> None:
        """Start a server that does not run, the first time or after it died."""
        process = self.running.get(name)
        if process is not None and alive(process):
            if name not in self.starting:
                return
            end(process, KINDS[name].stop_signal)
        failing = self.failing.get(name)
        if (
            failing is not None
            and time.monotonic() < failing.again_at
            and self.folder.failures().get(name)  # a new user has cleared it, to try at once
        ):
            return
        try:
            self.start(name)
        except (ServersError, OSError) as error:
            self.failed(name, error)
        else:
            if self.failing.pop(name, None):
                self.folder.change_failure(name, None)

    def start(self, name: str) -> None:
        """Start a server, and write down which process it is: else it would outlive all who know
        it.
        """
        server, process = self.started(name)
        self.running[name] = process
        self.starting.discard(name)
        try:
            self.record()
        except ServersError:
            del self.running[name]
            server.end(process)
            raise
        if isinstance(server, Postgres):
            server.settle()

    def failed(self, name: str, error: Exception) -> None:
        """Tell the server's users why it did not start."""
        self.running.pop(name, None)
        before = self.failing.get(name)
        pause = AGAIN_SECONDS if before is None else min(before.pause * 2, AGAIN_MAX_SECONDS)
        self.failing[name] = Failing(time.monotonic() + pause, pause)
        with suppress(ServersError, OSError):  # the disk may be full
            print(error, file=sys.stderr, flush=True)
            sentence = str(error) if isinstance(error, ServersError) else f"{name} cannot be started: {error}"
            self.folder.change_failure(name, sentence)

    def started(self, name: str, starts: int = STARTS) -> tuple[Server, ProcessId]:
        """Start a server, on another port if a process takes its own before it does."""
        server = self.server_objects[name] = self.on_a_free_port(name)
        try:
            return server, server.start(lambda process: self.known(name, process))
        except ServersError:
            if starts == 1 or port_is_free(server.port):
                raise
        return self.started(name, starts - 1)

    def known(self, name: str, process: ProcessId) -> None:
        """Write down a server that starts: the supervisor that replaces this one must find it."""
        self.running[name] = process
        self.starting.add(name)
        self.record()

    def on_a_free_port(self, name: str) -> Server:
        """Describe a server, with another port where a process has taken its own."""
        access = self.folder.access()
        if not port_is_free(self.port(name, access)):
            other = free_port()
            changed = (
                replace(access, postgres_port=other)
                if name == Postgres.name
                else replace(access, redis_port=other)
            )
            self.folder.change_access(changed)
        return self.server(name)

    @staticmethod
    def port(name: str, access: Access) -> int:
        """Return the port that a server has in this folder."""
        return access.postgres_port if name == Postgres.name else access.redis_port

    def server(self, name: str) -> Server:
        """Describe a server, whether or not it runs: where its data is, and who it runs as."""
        access = self.folder.access()
        place = Path(access.place) if access.place else self.folder.path
        account = server_account(place / Postgres.name, self.folder.path)
        if not access.place:
            place = reachable_place(self.folder.path, account)
            if place != self.folder.path:
                self.folder.change_access(replace(access, place=str(place)))
        if place != self.folder.path:
            use_place(place, self.folder.path)
        password = access.postgres_password if name == Postgres.name else access.redis_password
        log = self.folder.path / f"{name}.log"
        os.close(self.folder.open(log, os.O_WRONLY))
        server = KINDS[name](place, self.port(name, access), password, log, account)
        if isinstance(server, Postgres):
            server.administrator = ADMINISTRATOR, access.postgres_admin_password
            server.durable = access.durable
        return server

    def record(self) -> None:
        """Write down which processes the servers are."""
        self.folder.write_servers(
            {name: (run, name not in self.starting) for name, run in self.running.items()}
        )

    def end_all(self) -> None:
        """End the servers, Postgres with SIGINT. Nothing is read for it: the folder and the
        programs may be gone.
        """
        if not self.running:
            return  # ended before: the list of running servers may be the next supervisor's by now
        for name, process in self.running.items():
            if alive(process):
                started = self.server_objects.get(name)
                if started is not None:
                    started.end(process)
                else:
                    end(process, KINDS[name].stop_signal)
        self.running.clear()
        if self.there():
            self.folder.running_file.unlink(missing_ok=True)


def _become_independent(started: int) -> None:
    """Leave the session and process group of the process that started us; the first process goes
    on.
    """
    os.setsid()
    os.write(started, b"1")
    os.close(started)


def _locked(lock: int) -> bool:
    """Lock the file, unless a supervisor has done so. A process that looks for one has it for a
    moment only.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True


def main(path: str) -> None:
    """Go into the background, then supervise; end quietly if another process does already."""
    folder = DataFolder(Path(path))
    folder.make()
    ready, started = os.pipe()
    if os.fork():
        os.close(started)
        os.read(ready, 1)
        return
    os.close(ready)
    lock = folder.open(folder.supervisor_lock, os.O_RDWR)
    if not _locked(lock):
        return
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())  # for people and tests; the lock itself is what counts
    _become_independent(started)
    supervisor = Supervisor(folder, lock)

    def ask_to_end(_number: int, _frame: object) -> None:
        supervisor.asked_to_end = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, ask_to_end)
    try:
        supervisor.run()
    except ServersError as error:
        if supervisor.there():
            folder.change_failure("", str(error))
    finally:
        supervisor.end_all()


if __name__ == "__main__":
    main(sys.argv[1])
