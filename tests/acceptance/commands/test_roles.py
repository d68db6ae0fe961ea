"""Migrations, nodes and callers under the roles of docs/roles.md, with the statements that stand
there.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from tests.acceptance.commands.two_journals import AGAIN, HERE, ROWS, THERE, TYPE, Two, pay
from tests.support.live import Live, look_again, until
from tests.support.scratch import scratch_database

PAGE = Path(__file__).resolve().parents[3] / "docs" / "roles.md"
KINDS = ("shop_migrate", "shop_node", "shop_web")
CALL = "from project.shop.entities import Cart; print('total', Cart.ref('alice').sync.add('book', 2))"


class Roles:
    """The roles of the page, with their rights in one database. `names`: those of roles that are
    there already, with rights in another one.
    """

    def __init__(self, live: Live, names: dict[str, str] | None = None) -> None:
        self._live = live
        self.names = names or {kind: f"{kind}_{uuid4().hex[:10]}" for kind in KINDS}
        self.blocks = [
            self._ours(each) for each in re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
        ]

    def _ours(self, block: str) -> str:
        for kind, name in self.names.items():
            block = block.replace(kind, name)
        return block.replace("DATABASE shop", f'DATABASE "{urlsplit(self._live.database_url).path[1:]}"')

    def run(self, block: str, kind: str = "") -> None:
        with psycopg.connect(
            self.live(kind).database_url if kind else self._live.database_url, autocommit=True
        ) as run:
            run.execute(block.encode())

    def live(self, kind: str) -> Live:
        parts = urlsplit(self._live.database_url)
        place = parts.netloc.rpartition("@")[2]
        url = urlunsplit(parts._replace(netloc=f"{self.names[kind]}:secret@{place}"))
        return Live(url, self._live.redis_url)

    def disown(self) -> None:
        """Take all of this database away from them."""
        for name in self.names.values():
            self.run(f"DROP OWNED BY {name} CASCADE")

    def drop(self) -> None:
        self.disown()
        for name in self.names.values():
            self.run(f"DROP ROLE {name}")


@pytest.fixture
def roles(live_servers: Live) -> Iterator[Roles]:
    with live_servers.empty_database() as live:
        roles = Roles(live)
        roles.run(roles.blocks[0])
        for name in roles.names.values():
            roles.run(f"ALTER ROLE {name} PASSWORD 'secret'")
        yield roles
        roles.drop()


def test_a_cluster_runs_with_no_more_than_the_documented_rights(roles: Roles) -> None:
    made = roles.live("shop_migrate").manage("migrate", "-v0")
    assert made.returncode == 0, made.stderr
    roles.run(roles.blocks[1], "shop_migrate")
    web = roles.live("shop_web")
    early = web.manage("shell", "-c", CALL)
    assert early.returncode != 0
    assert "sharding_node" in early.stderr, "it says what to start"
    with roles.live("shop_node").program("sharding_node", "--name", "one") as node:
        node.wait_line("^node one is up$")
        called = web.manage("shell", "-c", CALL)
        assert "total 2" in called.stdout, called.stderr
        again = web.manage("shell", "-c", CALL)
        assert "total 4" in again.stdout, again.stderr
        with roles.live("shop_node").program("sharding_node", "--name", "two") as second:
            second.wait_line("^node two is up$")
            second.process.kill()
            second.ended()
        moved = web.manage("shell", "-c", CALL)
        assert "total 6" in moved.stdout, moved.stderr
        status = look_again(roles.live("shop_node").manage, "sharding_status")
        assert status.returncode == 0, status.stdout + status.stderr
        assert node.stop() == 0, node.text
        assert "permission denied" not in node.text


def test_a_caller_reads_no_event(roles: Roles) -> None:
    made = roles.live("shop_migrate").manage("migrate", "-v0")
    assert made.returncode == 0, made.stderr
    roles.run(roles.blocks[1], "shop_migrate")
    for table in ("event", "snapshot", "remembered", "lease", "decision"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.run(f"SELECT FROM sharding_{table}", "shop_web")
    for statement in (
        "DELETE FROM sharding_node",
        "UPDATE sharding_shard SET epoch = 1",
        "DELETE FROM sharding_cluster",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            roles.run(statement, "shop_web")


APPS = "tests.acceptance.purses tests.acceptance.followed"


class TwoAs(Two):
    """The cluster with two journals, and with a projection, as a role sees it."""

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"TEST_APPS": APPS, **more})


@pytest.fixture
def of_two(live_servers: Live) -> Iterator[dict[str, TwoAs]]:
    """Two databases with tables, and the documented rights in both, by the kinds of roles."""
    with live_servers.empty_database() as live, scratch_database(live.database_url) as params:
        other = urlunsplit(urlsplit(live.database_url)._replace(path=f"/{params['dbname']}"))
        here = Roles(live)
        there = Roles(Live(other, live.redis_url), here.names)
        here.run(here.blocks[0])
        there.run("".join(re.findall(r"(?:REVOKE|GRANT) [^;]*;", there.blocks[0])))
        for name in here.names.values():
            here.run(f"ALTER ROLE {name} PASSWORD 'secret'")
        seen = {kind: TwoAs(here.live(kind), there.live(kind).database_url) for kind in KINDS}
        for arguments in (("migrate",), ("migrate", "--database", "journal_b", "sharding")):
            made = seen["shop_migrate"].manage(*arguments, "-v0")
            assert made.returncode == 0, made.stderr
        for each in (here, there):
            each.run(each.blocks[1], "shop_migrate")
        yield seen
        there.disown()
        here.drop()


LATER = """
from datetime import timedelta
from tests.acceptance.purses.entities import Purse
for each in {0!r}:
    Purse.ref(each).pay.later(timedelta(days=9), 1)
"""


def test_a_cluster_of_two_journals_runs_with_no_more_than_these_rights(
    of_two: dict[str, TwoAs], tmp_path: Path
) -> None:
    web, operator = of_two["shop_web"], of_two["shop_node"]

    def passed() -> bool:
        told = operator.asked("sharding_projection", "followed.Payments")["projections"][0]
        parts = {each["journal"]: each for each in told["parts"]}
        return set(parts) == {"", "journal_b"} and not any(
            each["is_filling"] or each["behind_events"] or each["trouble"] for each in told["parts"]
        )

    with operator.program("sharding_node", "--name", "one") as node:
        node.wait_line("^node one is up$")
        until(
            lambda: all(each["usable"] for each in operator.asked("sharding_journals")["journals"]),
            30,
            "usable",
        )
        pay(web)
        assert operator.count(ROWS["event"]) == (3 * len(HERE), 3 * len(THERE))
        stored = web.manage("shell", "-v0", "-c", LATER.format([HERE[0], THERE[0]]))
        assert stored.returncode == 0, stored.stderr
        until(passed, 60, "the projection has passed both journals")
        with operator.program("sharding_node", "--name", "two") as second:
            second.wait_line("^node two is up$")
            second.process.kill()
            second.ended()
        for entity in (HERE[1], THERE[1]):
            again = web.manage("shell", "-v0", "-c", AGAIN.format(entity))
            assert again.stdout.strip() == "4", again.stderr
        status = look_again(operator.manage, "sharding_status")
        assert status.returncode == 0, status.stdout + status.stderr
        for command in (
            ("sharding_entity", TYPE, THERE[1]),
            ("sharding_export", TYPE, "--to", str(tmp_path / "purses.jsonl")),
            ("sharding_erase", TYPE, THERE[2], "--yes"),
            ("sharding_archive", TYPE, "--older-than", "0"),
        ):
            done = operator.manage(*command)
            assert done.returncode == 0, (command, done.stdout + done.stderr)
        doctor = operator.manage("sharding_doctor", "--json")
        assert "permission denied" not in doctor.stdout + doctor.stderr
        assert json.loads(doctor.stdout)["findings"] is not None
        assert node.stop() == 0, node.text
        assert "permission denied" not in node.text
    removed = operator.manage("sharding_remove_journal", TYPE, "--yes-delete-the-journal-of", TYPE)
    assert removed.returncode == 0, removed.stderr
    assert operator.count(ROWS["event"]) == (0, 0)
    for url in (web.database_url, web.other):
        with psycopg.connect(url) as caller, pytest.raises(psycopg.errors.InsufficientPrivilege):
            caller.execute("SELECT FROM sharding_event")
