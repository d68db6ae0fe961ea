"""A cluster in memory for each test, on the test's own event loop."""

from collections.abc import AsyncIterator

import pytest_asyncio

from sharding_app.testing.cluster import MemoryCluster


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as made:
        with made.in_use():
            yield made
