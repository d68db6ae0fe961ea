"""A node's figures over time, as another process gets them."""

import asyncio

import pytest

from sharding_app.protocol.trend import FIGURES, SPANS, STEP_SECONDS
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.places import Plain

pytestmark = pytest.mark.asyncio


async def travel(seconds: int) -> None:
    """Let time pass second by second, as a node's readings need it."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    for _ in range(seconds):
        await loop.travel(1.0)


async def test_a_node_tells_what_it_did() -> None:
    async with MemoryCluster([Plain]) as cluster:
        with cluster.in_use():
            await travel(3 * STEP_SECONDS)
            for number in range(20):
                await Plain.ref(f"e{number}").hello()
            await travel(3 * STEP_SECONDS)
            (node,) = cluster.nodes.values()
            answers = await cluster.client.queries.trends([node.incarnation], SPANS[0])
            found = answers[node.incarnation]
            assert set(found.figures) == set(FIGURES)
            assert len(found.at) >= 4
            assert found.began < found.at[0] <= found.at[-1] <= found.clock
            seconds = [late - early for early, late in zip([found.began, *found.at], found.at, strict=False)]
            done = [
                (rate or 0.0) * length
                for rate, length in zip(found.figures["commands"], seconds, strict=True)
            ]
            assert sum(done) == pytest.approx(20, rel=0.01)
            loaded = [
                (rate or 0.0) * length
                for rate, length in zip(found.figures["recoveries"], seconds, strict=True)
            ]
            assert sum(loaded) == pytest.approx(20, rel=0.01)
            assert found.figures["entities"][-1] == 20.0
            assert found.figures["shards"][-1] == sum(len(host.shards) for host in node.hosts.values())


async def test_a_period_that_is_not_kept_has_no_samples() -> None:
    async with MemoryCluster([Plain]) as cluster:
        (node,) = cluster.nodes.values()
        found = (await cluster.client.queries.trends([node.incarnation], 7))[node.incarnation]
        assert (found.period, found.at, found.figures) == (7, [], {})
