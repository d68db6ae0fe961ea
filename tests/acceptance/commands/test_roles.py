"""Migrations, nodes and callers under the roles of docs/roles.md, with the statements that stand
there.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest

from tests.support.live import Live

PAGE = Path(__file__).resolve().parents[3] / "docs" / "roles.md"
KINDS = ("shop_migrate", "shop_node", "shop_web")
CALL = "from project.shop.entities import Cart; print('total', Cart.ref('alice').sync.add('book', 2))"


class Roles:
    def __init__(self, live: Live) -> None:
        self._live = live
        self.names = {kind: f"{kind}_{uuid4().hex[:10]}" for kind in KINDS}
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

    def drop(self) -> None:
        for name in self.names.values():
            self.run(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


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
        status = roles.live("shop_node").manage("sharding_status")
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
