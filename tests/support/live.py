"""Commands and nodes as real processes, on servers that belong to these tests alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import pytest
from psycopg.conninfo import conninfo_to_dict

from sharding_app.embedded import OwnPostgres, OwnRedis
from sharding_app.embedded.processes import children as child_processes
from sharding_app.embedded.processes import identify
from tests.support import forks
from tests.support.scratch import empty_tables, scratch_database
from tests.support.slack import SLACK

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "tests.badinput.settings"
"""The demo site, and entities that do what they should not."""
UP_SECONDS = 60.0
LOOK_SECONDS = 30.0
STARVED = re.compile(
    r"lifeline session \d lost: |has held the event loop for .* every entity|the event loop turns again after"
)


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for a condition with a deadline; return what it returned."""
    seconds *= SLACK
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return found


def look_again(
    manage: Callable[..., subprocess.CompletedProcess[str]], *arguments: str, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command that asks the nodes, for some time again while it finds a problem: a node on a
    busy machine may be too late for one look. Return the last look.
    """
    deadline = time.monotonic() + LOOK_SECONDS * SLACK
    while (done := manage(*arguments, **more)).returncode and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


def running(pid: int) -> bool:
    """Whether that process runs; a zombie does not."""
    return identify(pid) is not None


def children(pid: int) -> list[int]:
    return [each.pid for each in child_processes(pid)]


class Program:
    """A command that goes on for a while, with all that it prints. It ends with the block, and with
    this process.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str], folder: Path = ROOT) -> None:
        self.lines: list[str] = []
        self.process = forks.popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; kill "$1"; sleep 5; kill -9 "$1"', "sh", str(self.process.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def said(self, after: int = 0) -> list[str]:
        """Return its lines but the first `after` ones, without what a busy machine has each node
        say: that it was not given the processor for some time.
        """
        found, starved = [], False
        for line in self.lines[after:]:
            # A stack may follow, whose lines are indented, behind the node's name in a cluster.
            in_stack = re.match(r"(\S+ \| )?( |$)", line)
            starved = bool(STARVED.search(line)) or (starved and in_stack is not None)
            if not starved:
                found.append(line)
        return found

    def wait_line(self, pattern: str, seconds: float = UP_SECONDS, after: int = 0) -> re.Match[str]:
        """Wait for a line that matches, among those after the first `after` lines."""

        def look() -> re.Match[str] | None:
            found = [match for line in self.lines[after:] if (match := re.search(pattern, line))]
            if not found and self.process.poll() is not None and not self._reader.is_alive():
                raise AssertionError(f"it ended without a line like {pattern!r}:\n{self.text}")
            return found[0] if found else None

        try:
            found: re.Match[str] = until(look, seconds, f"a line like {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.text}") from None
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40.0) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(number)
        return self.ended(seconds)

    def ended(self, seconds: float = 40.0) -> int:
        try:
            code = self.process.wait(seconds * SLACK)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end; it said:\n{self.text}") from None
        self._reader.join(seconds)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._guard.kill()
        self._guard.communicate()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self._reader.join(10)
        assert self.process.stdout is not None
        if not self._reader.is_alive():
            self.process.stdout.close()


class Live:
    """Running servers, and commands that use them."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        self.database_url = database_url
        self.redis_url = redis_url

    def environment(self, **more: str) -> dict[str, str]:
        kept = {
            key: value
            for key, value in os.environ.items()
            if key not in ("RUN_MAIN", "FORCE_COLOR", "COLUMNS")
        }
        ours = {
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
        }
        return {**kept, **ours, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "", **more}

    def manage(
        self, *arguments: str, seconds: float = 180.0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of manage.py to its end."""
        return forks.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.environment(**more),
            timeout=seconds * SLACK,
        )

    def program(self, *arguments: str, **more: str) -> Program:
        return Program([sys.executable, "manage.py", *arguments], self.environment(**more))

    def status(self) -> dict[str, Any]:
        """What sharding_status finds."""
        found: dict[str, Any] = json.loads(self.manage("sharding_status", "--json").stdout)
        return found

    @contextmanager
    def empty_database(self) -> Iterator[Live]:
        """The same servers with a database that has no tables yet."""
        with scratch_database(self.database_url) as params:
            url = urlunsplit(urlsplit(self.database_url)._replace(path=f"/{params['dbname']}"))
            yield Live(url, self.redis_url)


@pytest.fixture(scope="session")
def live_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """PostgreSQL and Redis without any tables of ours."""
    place = tmp_path_factory.mktemp("live")
    with ExitStack() as stack:
        postgres = stack.enter_context(OwnPostgres(place))
        redis = stack.enter_context(OwnRedis(place))
        yield Live(postgres.url, redis.url)


@pytest.fixture(scope="session")
def live_database(live_servers: Live) -> Iterator[Live]:
    with live_servers.empty_database() as live:
        made = live.manage("migrate", "-v0")
        assert made.returncode == 0, made.stderr
        yield live


@pytest.fixture
def live_tables(live_database: Live) -> Live:
    """A database with empty tables."""
    empty_tables(dict(conninfo_to_dict(live_database.database_url)))
    return live_database


@pytest.fixture(scope="session")
def live_cluster(live_servers: Live) -> Iterator[Live]:
    """A cluster of one node."""
    with live_servers.empty_database() as live:
        made = live.manage("migrate", "-v0")
        assert made.returncode == 0, made.stderr
        with live.program("sharding_node", "--name", "one") as node:
            node.wait_line("^node one is up$")
            yield live
