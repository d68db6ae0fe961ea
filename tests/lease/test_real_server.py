"""The lifeline of real processes on a real PostgreSQL: killed, stopped, and outlived by a restart of the server."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from project.servers import OwnPostgres
from sharding_app.core.lockkeys import lifeline_keys
from tests.postgres.scratch import make_tables

CLUSTER = "test"
TTL = 1.5
BUSY = 2.0
"What a machine that runs other tests beside may take where a free one needs 10 to 150 ms."
HELD = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
AND (classid::bigint << 32) | objid::bigint = ANY(%s)
"""


class Process:
    """A `tests.lease.holder`, and what it says."""

    def __init__(self, conninfo: str, name: str) -> None:
        command = [sys.executable, "-m", "tests.lease.holder", conninfo, CLUSTER, name, str(TTL)]
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

    def until(self, what: str, within: float = 30.0) -> dict[str, Any]:
        """Read on until that is said."""
        return self.until_all(what, within=within)[what]

    def until_all(self, *whats: str, within: float = 30.0) -> dict[str, dict[str, Any]]:
        """Read on until each of them is said: two threads and a task say them, in whatever order."""
        deadline = time.monotonic() + within
        found: dict[str, dict[str, Any]] = {}
        while missing := set(whats) - set(found):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {missing} within {within} s, but {[each['what'] for each in self.said]}")
            self.said.append(line)
            if line["what"] in missing:
                found[line["what"]] = line
        return found

    def signal(self, number: signal.Signals) -> float:
        os.kill(self._process.pid, number)
        return time.clock_gettime(time.CLOCK_BOOTTIME)


Starter = Callable[[str], Process]


@pytest.fixture
def conninfo(own_postgres: OwnPostgres) -> str:
    params = conninfo_to_dict(own_postgres.url)
    make_tables(params)
    return make_conninfo(**{name: str(value) for name, value in params.items()})


@pytest.fixture
def start(conninfo: str) -> Iterator[Starter]:
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(Process(conninfo, name))


def seconds_until_free(conninfo: str, keys: list[int], since: float, within: float = 10.0) -> float:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while True:
            row = connection.execute(HELD, (keys,)).fetchone()
            passed = time.clock_gettime(time.CLOCK_BOOTTIME) - since
            if row is not None and row[0] == 0:
                return passed
            assert passed < within, "the locks were not freed"


def test_kill_frees_both_locks_in_milliseconds_and_the_next_is_elected(start: Starter, conninfo: str) -> None:
    first = start("first")
    assert first.until("elected")["term"] == 1
    second = start("second")
    second.until("settled")
    killed = first.signal(signal.SIGKILL)
    assert seconds_until_free(conninfo, first.keys, killed) < TTL / 2
    elected = second.until("elected")
    assert elected["term"] == 2
    assert elected["at"] - killed < TTL
    assert elected["valid"]


def test_a_stopped_process_loses_its_locks_after_the_ttl_and_wakes_up_invalid(
    start: Starter, conninfo: str
) -> None:
    frozen = start("frozen")
    frozen.until_all("looks valid", "elected")
    stopped = frozen.signal(signal.SIGSTOP)
    free = seconds_until_free(conninfo, frozen.keys, stopped)
    # The two clocks run alike here; the last ping may have been sent up to one interval before the stop.
    assert TTL * 5 / 6 - 0.1 < free < TTL + BUSY
    woken = time.clock_gettime(time.CLOCK_BOOTTIME)
    frozen.signal(signal.SIGCONT)
    looked = frozen.until("looks invalid")
    assert looked["at"] >= woken
    assert not any(each["valid"] for each in frozen.said if stopped < each["at"] <= looked["at"])
    back = frozen.until("back")
    assert not back["valid"], "the rows come first"
    assert back["at"] - woken < BUSY
    assert frozen.until_all("resumed", "elected")["resumed"]["valid"]
    told = [each["what"] for each in frozen.said]
    assert told.index("suspended") < told.index("back") < told.index("resumed")


def test_a_stop_shorter_than_the_ttl_keeps_the_sessions(start: Starter, conninfo: str) -> None:
    """Longer than the own limit, though: suspended and resumed, on the same sessions and in the same term."""
    frozen = start("frozen")
    frozen.until("elected")
    frozen.signal(signal.SIGSTOP)
    time.sleep(TTL * 0.8)
    frozen.signal(signal.SIGCONT)
    frozen.until("resumed")
    assert "deposed" not in [each["what"] for each in frozen.said]
    with psycopg.connect(conninfo, autocommit=True) as connection:
        assert connection.execute(HELD, (frozen.keys,)).fetchone() == (2,)


def test_a_restart_of_the_server(start: Starter, own_postgres: OwnPostgres) -> None:
    node = start("node")
    node.until_all("settled", "elected")
    own_postgres.kill()
    node.until("suspended")
    time.sleep(TTL)
    own_postgres.start()
    up = time.clock_gettime(time.CLOCK_BOOTTIME)
    said = node.until_all("back", "settled", "resumed", "elected")
    assert said["back"]["at"] - up < BUSY
    assert said["elected"]["term"] == 2
    assert [each["what"] for each in node.said].count("settled") == 2, "on each run of the server"


def test_a_server_that_stands_still(start: Starter, own_postgres: OwnPostgres) -> None:
    """Nothing answers and nothing is refused: the lease ends in time, and comes back soon after the server does."""
    node = start("node")
    node.until("elected")
    assert own_postgres.process is not None
    everything = own_postgres.process.pid
    children = [int(pid) for pid in subprocess.run(["pgrep", "-P", str(everything)], capture_output=True, text=True, check=True).stdout.split()]  # fmt: skip
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    for pid in (everything, *children):
        os.kill(pid, signal.SIGSTOP)
    try:
        node.until("suspended")
        assert not any(each["valid"] for each in node.said if each["at"] > began + TTL * 2 / 3)
        time.sleep(2 * TTL)
    finally:
        for pid in (everything, *children):
            os.kill(pid, signal.SIGCONT)
    moved = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert node.until("resumed")["at"] - moved < TTL + BUSY
