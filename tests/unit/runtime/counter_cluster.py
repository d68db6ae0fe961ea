"""A cluster of two nodes in this process that hosts the message-style entities."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from sharding_app.entities.registry import registry
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counters import Counter, Mailer, Remembered

CONFIG = NodeConfig(stop_timeout_seconds=0.2, restart_backoff_seconds=0.1, passivate_after_seconds=0)
NAMES = ("protocol.Counter", "protocol.Remembered", "singleton:protocol.mailer")


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    for cls in (Counter, Remembered, Mailer):
        monkeypatch.setattr(cls, "born", [])
        monkeypatch.setattr(cls, "stopped", [])
    types = [registry.get(name) for name in NAMES]
    async with MemoryCluster(types, nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition, not for a time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
