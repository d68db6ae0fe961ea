"""A cluster in memory for each test, on the test's own event loop, whose time can be moved on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest_asyncio

from sharding_app.testing.cluster import MemoryCluster
from tests.support.steady_loop import SteadyLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"travel": SteadyLoop}


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster() as made:
        with made.in_use():
            yield made
