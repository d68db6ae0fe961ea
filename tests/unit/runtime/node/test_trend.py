"""A node's figures over time, as another process gets them."""

import asyncio

import pytest

from sharding_app.protocol.messages import GetNodeTrend, NodeTrend
from sharding_app.protocol.trend import (
    FIGURES,
    SPANS,
    STEP_SECONDS,
    TYPE_FIGURES,
    TYPE_RATES,
    Trends,
)
from sharding_app.runtime.node import node as node_module
from sharding_app.runtime.node.stats import answer_trend
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart
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


async def test_a_node_tells_what_one_type_did() -> None:
    async with MemoryCluster([Plain, Cart]) as cluster:
        with cluster.in_use():
            await travel(3 * STEP_SECONDS)
            for number in range(20):
                await Plain.ref(f"e{number}").hello()
            for number in range(6):
                await Cart.ref("w").add(f"book {number}")
            await travel(3 * STEP_SECONDS)
            (node,) = cluster.nodes.values()
            totals: dict[str, dict[str, int]] = {}
            for name in ("allocation.Plain", "entities.Cart"):
                answers = await cluster.client.queries.trends([node.incarnation], SPANS[0], type_name=name)
                found = answers[node.incarnation]
                assert set(found.figures) == set(TYPE_FIGURES)
                seconds = [
                    late - early for early, late in zip([found.began, *found.at], found.at, strict=False)
                ]
                totals[name] = {
                    figure: round(
                        sum((rate or 0.0) * length for rate, length in zip(values, seconds, strict=True))
                    )
                    for figure, values in found.figures.items()
                    if figure in TYPE_RATES
                }
                totals[name]["entities"] = round(found.figures["entities"][-1] or 0)
            plain = {"commands": 20, "events": 0, "failures": 0, "recoveries": 20, "entities": 20}
            assert totals["allocation.Plain"] == plain
            written = {"commands": 6, "events": 6, "failures": 0, "recoveries": 1, "entities": 1}
            assert totals["entities.Cart"] == written


async def test_a_type_that_the_node_does_not_host_has_no_samples() -> None:
    async with MemoryCluster([Plain]) as cluster:
        (node,) = cluster.nodes.values()
        found = (await cluster.client.queries.trends([node.incarnation], SPANS[0], type_name="shop.None"))[
            node.incarnation
        ]
        assert (found.type, found.at, found.figures) == ("shop.None", [], {})


async def test_a_node_of_a_release_without_figures_of_types_has_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def former(trends: Trends, asked: GetNodeTrend, now: float) -> NodeTrend:
        return answer_trend(trends, GetNodeTrend(asked.request, asked.period), now)

    monkeypatch.setattr(node_module, "answer_trend", former)
    async with MemoryCluster([Plain]) as cluster:
        (node,) = cluster.nodes.values()
        queries = cluster.client.queries
        assert await queries.trends([node.incarnation], SPANS[0], type_name="shop.None") == {}
        assert set(await queries.trends([node.incarnation], SPANS[0])) == {node.incarnation}


async def test_a_period_that_is_not_kept_has_no_samples() -> None:
    async with MemoryCluster([Plain]) as cluster:
        (node,) = cluster.nodes.values()
        found = (await cluster.client.queries.trends([node.incarnation], 7))[node.incarnation]
        assert (found.period, found.at, found.figures) == (7, [], {})
