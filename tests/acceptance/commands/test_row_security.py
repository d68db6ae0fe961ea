"""Processes whose role is not the owner of a table with row-level security: no row is left out in
silence.
"""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from tests.acceptance.commands.logins import calling
from tests.support.live import Live, until
from tests.support.slack import SLACK

REFUSED = "row-level security would leave rows out for this role, see sharding.E017"


class Guest:
    """A role that has all rights on the tables, and owns none."""

    def __init__(self, live: Live) -> None:
        self._admin = live.database_url
        self.name = f"guest_{uuid4().hex[:10]}"
        made = live.manage("migrate", "-v0")
        assert made.returncode == 0, made.stderr
        self.sql(
            f"CREATE ROLE {self.name} LOGIN PASSWORD 'secret'; GRANT ALL ON ALL TABLES IN SCHEMA public TO {self.name};"
            f" GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {self.name}"
        )
        parts = urlsplit(live.database_url)
        place = f"{self.name}:secret@{parts.netloc.rpartition('@')[2]}"
        self.live = Live(urlunsplit(parts._replace(netloc=place)), live.redis_url)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Do something as the administrator."""
        with psycopg.connect(self._admin, autocommit=True) as admin:
            cursor = admin.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture
def guest(live_servers: Live) -> Iterator[Guest]:
    with live_servers.empty_database() as live:
        guest = Guest(live)
        yield guest
        guest.sql(f"DROP OWNED BY {guest.name} CASCADE; DROP ROLE {guest.name}")


def test_rows_that_a_policy_hides_are_not_taken_for_rows_that_are_not_there(guest: Guest) -> None:
    live = guest.live
    with live.program("sharding_node", "--name", "one") as one, calling(live) as call:
        one.wait_line("^node one is up$")
        assert call("a", "book", 1) == "1"
        assert one.stop() == 0, one.text

        guest.sql("ALTER TABLE sharding_event ENABLE ROW LEVEL SECURITY")
        for command in (["--dry-run"], ["--yes"]):
            erased = live.manage("sharding_erase", "badinput.Ledger", "a", *command)
            assert erased.returncode == 1, erased.stdout
            assert REFUSED in erased.stderr
        doctor = live.manage("sharding_doctor", "--json")
        found = {each["id"]: each["what"] for each in json.loads(doctor.stdout)["findings"]}
        assert "sharding_event" in found["sharding.E017"]
        checked = live.manage("check", "--database", "default")
        assert "(sharding.E017)" in checked.stderr

        with live.program("sharding_node", "--name", "two") as two:
            two.wait_line("^node two is up$")
            # Before its shard has found its home again, a call would not be begun.
            said: list[str] = []

            def begun() -> bool:
                said.append(call("a", "total", seconds=1.0 * SLACK))
                assert not said[-1].isdigit(), said
                return said[-1].startswith("AskTimeout ")

            until(begun, 30, f"it waits for the entity: {said}")
            two.wait_line(f"badinput.Ledger of 'a': {REFUSED}")
            guest.sql("ALTER TABLE sharding_event DISABLE ROW LEVEL SECURITY")
            assert call("a", "total") == "1"

            for table in ("cluster", "node", "shard", "message"):
                guest.sql(f"ALTER TABLE sharding_{table} ENABLE ROW LEVEL SECURITY")
                status = live.manage("sharding_status")
                assert status.returncode == 1, status.stdout
                assert REFUSED in status.stderr, table
                guest.sql(f"ALTER TABLE sharding_{table} DISABLE ROW LEVEL SECURITY")
            assert call("a", "book", 1) == "2"
            assert two.stop() == 0, two.text
