"""Valkey, which speaks Redis: in memory only, with a password that it reads from its standard
input.
"""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import ClassVar

from sharding_app.embedded.account import Account
from sharding_app.embedded.binaries import find_valkey, readable_valkey
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.embedded.processes import ProcessId
from sharding_app.embedded.server import Server


class Valkey(Server):
    """One Valkey server."""

    name: ClassVar[str] = "redis"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, place: Path, port: int, password: str, log: Path, account: Account) -> None:
        super().__init__(place, port, password, log, account)
        self.program = readable_valkey(find_valkey(), account, place)

    @property
    def url(self) -> str:
        """Return the server's URL."""
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    def command(self) -> list[str]:
        """Return the server's command line: all that matters comes on standard input."""
        return [str(self.program), "-"]

    def configuration(self) -> bytes:
        """Return the configuration: what flows through this server may be lost, so nothing is
        written to disk.
        """
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            "protected-mode yes",
            f"requirepass {self.password}",
            "daemonize no",
            'save ""',
            "appendonly no",
        ]
        return "\n".join(lines).encode() + b"\n"

    def ready(self, process: ProcessId) -> bool:
        """Ask it, with the password."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2:
                    more = connection.recv(256)
                    if not more:
                        return False
                    answer += more
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"
