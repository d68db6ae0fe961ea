"""A command that moves shards, and is stopped by a signal while it sends rows: real servers, a real
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest

from sharding_app.adapters.postgres import moving_sessions
from sharding_app.adapters.postgres.copied_rows import RowCopy
from sharding_app.protocol.moving import CannotMove
from tests.integration.adapters.postgres import test_moving
from tests.integration.adapters.postgres.test_moving import IDS, THERE, Both
from tests.support.live import until
from tests.support.slack import SLACK

databases, both = test_moving.databases, test_moving.both
COMMAND = """
import json, os, signal, sys
import psycopg
from sharding_app.adapters.postgres import moving, moving_sessions
source, target, further, at, limit = json.loads(sys.argv[1])
moving_sessions.IDLE_SECONDS = moving_sessions.CLOSED_SECONDS = limit
left = at
def stops(read):
    def reads(self):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGSTOP)
        return read(self)
    return reads
psycopg.Copy.read, psycopg.Copy.read_row = stops(psycopg.Copy.read), stops(psycopg.Copy.read_row)
list(moving.move_shards(source, further, "shop.Cart", target, None, "a test"))
"""
LIMIT_SECONDS = 1 * SLACK
OPEN = (
    "SELECT pid, state, wait_event FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE '%%/moving' AND xact_start IS NOT NULL"
)


@contextmanager
def stopped(both: Both, at: int, target: str = THERE) -> Iterator[subprocess.Popen[bytes]]:
    """Give the command's process once it has stopped, at the row of that number."""
    given = both.params[""], target, {THERE: both.params[THERE]}, at, LIMIT_SECONDS
    process = subprocess.Popen([sys.executable, "-c", COMMAND, json.dumps(given)])
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("large", [False, True])
def test_a_command_that_is_stopped_while_it_sends_rows(both: Both, large: bool) -> None:
    """The server that sends to it ends that by its time limits, also in the middle of a row. The
    one that waits for rows does not: nothing of a node waits there, and an operator can end it.
    """
    both.fill("", IDS[:20])
    if large:  # more than a connection holds on its way
        both.run(
            "",
            "UPDATE sharding_event SET payload = jsonb_build_object('x', (SELECT string_agg(md5(random()::text), '')"
            " FROM generate_series(1, 8000) WHERE seq > 0))",
        )
    before = both.stored("")
    with stopped(both, 3) as process:
        until(lambda: not both.run("", OPEN), 30, "the source has ended its transaction")
        ((pid, *waits),) = both.run(THERE, OPEN)
        assert waits == ["active", "ClientRead"]
        both.run(THERE, "SET lock_timeout = '1s'")
        both.run(THERE, "SELECT * FROM sharding_take_v1(2, 'shop.Other', 8, 0, 0, 0, '{3}', '{5}', 'home')")
        both.run(
            THERE,
            "INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)"
            " VALUES (2, 'other', 1, 3, 5, 'Added', 1, '{}')",
        )
        both.run(
            THERE,
            "INSERT INTO sharding_taken (id, type_id, shard, entity, epoch, journal, partial)"
            " VALUES ('m1', 2, 3, 'other', 5, 'default', false)",
        )
        with pytest.raises(CannotMove, match="Another command is at work"):
            both.move()
        both.run(THERE, "SELECT pg_terminate_backend(%s)", pid)
        until(lambda: not both.run(THERE, OPEN), 30, "the target has ended it too")
        assert process.poll() is None
    assert both.move()[-1] == "done"
    assert both.stored(THERE) == before


def test_a_command_that_is_stopped_on_the_way_back_holds_no_shard(both: Both) -> None:
    """The rows of shards in DATABASE are those in which the coordinator writes homes."""
    both.fill("", IDS[:20])
    both.move()
    both.delete()
    before = both.stored(THERE)
    with stopped(both, 3, "") as process:
        until(lambda: not both.run(THERE, OPEN), 30, "the source has ended its transaction")
        ((pid, *waits),) = both.run("", OPEN)
        assert waits == ["active", "ClientRead"]
        both.run("", "SELECT FROM sharding_shard FOR UPDATE NOWAIT")
        both.run("", "SELECT FROM sharding_type FOR UPDATE NOWAIT")
        both.run("", "SELECT pg_terminate_backend(%s)", pid)
        until(lambda: not both.run("", OPEN), 30, "the target has ended it too")
        assert process.poll() is None
    assert both.move("")[-1] == "done"
    assert both.stored("") == before


def test_a_command_that_is_stopped_in_the_comparison_keeps_no_snapshot(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VACUUM of the source could remove nothing until the process is found."""
    both.fill("", IDS[:10])
    digest = RowCopy._digest

    def stands_still(*args: Any) -> tuple[int, str]:
        until(lambda: not both.run("", OPEN), 30, "the source has ended its transaction")
        return digest(*args)

    with monkeypatch.context() as patched:
        patched.setattr(moving_sessions, "IDLE_SECONDS", 1)
        patched.setattr(RowCopy, "_digest", stands_still)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            both.move()
    assert both.move()[-1] == "done"


def test_the_coordinator_ends_a_session_that_keeps_a_lapsed_shard_closed(both: Both) -> None:
    """Over a Unix socket no time limit ends one that sends to a process that is stopped. Another
    move, which reads for hours, goes on.
    """
    both.run("", "INSERT INTO sharding_coordinator (term) VALUES (1) ON CONFLICT (id) DO UPDATE SET term = 1")
    named = both.params[""] | {"application_name": "sharding//moving"}
    with psycopg.connect(**named) as stopped_one, psycopg.connect(**named) as other:
        stopped_one.execute("SELECT FROM sharding_type WHERE id = 1 FOR NO KEY UPDATE")
        other.execute("SELECT FROM sharding_type")
        both.run(
            "",
            "INSERT INTO sharding_move (type_id, shard, source, target, step, closed_until)"
            " VALUES (1, 3, '', %s, 'closed', clock_timestamp())",
            THERE,
        )
        both.run("", "SET lock_timeout = '100ms'")

        def opened() -> bool:
            with suppress(psycopg.errors.LockNotAvailable):
                assert both.run("", "SELECT * FROM sharding_open_lapsed_v1(1)") == [("shop.Cart", 3, THERE)]
                return True
            return False

        assert not opened()
        until(opened, 30, "the shard is open")
        with pytest.raises(psycopg.OperationalError):
            stopped_one.execute("SELECT")
        assert other.execute("SELECT 1").fetchone() == (1,)
