"""A server of a further journal that takes connections, and is frozen afterwards: its connections
stay open, and nothing tells that no answer comes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections

from sharding_app.adapters.django import database, projecting
from sharding_app.adapters.django.database import soon_connected
from sharding_app.adapters.postgres import connection
from sharding_app.adapters.postgres.connection import bounded_waits
from sharding_app.operations import each_journal
from sharding_app.operations.each_journal import ask
from sharding_app.ports.projections import NotReady
from tests.integration.adapters.django.projected import log, run
from tests.integration.adapters.django.two_journals import SECOND, THERE, Journals, part
from tests.integration.adapters.django.two_journals import journals as two_journals
from tests.integration.adapters.django.two_journals import second as second_database
from tests.support.slack import SLACK

pytestmark = pytest.mark.django_db(transaction=True)
journals = two_journals
second = second_database
LIMIT = 0.3


@contextmanager
def frozen(alias: str) -> Iterator[None]:
    """Freeze the server process of this thread's connection."""
    pid = connections[alias].connection.info.backend_pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def read(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


def test_no_other_thread_is_needed_to_notice(journals: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new thread that finds no memory to begin with would hold this one up for ever."""
    assert read(SECOND) == 1

    def start(_: threading.Thread) -> None:
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", start)
    raw = connections[SECOND].connection
    with bounded_waits(raw, 10.0):
        assert read(SECOND) == 1
    with (
        bounded_waits(raw, LIMIT),
        frozen(SECOND),
        pytest.raises(OperationalError, match="no answer within"),
    ):
        read(SECOND)
    assert raw.closed
    connections[SECOND].close()
    assert read(SECOND) == 1


def test_one_that_says_something_all_the_time_is_given_up_too(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some releases of psycopg wake a wait as if the server had said something."""
    assert read(SECOND) == 1
    raw, cuts = connections[SECOND].connection, list[object]()
    monkeypatch.setattr(connection, "cut", cuts.append)

    def waits() -> Generator[Any, Any, int]:
        for _ in range(3):
            yield 1
            time.sleep(LIMIT)
        return 7

    wait = connection._within(raw, waits(), LIMIT)
    assert [next(wait), wait.send(1), wait.send(1)] == [1, 1, 1]
    assert cuts == [raw]


def test_a_kept_connection_that_falls_silent_is_given_up(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CONNECT_SECONDS", 0)
    monkeypatch.setattr(each_journal, "_failed", {})
    monkeypatch.setitem(connections[SECOND].settings_dict, "CONN_MAX_AGE", 60)
    assert ask([SECOND], read).found == {SECOND: 1}
    kept = connections[SECOND].connection
    assert kept is not None
    monkeypatch.setattr(database, "READ_SECONDS", LIMIT)
    with frozen(SECOND):
        begun = time.monotonic()
        asked = ask([SECOND], read)
        assert LIMIT <= time.monotonic() - begun < 10 * SLACK
    assert [(each.name, each.why) for each in asked.down] == [(SECOND, f"no answer within {LIMIT:g} s")]
    assert connections[SECOND].connection is None, "no later work gets it"
    monkeypatch.setattr(each_journal, "_failed", {})
    monkeypatch.setattr(database, "READ_SECONDS", 5.0)
    assert ask([SECOND], read).found == {SECOND: 1}


def test_reads_within_the_limit_leave_nothing_on_the_connection(journals: Journals) -> None:
    with soon_connected(SECOND) as outer:
        raw = outer.connection
        with soon_connected(SECOND):
            assert read(SECOND) == 1
        assert raw.closed
    connections[SECOND].ensure_connection()
    connections[SECOND].settings_dict["CONN_MAX_AGE"] = 60
    with soon_connected(SECOND) as kept, pytest.raises(OperationalError), kept.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert kept.connection is None


def test_a_turn_gives_up_a_journal_that_falls_silent(
    journals: Journals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold its positions in the cluster's database locked, or rest without an end."""
    work = part(SECOND)
    run(work)
    connections[SECOND].close_at = None  # as behind a turn of a node
    monkeypatch.setattr(projecting, "IDLE_SECONDS", LIMIT)
    journals.there.append(THERE[0], 1)
    journals.there.commit()
    with frozen(SECOND), pytest.raises(NotReady, match="no answer within"):
        work._tended(lambda: work.take(0, 127))
    monkeypatch.setattr(projecting, "IDLE_SECONDS", 60.0)
    run(work)
    assert [(each, seq) for each, seq, _ in log()] == [(THERE[0], 1)]
