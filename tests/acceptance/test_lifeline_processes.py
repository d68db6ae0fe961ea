"""The lifeline of real processes on a real PostgreSQL: killed, stopped, and outlived by a restart
of the server.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sharding_app.embedded import OwnPostgres
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.torture.processes import until
from tests.support.scratch import make_tables
from tests.support.slack import SLACK

CLUSTER = "test"
TTL, OWN = 3.0, 2.0
LONG = 600.0
"A TTL that ends no session here: longer than any of these tests waits."
HELD = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND (classid::bigint << 32) | objid::bigint = ANY(%s)
"""


class Process:
    """A `tests.acceptance.lifeline_holder`, and what it says."""

    def __init__(self, conninfo: str, name: str, ttl: float, own: float) -> None:
        holder = "tests.acceptance.lifeline_holder"
        command = [sys.executable, "-m", holder, conninfo, CLUSTER, name, str(ttl), str(own)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.said: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.keys = list(lifeline_keys(CLUSTER, name))

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._lines.put(json.loads(line))

    def until(self, what: str, since: float = 0.0, within: float = 30.0) -> dict[str, Any]:
        """Read on until that is said, at that moment or later."""
        return self.until_all(what, since=since, within=within)[what]

    def until_all(self, *whats: str, since: float = 0.0, within: float = 30.0) -> dict[str, dict[str, Any]]:
        """Read on until each of them is said: two threads and a task say them, in whatever
        order.
        """
        deadline = time.monotonic() + within * SLACK
        found: dict[str, dict[str, Any]] = {}
        while missing := set(whats) - set(found):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {missing} within {within} s, but {[each['what'] for each in self.said]}")
            self.said.append(line)
            if line["what"] in missing and line["at"] >= since:
                found[line["what"]] = line
        return found

    def signal(self, number: signal.Signals) -> float:
        os.kill(self._process.pid, number)
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class Starter(Protocol):
    def __call__(self, name: str, ttl: float = TTL, own: float = OWN) -> Process: ...


@pytest.fixture
def conninfo(own_postgres: OwnPostgres) -> str:
    params = conninfo_to_dict(own_postgres.url)
    make_tables(params)
    return make_conninfo(**{name: str(value) for name, value in params.items()})


@pytest.fixture
def start(conninfo: str) -> Iterator[Starter]:
    with ExitStack() as stack:
        yield lambda name, ttl=TTL, own=OWN: stack.enter_context(Process(conninfo, name, ttl, own))


def wait_until_free(conninfo: str, keys: list[int]) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        until(lambda: connection.execute(HELD, (keys,)).fetchone() == (0,), 30, "the locks are free")


def test_kill_frees_both_locks_long_before_the_ttl_and_the_next_is_elected(
    start: Starter, conninfo: str
) -> None:
    first = start("first", LONG, 6.0)
    assert first.until("elected")["term"] == 1
    second = start("second", LONG, 6.0)
    second.until("settled")
    first.signal(signal.SIGKILL)
    wait_until_free(conninfo, first.keys)
    elected = second.until("elected")
    assert elected["term"] == 2
    assert elected["valid"]


def test_a_stopped_process_loses_its_locks_and_wakes_up_invalid(start: Starter, conninfo: str) -> None:
    frozen = start("frozen")
    frozen.until_all("looks valid", "elected")
    stopped = frozen.signal(signal.SIGSTOP)
    wait_until_free(conninfo, frozen.keys)
    woken = time.clock_gettime(time.CLOCK_BOOTTIME)
    frozen.signal(signal.SIGCONT)
    looked = frozen.until("looks invalid", woken)
    assert not any(each["valid"] for each in frozen.said if stopped < each["at"] <= looked["at"])
    back = frozen.until("back", woken)
    assert not back["valid"], "the rows come first"
    assert frozen.until_all("resumed", "elected", since=woken)["resumed"]["valid"]
    told = [each["what"] for each in frozen.said]
    assert told.index("suspended") < told.index("back") < told.index("resumed")


def test_a_stop_shorter_than_the_ttl_keeps_the_sessions(start: Starter, conninfo: str) -> None:
    """Longer than the own limit, though: suspended and resumed, on the same sessions and in the
    same term.
    """
    frozen = start("frozen", LONG)
    frozen.until("elected")
    frozen.signal(signal.SIGSTOP)
    time.sleep(OWN)
    woken = time.clock_gettime(time.CLOCK_BOOTTIME)
    frozen.signal(signal.SIGCONT)
    frozen.until("resumed", woken)
    assert "deposed" not in [each["what"] for each in frozen.said]
    with psycopg.connect(conninfo, autocommit=True) as connection:
        assert connection.execute(HELD, (frozen.keys,)).fetchone() == (2,)


def test_a_restart_of_the_server(start: Starter, own_postgres: OwnPostgres) -> None:
    node = start("node")
    before = node.until_all("settled", "elected")
    killed = time.clock_gettime(time.CLOCK_BOOTTIME)
    own_postgres.kill()
    node.until("suspended", killed)
    time.sleep(TTL)
    own_postgres.start()
    after = node.until_all("back", "settled", "resumed", "elected", since=killed)
    assert after["elected"]["term"] > before["elected"]["term"]
    assert after["settled"]["run"] != before["settled"]["run"]


def test_a_server_that_stands_still(start: Starter, own_postgres: OwnPostgres) -> None:
    """Nothing answers and nothing is refused: the lease ends in time, and comes back after the
    server does.
    """
    node = start("node")
    node.until("elected")
    assert own_postgres.process is not None
    everything = own_postgres.process.pid
    children = [int(pid) for pid in subprocess.run(["pgrep", "-P", str(everything)], capture_output=True, text=True, check=True).stdout.split()]  # fmt: skip
    for pid in (everything, *children):
        os.kill(pid, signal.SIGSTOP)
    stopped = time.clock_gettime(time.CLOCK_BOOTTIME)
    try:
        node.until("suspended", stopped)
        time.sleep(2 * TTL)
    finally:
        for pid in (everything, *children):
            os.kill(pid, signal.SIGCONT)
    moved = time.clock_gettime(time.CLOCK_BOOTTIME)
    node.until("resumed", moved)
    assert not any(each["valid"] for each in node.said if stopped + OWN < each["at"] < moved)
