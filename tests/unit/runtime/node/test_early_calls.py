"""Calls that come before their process has begun, or has learnt which cluster it is to join."""

import asyncio
import dataclasses

import pytest

from sharding_app.client.gateway import ClusterGateway
from sharding_app.client.portal import Portal
from sharding_app.entities.gateway import use_gateway
from sharding_app.entities.registry import registry
from sharding_app.errors import Unavailable
from sharding_app.protocol.ids import Incarnation
from sharding_app.runtime.base.config import NodePorts
from sharding_app.runtime.node.runner import NodeRunner
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.counter_cluster import CONFIG, NAMES, until
from tests.unit.runtime.counters import Get, Increment, counters, to

pytestmark = pytest.mark.asyncio


async def test_a_call_waits_until_the_node_has_begun(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = asyncio.Event()

    def ports_of(incarnation: Incarnation) -> NodePorts:
        ports = cluster._node_ports(incarnation)

        async def late() -> str:
            await answers.wait()
            return cluster.server.cluster_id

        monkeypatch.setattr(ports.store, "cluster_id", late)
        return ports

    portal = Portal(cluster.loop, cluster.config.ask_timeout_seconds)
    types = [registry.get(name) for name in NAMES]
    config = dataclasses.replace(CONFIG, name="late")
    runner = NodeRunner(config, types, ports_of, lambda: "n-late", portal.joined)
    running = asyncio.ensure_future(runner.run())
    try:
        await until(lambda: runner.incarnations == 1)
        with use_gateway(ClusterGateway(portal)):
            call = asyncio.ensure_future(counters.ask(to("early", Increment())))
            await asyncio.sleep(0)
            answers.set()
            await call
            assert await counters.ask(Get("early")) == 1
    finally:
        answers.set()
        runner.request_stop(1.0)
        await running
        portal.close("this test is over")


async def test_a_call_for_which_no_node_begins_ends_with_its_timeout() -> None:
    portal = Portal(asyncio.get_running_loop(), 0.01)
    async with asyncio.timeout(10 * SLACK):
        with use_gateway(ClusterGateway(portal)), pytest.raises(Unavailable, match="it is joining"):
            await counters.ask(to("early", Increment()))
