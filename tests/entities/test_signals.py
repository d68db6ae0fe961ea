"""Signals: what is sent when, and that a receiver that raises disturbs nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal

from sharding_app import EntityFailed, EventUnreadable, signals
from sharding_app.signals import SignalListener
from sharding_app.testing.cluster import MemoryCluster
from tests.entities.shop import Cart
from tests.entities.waiting import until

pytestmark = pytest.mark.asyncio

NAMES = ("node_up", "node_down", "coordinator_changed", "shard_started", "shard_stopped", "entity_failed")
Sent = list[tuple[str, object, dict[str, Any]]]


@pytest.fixture
def sent() -> Iterator[Sent]:
    """All signals, with their sender and what they carry."""
    seen: Sent = []
    receivers = []
    for name in NAMES:
        signal: Signal = getattr(signals, name)

        def receive(sender: object, *, _name: str = name, **facts: Any) -> None:
            del facts["signal"]
            seen.append((_name, sender, facts))

        signal.connect(receive, weak=False)
        receivers.append((signal, receive))
    yield seen
    for signal, receive in receivers:
        signal.disconnect(receive)


def of(sent: Sent, name: str) -> list[dict[str, Any]]:
    return [facts for what, _, facts in sent if what == name]


async def test_nodes_coordinators_and_shards(sent: Sent) -> None:
    async with MemoryCluster([Cart], nodes=2, listener=SignalListener()) as cluster:
        with cluster.in_use():
            await Cart.ref("a").add("book")
            ups = {facts["name"] for facts in of(sent, "node_up")}
            assert ups == {"node1", "node2"}
            first = cluster.nodes["node1"].incarnation
            assert {"term": 1, "incarnation": first} in of(sent, "coordinator_changed")
            (started,) = of(sent, "shard_started")
            assert started["entity_type"] == "entities.Cart"
            home = cluster.home_of(Cart, "a")
            incarnation = cluster.nodes[home].incarnation
            await cluster.stop_node(home)
            assert {"incarnation": incarnation, "name": home} in of(sent, "node_down")
            assert started in of(sent, "shard_stopped")
            await Cart.ref("a").add("book")
            again = of(sent, "shard_started")[-1]
            assert (again["shard"], again["epoch"]) == (started["shard"], started["epoch"] + 1)


async def test_a_dead_node_is_told_by_the_coordinator(sent: Sent) -> None:
    async with MemoryCluster([Cart], nodes=2, listener=SignalListener()) as cluster:
        with cluster.in_use():
            incarnation = cluster.nodes["node2"].incarnation
            sent.clear()
            await cluster.kill_node("node2")
            # Once what the dying node says of itself in this process, once what the coordinator finds.
            await until(lambda: len(of(sent, "node_down")) == 2)
            assert of(sent, "node_down") == [{"incarnation": incarnation, "name": "node2"}] * 2


async def test_failures_of_entities_carry_no_content(sent: Sent) -> None:
    async with MemoryCluster([Cart], listener=SignalListener()) as cluster:
        with cluster.in_use():
            with pytest.raises(EntityFailed):
                await Cart.ref("a").add_then_raise("secret")
            cluster.append_raw(Cart, "b", ("Unheard", 1, b"{}"))
            with pytest.raises(EventUnreadable):
                await Cart.ref("b").total()
    failures = [(sender, facts) for name, sender, facts in sent if name == "entity_failed"]
    common = {"entity_type": "entities.Cart"}
    assert failures == [
        (Cart, {**common, "entity_id": "a", "command": "add_then_raise", "error": "RuntimeError"}),
        (Cart, {**common, "entity_id": "b", "command": "", "error": "EventUnreadable"}),
    ]


async def test_a_receiver_that_raises_disturbs_nothing() -> None:
    def raises(sender: object, **facts: object) -> None:
        raise RuntimeError("a receiver's own mistake")

    for name in NAMES:
        getattr(signals, name).connect(raises)
    try:
        async with MemoryCluster([Cart], listener=SignalListener()) as cluster:
            with cluster.in_use():
                assert await Cart.ref("a").add("book") == 1
                with pytest.raises(EntityFailed, match="after persist"):
                    await Cart.ref("a").add_then_raise("book")
                assert await Cart.ref("a").total() == 1
    finally:
        for name in NAMES:
            getattr(signals, name).disconnect(raises)
