"""Signals: what is sent when, and that a receiver that raises disturbs nothing."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.utils import ConnectionHandler
from django.dispatch import Signal

from sharding_app import EntityFailed, UnreadableEvent, signals
from sharding_app.signals import SignalListener, SignalThread
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Cart
from tests.unit.runtime.waiting import until

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
            # Once what the dying node says of itself in this process, once what the coordinator
            # finds.
            await until(lambda: len(of(sent, "node_down")) == 2)
            assert of(sent, "node_down") == [{"incarnation": incarnation, "name": "node2"}] * 2


async def test_failures_of_entities_carry_no_content(sent: Sent) -> None:
    async with MemoryCluster([Cart], listener=SignalListener()) as cluster:
        with cluster.in_use():
            with pytest.raises(EntityFailed):
                await Cart.ref("a").add_then_raise("secret")
            cluster.append_raw(Cart, "b", ("Unheard", 1, b"{}"))
            with pytest.raises(UnreadableEvent):
                await Cart.ref("b").total()
    failures = [(sender, facts) for name, sender, facts in sent if name == "entity_failed"]
    common = {"entity_type": "entities.Cart"}
    assert failures == [
        (Cart, {**common, "entity_id": "a", "command": "add_then_raise", "error": "RuntimeError"}),
        (Cart, {**common, "entity_id": "b", "command": "", "error": "UnreadableEvent"}),
    ]


async def test_a_receiver_that_blocks_holds_up_no_entity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "close_old_connections", lambda: None)
    goes_on, seen = threading.Event(), list[str]()

    def blocks(sender: object, **facts: object) -> None:
        goes_on.wait(60)
        seen.append(str(facts["shard"]))

    signals.shard_started.connect(blocks)
    try:
        async with MemoryCluster([Cart], listener=SignalListener(SignalThread())) as cluster:
            with cluster.in_use():
                assert await Cart.ref("a").add("book") == 1
                assert not seen
                goes_on.set()
                await until(lambda: len(seen) >= 1)
    finally:
        goes_on.set()
        signals.shard_started.disconnect(blocks)


async def test_signals_that_wait_for_a_receiver_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MAX_WAITING", 2)
    monkeypatch.setattr(signals, "close_old_connections", lambda: None)
    thread, goes_on, ran = SignalThread(), threading.Event(), list[int]()

    def work(number: int) -> None:
        goes_on.wait(60)
        ran.append(number)

    for number in range(10):
        thread(partial(work, number))
    assert thread.dropped >= 7
    goes_on.set()
    await until(lambda: len(ran) == 10 - thread.dropped)
    assert ran == sorted(ran)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError, GeneratorExit])
async def test_a_receiver_that_raises_disturbs_nothing(error: type[BaseException]) -> None:
    called: list[object] = []

    def raises(sender: object, **facts: object) -> None:
        called.append(sender)
        raise error("a receiver's own mistake")

    for name in NAMES:
        getattr(signals, name).connect(raises)
    try:
        async with MemoryCluster([Cart], listener=SignalListener()) as cluster:
            with cluster.in_use():
                assert await Cart.ref("a").add("book") == 1
                with pytest.raises(EntityFailed, match="after persist"):
                    await Cart.ref("a").add_then_raise("book")
                assert await Cart.ref("a").total() == 1
                await until(lambda: bool(called))
    finally:
        for name in NAMES:
            getattr(signals, name).disconnect(raises)


async def test_a_connection_that_a_receiver_has_spoiled_ends_no_later_signals(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    """It has put another thread's connection into its own, as some test runners do."""
    settings = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db")}}
    there = ConnectionHandler(settings)["default"]
    ran = threading.Event()

    def spoil() -> None:
        connections["default"] = there

    def mend() -> None:
        del connections["default"]

    with django_db_blocker.unblock():
        await asyncio.to_thread(there.connect)
        there.close_at = 0.0
        thread = SignalThread()
        for work in (spoil, mend, ran.set):
            thread(work)
        assert await asyncio.to_thread(ran.wait, 30.0)
        there.inc_thread_sharing()
        await asyncio.to_thread(there.close)
