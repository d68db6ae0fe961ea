"""A database with our tables, emptied for each test."""

from collections.abc import Iterator
from typing import Any

import pytest

from sharding_app.embedded import Servers
from tests.support.scratch import empty_tables, make_tables, scratch_database


@pytest.fixture(scope="session")
def scratch(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        yield params


@pytest.fixture
def params(scratch: dict[str, Any]) -> dict[str, Any]:
    empty_tables(scratch)
    return scratch
