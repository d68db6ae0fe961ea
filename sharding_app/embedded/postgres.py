"""PostgreSQL: made once with a password, started, stopped with SIGINT (its fast, clean
stop).
"""

from __future__ import annotations

import secrets
import signal
import subprocess
from pathlib import Path
from threading import Thread
from typing import ClassVar

from sharding_app.embedded.account import Account, read_small
from sharding_app.embedded.binaries import find_postgres, readable_postgres
from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.folder import DATABASE, USER
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.embedded.processes import ProcessId, command_name, gone, send, working_in
from sharding_app.embedded.server import STOP_SECONDS, Server

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "max_connections": "200",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_wal_size": "512MB",
    "jit": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class Postgres(Server):
    """One PostgreSQL cluster in a place."""

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    administrator: tuple[str, str] | None = None
    """Name and password of a superuser beside our role, which is then an ordinary one. None: our
    role is the superuser.
    """

    durable: bool = True
    """Whether it waits for the disk. Without, the end of the machine loses data; that of its
    processes loses none.
    """

    def __init__(self, place: Path, port: int, password: str, log: Path, account: Account) -> None:
        super().__init__(place, port, password, log, account)
        self.data = self.home / "data"
        try:
            major = int(read_small(self.home, "data", "PG_VERSION"))
        except FileNotFoundError:
            major = None
        except (OSError, ValueError) as error:
            raise ServersError(f"{self.data} is no data of PostgreSQL's: remove {self.home}.") from error
        self.fresh = major is None
        self.programs = readable_postgres(find_postgres(major), account, place)

    @property
    def url(self) -> str:
        """Return the database's URL."""
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    def prepare(self) -> None:
        """Make the cluster where there is none; half of one is never left behind."""
        super().prepare()
        if not self.data.exists():
            self._initialise()
        self._end_leftovers()
        self._drop_stale_pid_file()

    def command(self) -> list[str]:
        """Return the server's command line."""
        settings = {**SETTINGS, "port": str(self.port)}
        if not self.durable:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self.programs.program("postgres")), "-D", str(self.data), *options]

    def ready(self, process: ProcessId) -> bool:
        """Look where the server itself says so: the last line of its pid file."""
        lines = self._pid_lines()
        return len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() in {"ready", "standby"}

    def settle(self) -> None:
        """Put the files of a new durable cluster on the disk, in the background."""
        if self.fresh and self.durable:
            self.fresh = False
            Thread(
                target=self._run, args=("initdb", "--sync-only", f"--pgdata={self.data}"), daemon=True
            ).start()

    def _pid_lines(self) -> list[str]:
        try:
            # Where the data is now: a promoted standby's lies elsewhere than it was made.
            return read_small(self.data.parent, self.data.name, "postmaster.pid").splitlines()
        except OSError:
            return []

    def _pid(self) -> int | None:
        lines = self._pid_lines()
        return abs(int(lines[0])) if lines and lines[0].lstrip("-").isdecimal() else None

    def _workers(self) -> list[ProcessId] | None:
        """Return the processes of PostgreSQL that work on the data; None where the system does not
        tell.
        """
        found = working_in(self.data)
        return None if found is None else [each for each in found if "postgres" in command_name(each.pid)]

    def _end_leftovers(self) -> None:
        """End the processes that a killed server has left behind.

        One that computes does not notice the end of its server for as long as it computes, and the
        next server does not start beside it.
        """
        workers = self._workers() or []
        if self._pid() not in {each.pid for each in workers}:
            for each in workers:
                send(each, signal.SIGKILL)
            for each in workers:
                gone(each, STOP_SECONDS)

    def _drop_stale_pid_file(self) -> None:
        """Remove a pid file whose number now belongs to something else, as happens after a reboot.

        The server removes it itself if no process has that pid, and refuses to start if one has: a
        server of other data, or a zombie.
        """
        pid, workers = self._pid(), self._workers()
        if pid is None:
            return
        name = command_name(pid)
        elsewhere = workers is not None and pid not in {each.pid for each in workers}
        if name and (elsewhere or "postgres" not in name):
            self.account.run("rm -f data/postmaster.pid", cwd=self.home)

    def _initialise(self) -> None:
        name, password = self.administrator or (USER, self.password)
        # The account itself writes the password, into a file that was not there before.
        write = "rm -rf data.new password; umask 077; set -C; cat >password"
        self.account.run(write, cwd=self.home, text=(password or secrets.token_urlsafe(24)).encode())
        try:
            self._run(
                "initdb",
                "--pgdata=data.new",
                f"--username={name}",
                "--pwfile=password",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-instructions",
                "--no-sync",  # seconds on a busy disk: `settle` does it while the server is used already
            )
            # Else it goes on behind a statement that fails, and ends with 0.
            strict = ("-c", "exit_on_error=on")
            self._run(
                "postgres", "--single", "-F", *strict, "-D", "data.new", "postgres", text=self._first_words()
            )
        finally:
            self.account.run("rm -f password", cwd=self.home)
        self.account.run("mv data.new data", cwd=self.home)

    def _first_words(self) -> bytes:
        """Return the statements that make our role and database, one a line."""
        lines = [f"CREATE DATABASE {DATABASE}"]
        if self.administrator is not None:
            rights = "LOGIN NOSUPERUSER NOCREATEROLE NOREPLICATION CREATEDB"
            lines = [
                f"CREATE ROLE {USER} {rights} PASSWORD '{self.password}'",
                f"CREATE DATABASE {DATABASE} OWNER {USER}",
                f"REVOKE ALL ON DATABASE {DATABASE} FROM PUBLIC",
            ]
        return "".join(f"{line};\n" for line in lines).encode()

    def _run(self, program: str, *arguments: str, text: bytes = b"") -> None:
        answer = subprocess.run(
            [str(self.programs.program(program)), *arguments],
            input=text,
            capture_output=True,
            check=False,
            cwd=self.home,
            env=self.environment(),
            **self.account.spawn_options(),
        )
        if answer.returncode != 0:
            words = (answer.stderr or answer.stdout).decode(errors="replace").strip()
            raise ServersError(f"PostgreSQL's {program} failed: {words}")
