"""One instance on the oldest node: started without a message, handed over, taken over, reached through its proxy."""

import asyncio

import pytest

from sharding_app import BufferFull, DeclarationError, SingletonProxy
from sharding_app.core.parcel import Parcel
from sharding_app.core.region import AskHomes, Refuse, Region, RegionLimits
from sharding_app.testing.cluster import MemoryCluster
from tests.protocol.conftest import until
from tests.protocol.counters import Get, Increment, Mailer, WhoAreYou, mailer

pytestmark = pytest.mark.asyncio


def home(cluster: MemoryCluster) -> list[str]:
    name = "singleton:protocol.mailer"
    return [node for node, each in cluster.nodes.items() if each.hosts[name].entities]


async def test_it_runs_on_the_oldest_node_without_a_message(cluster: MemoryCluster) -> None:
    """J1, J10"""
    await until(lambda: home(cluster) == ["node1"])
    await cluster.add_node("node3")
    assert await mailer.ask(WhoAreYou()) == "protocol.mailer"
    assert home(cluster) == ["node1"]
    assert Mailer.born == ["protocol.mailer"]


async def test_it_is_handed_over_with_its_termination_message(cluster: MemoryCluster) -> None:
    """J2, J7, J13"""
    await cluster.add_node("node3")
    assert await mailer.ask(Increment()) is None
    await cluster.stop_node("node1")
    assert Mailer.stopped == ["protocol.mailer"]
    assert await mailer.ask(Get("protocol.mailer")) == 0
    assert home(cluster) == ["node2"], "the next oldest"
    assert len(Mailer.born) == 2


async def test_it_is_taken_over_after_a_crash_without_a_message(cluster: MemoryCluster) -> None:
    """J3, J4"""
    await until(lambda: home(cluster) == ["node1"])
    await cluster.add_node("node3")
    await cluster.kill_node("node1")
    await until(lambda: home(cluster) == ["node2"])
    await cluster.kill_node("node2")
    await until(lambda: home(cluster) == ["node3"])
    assert await mailer.ask(WhoAreYou()) == "protocol.mailer"
    assert len(Mailer.born) == 3


async def test_j5_a_node_that_is_cut_off_from_all_others_has_it_no_more_before_another_has(
    cluster: MemoryCluster,
) -> None:
    """It is downed by its own clock: nobody can tell it. The others wait for longer than that."""
    name = "singleton:protocol.mailer"
    await until(lambda: home(cluster) == ["node1"])
    lost = cluster.nodes["node1"]
    cluster.cut_off("node1")
    began = cluster.clock.now()
    await until(lambda: not lost.may_handle() or cluster.nodes["node2"].hosts[name].entities == 1)
    assert not lost.may_handle()
    assert cluster.clock.now() - began < 3.0
    await until(lambda: cluster.nodes["node2"].hosts[name].entities == 1)
    assert not lost.may_handle()
    assert await mailer.ask(WhoAreYou()) == "protocol.mailer"
    assert len(Mailer.born) == 2


async def test_messages_wait_for_it_while_it_moves(cluster: MemoryCluster) -> None:
    """J14"""
    await mailer.ask(Increment())
    leaving = asyncio.ensure_future(cluster.stop_node("node1"))
    answers = await asyncio.gather(*(mailer.ask(WhoAreYou()) for _ in range(50)))
    await leaving
    assert answers == ["protocol.mailer"] * 50


async def test_the_oldest_give_way_when_too_many_wait() -> None:
    """The proxy's buffer: drop-oldest, told and counted."""
    region = Region("singleton:x", {}, RegionLimits(max_waiting=2))
    parcels = [
        Parcel(number, "singleton:x", 0, "x", "c", b"", born=0.0, deadline=9.0) for number in (1, 2, 3, 4)
    ]
    for each in parcels:
        assert not region.submit(each, 0.0)
    refused = [effect.parcel.request for effect in region.out if isinstance(effect, Refuse)]
    assert refused == [1, 2]
    assert any(isinstance(effect, AskHomes) for effect in region.out)
    assert [each.request for each in region.routes[0].waiting] == [3, 4]
    assert region.parcels == 2


async def test_a_buffer_of_none_lets_nothing_wait() -> None:
    region = Region("singleton:x", {}, RegionLimits(max_waiting=0))
    region.submit(Parcel(1, "singleton:x", 0, "x", "c", b"", born=0.0, deadline=9.0), 0.0)
    assert [effect.reason for effect in region.out if isinstance(effect, Refuse)] == ["buffer_full"]
    assert BufferFull.kind == "buffer_full"


async def test_wrong_buffer_sizes_are_refused() -> None:
    for size in (-1, 10_001, True):
        with pytest.raises(DeclarationError, match="from 0 to 10000"):
            SingletonProxy("protocol.other", buffer_size=size)
