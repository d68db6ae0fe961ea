"""PostgreSQL: made once with a password, started durable, stopped with SIGINT (its fast, clean stop)."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from threading import Thread
from typing import ClassVar

from project.servers.account import Account
from project.servers.binaries import find_postgres, readable_postgres
from project.servers.errors import ServersError
from project.servers.folder import DATABASE, USER
from project.servers.ports import LOOPBACK
from project.servers.processes import ProcessId, command_name
from project.servers.server import Server

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

    def __init__(self, place: Path, port: int, password: str, log: Path, account: Account) -> None:
        super().__init__(place, port, password, log, account)
        self.data = self.home / "data"
        version = self.data / "PG_VERSION"
        major = int(version.read_text()) if version.exists() else None
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
        self._drop_stale_pid_file()

    def command(self) -> list[str]:
        """Return the server's command line."""
        settings = {**SETTINGS, "port": str(self.port)}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self.programs.program("postgres")), "-D", str(self.data), *options]

    def ready(self, process: ProcessId) -> bool:
        """Look where the server itself says so: the last line of its pid file."""
        lines = self._pid_lines()
        return len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() in {"ready", "standby"}

    def settle(self) -> None:
        """Put the files of a new cluster on the disk, in the background."""
        if self.fresh:
            self.fresh = False
            Thread(
                target=self._run, args=("initdb", "--sync-only", f"--pgdata={self.data}"), daemon=True
            ).start()

    def _pid_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _drop_stale_pid_file(self) -> None:
        """Remove a pid file whose number now belongs to something else, as happens after a reboot.

        The server removes it itself if nobody has that pid, and refuses to start if somebody has.
        """
        lines = self._pid_lines()
        if not lines:
            return
        name = command_name(abs(int(lines[0])))
        if name and "postgres" not in name:
            (self.data / "postmaster.pid").unlink()

    def _initialise(self) -> None:
        fresh = self.home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        secret = self.home / "password"
        secret.touch(mode=0o600)
        self.account.own(secret, 0o600)
        secret.write_text(self.password)
        try:
            self._run(
                "initdb",
                f"--pgdata={fresh}",
                f"--username={USER}",
                f"--pwfile={secret}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--no-instructions",
                "--no-sync",  # seconds on a busy disk: `settle` does it while the server is used already
            )
            create = f"CREATE DATABASE {DATABASE};\n".encode()
            self._run("postgres", "--single", "-F", "-D", str(fresh), "postgres", text=create)
        finally:
            secret.unlink()
        fresh.rename(self.data)

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
