"""A cluster of two nodes in this process that hosts the entities whose places the tests choose."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.places import SHARDS, Chosen, Placed, Plain, by_name


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    monkeypatch.setattr(by_name, "name", "")
    monkeypatch.setattr(by_name, "moves", [])
    config = NodeConfig(coordinator=CoordinatorSettings(rebalance_interval_seconds=1.0))
    async with MemoryCluster([Chosen, Placed, Plain], nodes=2, config=config) as made:
        with made.in_use():
            await until(lambda: _known_hosts(made) == 2)
            yield made


def _known_hosts(cluster: MemoryCluster) -> int:
    """How many nodes the coordinator, if there is one, would give a shard to."""
    shells = [each.coordinator for each in cluster.nodes.values() if each.coordinator is not None]
    return max((len(each.machine.placement.hosts_of("allocation.Plain")) for each in shells), default=0)


def id_in(shard: int) -> str:
    """Return an id that lives in this shard."""
    return next(str(number) for number in range(1000) if shard_of(str(number), SHARDS) == shard)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition, not for a time."""
    async with asyncio.timeout(seconds * SLACK):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
