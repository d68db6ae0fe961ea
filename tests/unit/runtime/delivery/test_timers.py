"""Durable timers in a cluster in memory, whose time can be moved on."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
import pytest_asyncio

from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.shop import Owner, Passing, Target
from tests.unit.runtime.delivery.test_messages import CONFIG, no_rows, seen

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Owner, Target, Passing], nodes=2, config=CONFIG) as made:
        with made.in_use():
            yield made


async def travel(seconds: float) -> None:
    await cast(TravelLoop, asyncio.get_running_loop()).travel(seconds)


async def test_a_timer_fires_at_its_time_and_not_before(cluster: MemoryCluster) -> None:
    await Owner.ref("a").schedule_in(5.0, "now")
    await travel(4.9)
    assert await Owner.ref("a").seen() == []
    await travel(0.2)
    await seen(Owner, "a", ["now"])
    await no_rows(cluster)


async def test_a_timer_far_ahead_is_not_in_memory_and_fires_in_time(cluster: MemoryCluster) -> None:
    await Owner.ref("a").schedule_in(600.0, "much later")
    assert all(node.hosting.parts[0].deliverer.pending == 0 for node in cluster.nodes.values())
    await travel(599.0)
    assert await Owner.ref("a").seen() == []
    await travel(2.0)
    await seen(Owner, "a", ["much later"])
    await no_rows(cluster)


async def test_a_cancelled_timer_does_not_fire(cluster: MemoryCluster) -> None:
    await Owner.ref("a").schedule_in(5.0, "never")
    await Owner.ref("a").cancel_it()
    await travel(10.0)
    assert await Owner.ref("a").seen() == []
    await no_rows(cluster)


async def test_a_later_timer_of_the_same_key_takes_the_place_of_the_first(cluster: MemoryCluster) -> None:
    await Owner.ref("a").schedule_in(2.0, "first")
    await Owner.ref("a").schedule_in(4.0, "second")
    await Owner.ref("a").schedule_in(3.0, "other", key="other")
    await travel(10.0)
    await seen(Owner, "a", ["other", "second"])
    await no_rows(cluster)


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_timer_that_is_cancelled_while_its_firing_is_under_way_does_not_fire(
    cluster: MemoryCluster, *, replaced: bool
) -> None:
    await Owner.ref("a").schedule_in(1.0, "never")
    await travel(0.9)
    with cluster.writes_wait():
        asked = asyncio.ensure_future(
            Owner.ref("a").schedule_in(5.0, "instead") if replaced else Owner.ref("a").cancel_it()
        )
        await travel(0.5)  # the firing waits in the mailbox, behind this command
    await asked
    await travel(10.0)
    await seen(Owner, "a", ["instead"] if replaced else [])
    await no_rows(cluster)


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_timer_survives_a_move_and_a_crash(cluster: MemoryCluster, way: str) -> None:
    await Owner.ref("a").schedule_in(60.0, "still here")
    home = cluster.home_of(Owner, "a")
    await (cluster.stop_node(home) if way == "stop" else cluster.kill_node(home))
    await travel(70.0)
    await seen(Owner, "a", ["still here"])
    await no_rows(cluster)


async def test_a_timer_that_came_due_while_no_node_was_up_fires_once(cluster: MemoryCluster) -> None:
    await Owner.ref("a").schedule_in(5.0, "late")
    for name in list(cluster.nodes):
        await cluster.kill_node(name)
    await travel(60.0)
    await cluster.add_node()
    await seen(Owner, "a", ["late"])
    await no_rows(cluster)
    await travel(10.0)
    await seen(Owner, "a", ["late"])


async def test_a_timer_wakes_a_passivated_entity(cluster: MemoryCluster) -> None:
    await Owner.ref("a").schedule_in(5.0, "awake")
    cluster.forget(Owner)
    assert not cluster.is_in_memory(Owner, "a")
    await travel(6.0)
    assert cluster.is_in_memory(Owner, "a")
    await seen(Owner, "a", ["awake"])


async def test_a_repeating_timer_goes_on_over_a_crash(cluster: MemoryCluster) -> None:
    await Owner.ref("a").repeat(30.0)
    await travel(65.0)
    await seen(Owner, "a", ["tick"] * 2)
    await cluster.kill_node(cluster.home_of(Owner, "a"))
    await travel(30.0)
    await seen(Owner, "a", ["tick"] * 3)
    await Owner.ref("a").cancel_it("ticking")
    await travel(100.0)
    await seen(Owner, "a", ["tick"] * 3)
    await no_rows(cluster)
