"""Whole processes on a server that takes no more connections: what they say, which waits, and that
nothing is lost.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from sharding_app.embedded import OwnPostgres
from sharding_app.embedded.postgres import SETTINGS
from tests.acceptance.commands.logins import Login, calling
from tests.support.live import Live, until
from tests.support.slack import SLACK

ROOM = 17
"""Two nodes and a caller need 15 connections, and a command that asks the nodes needs two."""
RESERVED = 3
A_NODE_AND_THE_CALLER = 8
FULL = "too many clients|remaining connection slots|too many connections"


@pytest.fixture
def login(live_servers: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Login]:
    monkeypatch.setitem(SETTINGS, "max_connections", f"{ROOM + RESERVED}")
    with OwnPostgres(tmp_path) as server:
        yield Login(Live(server.url, live_servers.redis_url))


@contextmanager
def all_taken(login: Login) -> Iterator[None]:
    """Others have every connection that is left."""
    url = login.live.database_url.partition("?")[0]
    with ExitStack() as held:

        def take_all() -> None:
            for _ in range(ROOM + 1):
                held.enter_context(psycopg.connect(url))

        with pytest.raises(psycopg.OperationalError, match=FULL):
            take_all()
        yield


def test_nodes_and_callers_wait_or_say_why_and_lose_nothing(login: Login) -> None:
    live = login.live
    with live.program("sharding_node", "--name", "one") as one, calling(live) as call:
        one.wait_line("^node one is up$")
        assert call("early", "book", 1) == "1"
        with all_taken(login), live.program("sharding_node", "--name", "two") as two:
            two.wait_line(f"^cannot join yet, tries again: .*({FULL})")
            assert call("early", "book", 1) == "2", "who has connections goes on"
            with calling(live) as late:
                answer = late("early", "total", seconds=2.0 * SLACK)
                assert answer.startswith("Unavailable this process is not connected to the cluster: ")
                assert any(each in answer for each in FULL.split("|"))
                status = live.manage("sharding_status")
                assert status.returncode == 2
                assert "runs but refuses this login: FATAL: " in status.stderr, status.stderr
            assert two.stop() == 0, two.text
        with live.program("sharding_node", "--name", "two") as two:
            two.wait_line("^node two is up$")
            names = [f"ledger-{number}" for number in range(8)]
            told = {each: int(call(each, "book", 1)) for each in names}
            in_doubt = dict.fromkeys(names, 0)
            login.limit(A_NODE_AND_THE_CALLER)
            login.end_sessions()

            def all_answer() -> bool:
                for each in names:
                    answer = call(each, "book", 1, seconds=2.0)
                    if not answer.isdigit():
                        in_doubt[each] += 1
                        return False
                    told[each] = int(answer)
                return True

            until(all_answer, 60, f"one node has all that it needs:\n{one.text}\n{two.text}")
            refused = "too many connections for role"
            until(lambda: refused in f"{one.text}\n{two.text}", 30, "the other one has said what it lacks")
            login.limit(-1)
            for each in names:
                found = int(call(each, "total"))
                # Each round ended with a call in doubt, but the last one.
                assert told[each] == found <= 2 + sum(in_doubt.values())

            def both_are_up() -> bool:
                # Two connections are left for the command: until the nodes have theirs it may get
                # none, and say so.
                return [each["state"] for each in live.status().get("nodes", [])] == ["up", "up"]

            until(both_are_up, 60, "both are up")
            assert two.stop() == 0, two.text
        assert one.stop() == 0, one.text
