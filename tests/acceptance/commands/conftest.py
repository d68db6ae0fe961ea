"""The cluster with two journals."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.acceptance.commands.two_journals import Two
from tests.support.live import Live
from tests.support.scratch import scratch_database


@pytest.fixture
def two(live_servers: Live) -> Iterator[Two]:
    """Two databases with tables, and no node."""
    with live_servers.empty_database() as live, scratch_database(live.database_url) as params:
        other = urlunsplit(urlsplit(live.database_url)._replace(path=f"/{params['dbname']}"))
        found = Two(live, other)
        for arguments in (("migrate",), ("migrate", "--database", "journal_b", "sharding")):
            made = found.manage(*arguments, "-v0")
            assert made.returncode == 0, made.stderr
        yield found
