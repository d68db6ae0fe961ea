"""A cluster with two journals, `default` and `journal_b`, for tests of commands and pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.journals import journal_of
from tests.support.live import Live, Program

SHARDS, TYPE = 8, "purses.Purse"
WEIGHTS = {"": 1.0, "journal_b": 1.0}


def lies_in(entity: str) -> str:
    return journal_of(TYPE, shard_of(entity, SHARDS), WEIGHTS)


EVERY = [f"p{number}" for number in range(24)]
HERE = [each for each in EVERY if lies_in(each) == ""]
THERE = [each for each in EVERY if lies_in(each) == "journal_b"]
PAY = f"""
from tests.acceptance.purses.entities import Purse
for each in {EVERY!r}:
    for _ in range(3):
        Purse.ref(each, command_id=f'id-{{each}}-{{_}}').sync.pay(1)
"""
AGAIN = "from tests.acceptance.purses.entities import Purse; print(Purse.ref({0!r}, timeout=60).sync.pay(1))"
PAGES = """
import sys
from django.contrib.auth import get_user_model
from django.test import Client
user, _ = get_user_model().objects.get_or_create(username='root', is_staff=True, is_superuser=True)
client = Client()
client.force_login(user)
for line in sys.stdin:
    page, _, form = line.strip().partition(' ')
    if form:
        answer = client.post(page, dict(part.split('=', 1) for part in form.split('&')), follow=True)
    else:
        answer = client.get(page, follow=True)
    text = answer.content.decode().replace(chr(10), ' ')
    print('page', answer.status_code, text, flush=True)
"""


ROWS = {
    table: f"SELECT count(*) FROM sharding_{table}"  # noqa: S608
    for table in ("event", "snapshot", "remembered", "message")
}


def sql(url: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    params: dict[str, Any] = conninfo_to_dict(url)
    with psycopg.connect(**params, autocommit=True) as connection:
        cursor = connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []


class Two(Live):
    """A cluster whose journals are `default` and `journal_b`."""

    def __init__(self, live: Live, other: str) -> None:
        super().__init__(live.database_url, live.redis_url)
        self.other = other

    def environment(self, **more: str) -> dict[str, str]:
        ours = {
            "DJANGO_SETTINGS_MODULE": "tests.acceptance.purses.settings",
            "TEST_APPS": "tests.acceptance.purses",
            "JOURNAL_B_URL": self.other,
        }
        return super().environment(**{**ours, **more})

    def asked(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = self.manage(*arguments, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def pages(self, *wanted: str) -> list[tuple[int, str]]:
        """What a superuser's browser gets."""
        with self.program("shell", "-v0", "-c", PAGES) as program:
            stdin = program.process.stdin
            assert stdin is not None
            found = []
            for each in wanted:
                before = len(program.lines)
                stdin.write(f"{each}\n")
                stdin.flush()
                match = program.wait_line(r"^page (\d+) (.*)$", after=before)
                found.append((int(match[1]), match[2]))
            return found

    def count(self, query: str) -> tuple[int, int]:
        return sql(self.database_url, query)[0][0], sql(self.other, query)[0][0]


def number_of(two: Two) -> int:
    return int(sql(two.database_url, "SELECT id FROM sharding_type WHERE name = %s", TYPE)[0][0])


def pay(two: Two) -> None:
    paid = two.manage("shell", "-v0", "-c", PAY)
    assert paid.returncode == 0, paid.stderr


@contextmanager
def paid_in(two: Two, **environment: str) -> Iterator[Program]:
    """Run a node, which has handled payments in both journals."""
    with two.program("sharding_node", "--name", "one", **environment) as one:
        one.wait_line("^node one is up$")
        pay(two)
        yield one


def with_tables(live: Live, other: str) -> Two:
    """Return such a cluster with its tables. `other`: the URL of its second database."""
    two = Two(live, other)
    for arguments in (("migrate",), ("migrate", "--database", "journal_b", "sharding")):
        made = two.manage(*arguments, "-v0")
        assert made.returncode == 0, made.stderr
    return two


def copied(two: Two, url: str, name: str = "moved") -> Two:
    """The same cluster, whose second journal was copied into another database. `url`: of the
    server.
    """
    parts = urlsplit(two.other)
    sql(url, f'CREATE DATABASE "{name}" TEMPLATE "{parts.path[1:]}"')
    return Two(two, urlunsplit(parts._replace(path=f"/{name}")))
