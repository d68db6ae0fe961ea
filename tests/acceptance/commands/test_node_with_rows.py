"""A node that has written a user's rows beside events: it holds connections of Django's when its
life ends.
"""

import signal

import pytest
from psycopg import connect

from tests.support.live import Live, until
from tests.support.slack import SLACK

BOOK = f"from tests.badinput.app.entities import Ledger; print(Ledger.ref('a', timeout={20 * SLACK}).sync.book_with_row(2, 'g'))"


@pytest.fixture
def live(live_tables: Live) -> Live:
    with connect(live_tables.database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM auth_group")
    return live_tables


@pytest.mark.parametrize("kept_seconds", ["0", "60"])
def test_it_leaves_in_order(live: Live, kept_seconds: str) -> None:
    with live.program("sharding_node", "--name", "east", CONN_MAX_AGE=kept_seconds) as node:
        node.wait_line("^node east is up$")
        assert live.manage("shell", "-v0", "-c", BOOK).stdout == "2\n"
        assert node.stop() == 0, node.text
        assert node.said() == ["node east is up"]


def test_one_that_was_given_up_joins_anew(live: Live) -> None:
    def names() -> list[str]:
        return sorted(each["name"] for each in live.status()["nodes"] if each["state"] == "up")

    with live.program("sharding_node", "--name", "east", CONN_MAX_AGE="60") as east:
        east.wait_line("^node east is up$")
        assert live.manage("shell", "-v0", "-c", BOOK).stdout == "2\n"
        with live.program("sharding_node", "--name", "west") as west:
            west.wait_line("^node west is up$")
            east.process.send_signal(signal.SIGSTOP)
            try:
                until(lambda: names() == ["west"], 60, "it is given up")
            finally:
                east.process.send_signal(signal.SIGCONT)
            until(lambda: names() == ["east", "west"], 60, f"it joins anew: {east.text}")
            assert west.stop() == 0
        assert east.stop() == 0, east.text
