"""The cluster with two journals."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from sharding_app.embedded import OwnPostgres
from tests.acceptance.commands.two_journals import Two, sql, with_tables
from tests.support.live import Live
from tests.support.scratch import scratch_database


@pytest.fixture
def two(live_servers: Live) -> Iterator[Two]:
    """Two databases with tables, and no node."""
    with live_servers.empty_database() as live, scratch_database(live.database_url) as params:
        other = urlunsplit(urlsplit(live.database_url)._replace(path=f"/{params['dbname']}"))
        yield with_tables(live, other)


@pytest.fixture
def apart(live_servers: Live, own_postgres: OwnPostgres) -> Iterator[Two]:
    """Two databases with tables, the second one on a server that the test may stop, and no node."""
    sql(own_postgres.url, "CREATE DATABASE other")
    with live_servers.empty_database() as live:
        yield with_tables(live, urlunsplit(urlsplit(own_postgres.url)._replace(path="/other")))
