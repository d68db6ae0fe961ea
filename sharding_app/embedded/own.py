"""Servers of one test's own, to be stopped, killed and started again without harm to those
of others.

They end with the process that started them, however it ends: a waiting shell at the other end of a
pipe sees to that.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from sharding_app.embedded.account import reachable_place, server_account
from sharding_app.embedded.errors import ServersError
from sharding_app.embedded.ports import STARTS, free_port, port_is_free
from sharding_app.embedded.postgres import Postgres
from sharding_app.embedded.processes import ProcessId, alive
from sharding_app.embedded.server import Server
from sharding_app.embedded.valkey import Valkey


class OwnServer:
    """A server with its own data under a temporary directory; the port stays the same over
    restarts, once the server has run.
    """

    kind: ClassVar[type[Server]]

    def __init__(self, directory: Path) -> None:
        account = server_account()
        self.place = reachable_place(directory, account)
        self.elsewhere = self.place != directory
        self.log = directory / f"{self.kind.name}.log"
        self.server = self.kind(self.place, free_port(), secrets.token_urlsafe(12), self.log, account)
        self.process: ProcessId | None = None
        self._has_run = False
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the URL that clients use; it is the same while the server is down."""
        return self.server.url

    @property
    def port(self) -> int:
        """Return the server's port on the loopback."""
        return self.server.port

    @property
    def running(self) -> bool:
        """Tell whether the server's process lives."""
        return self.process is not None and alive(self.process)

    def start(self) -> Self:
        """Start the server and wait until it takes connections."""
        if self.running:
            raise ServersError(f"This {self.kind.name} runs already.")
        self.process = self._first_start() if not self._has_run else self.server.start()
        self._has_run = True
        # End of input means that we are gone: then the shell ends the server.
        self._guard = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                f'read _; kill -{self.kind.stop_signal.value} "$1"',
                "sh",
                str(self.process.pid),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def stop(self) -> None:
        """Stop the server in order, as an administrator would."""
        self._end(None)

    def kill(self) -> None:
        """Kill the server and its children with -9, as a crash of its machine would."""
        self._end(signal.SIGKILL)

    def end_with(self, number: signal.Signals) -> None:
        """End the server with a signal of your choice: SIGQUIT is the hard stop of Postgres."""
        self._end(number)

    def restart(self) -> None:
        """Stop the server in order and start it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove what was placed outside of the given directory."""
        self.stop()
        if self.elsewhere:
            shutil.rmtree(self.place, ignore_errors=True)

    def _first_start(self, starts: int = STARTS) -> ProcessId:
        """Start the server for the first time, on another port if a process has taken its own."""
        try:
            return self.server.start()
        except ServersError:
            if starts == 1 or port_is_free(self.port):
                raise
        self.server.port = free_port()
        return self._first_start(starts - 1)

    def _end(self, number: signal.Signals | None) -> None:
        if self.process is not None:
            self.server.end(self.process, number)
            self.process = None
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None

    def __enter__(self) -> Self:
        """Start the server."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server and remove its place."""
        self.close()


class OwnPostgres(OwnServer):
    """A PostgreSQL of one's own."""

    kind = Postgres
    server: Postgres


class OwnRedis(OwnServer):
    """A Redis (Valkey) of one's own."""

    kind = Valkey
