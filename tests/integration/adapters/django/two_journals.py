"""A projection whose events lie in two databases of one server: the cluster's, and a further
journal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from sharding_app import wiring
from sharding_app.adapters.django import projections as control
from sharding_app.adapters.django.projecting import DjangoPart
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.embedded import Servers
from sharding_app.entities.projections import Projection
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.projection.turn import Limits
from tests.integration.adapters.django.projected import TABLE, Payments, Writer
from tests.support.scratch import empty_tables, make_tables, scratch_database
from tests.support.slack import SLACK

SECOND = "journal_b"
JOURNALS = ("", SECOND)
NAME = "projected.Payments"


def ids(journal: str) -> Iterator[str]:
    """Return ids of entities that lie in a journal: the type has two shards."""
    return (each for each in (f"e{n}" for n in itertools.count()) if shard_of(each, 2) == (journal == SECOND))


HERE, THERE = (list(itertools.islice(ids(each), 8)) for each in JOURNALS)


def part(journal: str, projection: type[Projection] = Payments, **limits: Any) -> DjangoPart:
    found = projection._sharding_projection
    assert found is not None
    return DjangoPart(
        "default",
        found,
        limits=Limits(**limits),
        lock_timeout_seconds=5.0 * SLACK,
        journal=journal,
        journals=JOURNALS,
    )


class Journals:
    """The two databases, and a writer for each."""

    def __init__(self, second: dict[str, Any], admin_url: str) -> None:
        self.params = second
        self._admin_url = admin_url
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)"
                " VALUES ('projected.Account', 'event sourced', 2, 'hash:crc32-1', 'crc32-1', '', 'postgres') RETURNING id"
            )
            ((self.type_id,),) = cursor.fetchall()
            cursor.execute(
                "INSERT INTO sharding_shard (type_id, shard, epoch, home, step, journal)"
                " VALUES (%s, 0, 1, 'n', 'home', ''), (%s, 1, 1, 'n', 'home', %s)",
                [self.type_id, self.type_id, SECOND],
            )
            cursor.execute(TABLE)
        self.here = Writer(dict(wiring.conninfo("default")))
        self._there: Writer | None = None

    @property
    def there(self) -> Writer:
        """The writer of the further journal, whose shards are taken before it writes."""
        if self._there is None:
            self.take()
            self._there = Writer(self.params)
        return self._there

    def take(self) -> None:
        given = {
            "type_id": self.type_id,
            "type": "projected.Account",
            "number": 2,
            "wanted": 0,
            "done": 0,
            "revision": 0,
        }
        self.run("take", given | {"shards": [0, 1], "epochs": [1, 1], "home": "n"})

    def run(self, name: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run a statement in the further journal."""
        with psycopg.connect(**self.params, autocommit=True) as session:
            rows = session.execute(QUERIES[name], params)
            return [] if rows.description is None else rows.fetchall()

    def value(self, sql: str, *values: object) -> Any:
        with psycopg.connect(**self.params, autocommit=True) as session:
            rows = session.execute(sql.encode(), values)
            return None if rows.description is None else rows.fetchall()[0][0]

    @contextmanager
    def down(self) -> Iterator[None]:
        """The further journal takes no connections, and has ended all."""
        name, admin = self.params["dbname"], psycopg.connect(self._admin_url, autocommit=True)
        with admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            try:
                yield
            finally:
                admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())

    def stored(self) -> list[tuple[str, int]]:
        """Return the events of both journals."""
        found: list[tuple[str, int]] = []
        for params in (dict(wiring.conninfo("default")), self.params):
            with psycopg.connect(**params, autocommit=True) as session:
                found += session.execute("SELECT entity, seq FROM sharding_event").fetchall()
        return sorted(found)

    def close(self) -> None:
        self.here.close()
        if self._there is not None:
            self._there.close()


@pytest.fixture(scope="module")
def second(servers: Servers) -> Iterator[dict[str, Any]]:
    """Give the database of the further journal."""
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        yield params


@pytest.fixture
def journals(
    transactional_db: None,
    servers: Servers,
    second: dict[str, Any],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Journals]:
    monkeypatch.setattr("sharding_app.entities.projections._make", control.DjangoControl)
    settings.SHARDING = {**settings.SHARDING, "JOURNALS": {"default": 1, SECOND: 1}}
    empty_tables(second)
    connections.settings[SECOND] = {**connections["default"].settings_dict, "NAME": second["dbname"]}
    allowed = BaseDatabaseWrapper.ensure_connection

    def connect(self: BaseDatabaseWrapper) -> None:
        """Connect, to a database too that Django's test case does not know of."""
        if self.alias != SECOND:
            allowed(self)
        elif self.connection is None:
            with self.wrap_database_errors:
                self.connect()

    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", connect)
    made = Journals(second, servers.database_url)
    try:
        yield made
    finally:
        made.close()
        Payments.bad = set()
        connections[SECOND].close()
        del connections[SECOND]
        del connections.settings[SECOND]
        with connections["default"].cursor() as cursor:
            cursor.execute("DROP TABLE projected")
            cursor.execute(
                "TRUNCATE sharding_projection, sharding_position, sharding_filled, sharding_held, sharding_change,"
                " sharding_following"
            )
