"""Every contract test runs in every world."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from sharding_app.embedded import Servers
from tests.contract.factories import FACTORIES, World
from tests.contract.gates import make_gates
from tests.support.scratch import make_tables, scratch_database


@pytest.fixture(scope="session")
def contract_database(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        yield params


@pytest.fixture(scope="session")
def gated_database(servers: Servers) -> Iterator[dict[str, Any]]:
    with scratch_database(servers.database_url) as params:
        make_tables(params)
        make_gates(params)
        yield params


@pytest_asyncio.fixture(params=sorted(FACTORIES))
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with FACTORIES[request.param](request) as made:
        yield made
