"""A primary PostgreSQL and its standby, both of one test's own: cut apart, promoted, joined again.

The primary keeps its address for its whole life. A promotion gives that address to the standby, as
a floating address or a proxy in front of a managed pair does: clients find the connection refused,
then a server in recovery, then the new primary on its own timeline.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg

from sharding_app.embedded import OwnPostgres
from sharding_app.embedded.folder import USER
from sharding_app.embedded.ports import LOOPBACK
from sharding_app.embedded.server import Server
from sharding_app.processes.proxy import Proxy
from tests.support.slack import SLACK

STANDBY = "standby"
WAIT_SECONDS = 30.0
PAUSE_SECONDS = 0.02


class PostgresPair:
    """One database on two servers; `primary` is where clients connect."""

    def __init__(self, primary: OwnPostgres, place: Path) -> None:
        self.primary = primary
        self.standby = type(primary)(place)
        self.standby.server.password = primary.server.password
        self.stream = Proxy(primary.port)
        "Carries the log from the primary to the standby."
        self.promotions = 0
        self.follows = False
        "Whether the standby's data is a copy that can go on following the primary."

    # -- The standby -------------------------------------------------------------------------------

    def attach(self, *, synchronous: bool = True) -> None:
        """Make a new standby out of a copy of the primary, and wait until it follows."""
        self.stream.forward()
        self.standby.kill()
        self.require(synchronous=False)
        self.follows = False
        self._copy()
        self.follows = True
        self.standby.start()
        self._until("SELECT true FROM pg_stat_replication WHERE state = 'streaming'", "the standby follows")
        if synchronous:
            self.require(synchronous=True)
            self._until(
                "SELECT true FROM pg_stat_replication WHERE sync_state = 'sync'", "the standby is synchronous"
            )

    def require(self, *, synchronous: bool) -> None:
        """Say whether a commit is acknowledged only when the standby has it."""
        with self.connect() as connection:
            # A standby that is away for seconds finds what it missed.
            connection.execute("ALTER SYSTEM SET wal_keep_size = '256MB'")
            connection.execute("ALTER SYSTEM SET wal_retrieve_retry_interval = '200ms'")
            connection.execute(
                f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY if synchronous else ''}'"
            )
            connection.execute("SELECT pg_reload_conf()")
        wanted = STANDBY if synchronous else ""
        self._until(f"SELECT current_setting('synchronous_standby_names') = '{wanted}'", "the setting holds")

    @property
    def in_sync(self) -> bool:
        """Whether a commit waits for a standby that is there."""
        try:
            return self._says("SELECT true FROM pg_stat_replication WHERE sync_state = 'sync'")
        except psycopg.OperationalError:
            return False

    def cut(self) -> None:
        """Let nothing pass between the two; both go on."""
        self.stream.hang()

    def mend(self) -> None:
        self.stream.forward()

    # -- A failover --------------------------------------------------------------------------------

    def promote(self) -> None:
        """Kill the primary, and let the standby take its address and its place. Nothing is
        synchronous afterwards.
        """
        self.primary.kill()
        self.standby.stop()
        self.stream.refuse()
        self.follows = False
        self._exchange()
        self.primary.start()
        self._promoted()

    def promote_in_place(self) -> None:
        """Kill the primary and promote the standby where it is: clients that know both addresses
        find it there.
        """
        self.primary.kill()
        self.stream.refuse()
        self.follows = False
        self.primary, self.standby = self.standby, self.primary
        self.stream.target_port = self.primary.port
        self._promoted()

    def _promoted(self) -> None:
        self.promotions += 1
        with self.connect() as connection:
            connection.execute("SELECT pg_promote(true, 60)")
        self._until("SELECT NOT pg_is_in_recovery()", "the standby is promoted")
        self.require(synchronous=False)

    def _exchange(self) -> None:
        mine, other = self.primary.server, self.standby.server
        mine.home, other.home = other.home, mine.home
        mine.data, other.data = other.data, mine.data

    # -- Asking ------------------------------------------------------------------------------------

    @property
    def urls(self) -> tuple[str, str]:
        """The URLs of both servers, the primary's first."""
        parts = urlsplit(self.primary.url)
        before, _, _ = parts.netloc.rpartition(":")
        return self.primary.url, urlunsplit(parts._replace(netloc=f"{before}:{self.standby.port}"))

    def connect(self, url: str = "") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(url or self.primary.url, autocommit=True, connect_timeout=int(5 * SLACK))

    def _says(self, question: str) -> bool:
        with self.connect() as connection:
            row = connection.execute(question.encode()).fetchone()
        return bool(row and row[0])

    def _until(self, question: str, what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS * SLACK
        while not self._says(question):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {WAIT_SECONDS:g} s: {what}")
            time.sleep(PAUSE_SECONDS)

    def _copy(self) -> None:
        server = self.standby.server
        Server.prepare(server)
        data = server.data
        shutil.rmtree(data, ignore_errors=True)
        options = server.account.spawn_options()
        source = f"host={LOOPBACK} port={self.stream.port} user={USER} application_name={STANDBY}"
        subprocess.run(
            [
                str(self.primary.server.programs.program("pg_basebackup")),
                "-d", source, "-D", str(data), "-R", "-X", "stream", "-c", "fast", "--no-sync",
            ],
            env={**server.environment(), "PGPASSWORD": server.password}, cwd=server.home, check=True,
            capture_output=True, timeout=120 * SLACK, **options,
        )  # fmt: skip

    # -- The end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """End both; what they hold is thrown away."""
        for server in (self.standby, self.primary):
            server.kill()
            server.close()
        self.stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
