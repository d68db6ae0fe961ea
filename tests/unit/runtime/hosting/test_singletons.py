"""One instance on the oldest node: started without a message, handed over, taken over, reached
through its proxy.
"""

import asyncio
import dataclasses
from typing import ClassVar

import pytest

from sharding_app import BufferFull, ClusterSingleton, DeclarationError, SingletonProxy
from sharding_app.client.gateway import ClusterGateway
from sharding_app.client.portal import Portal
from sharding_app.entities.gateway import use_gateway
from sharding_app.entities.registry import registry
from sharding_app.protocol.call import Call
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import AskHomes, Refuse, RegionLimits, RegionRoutes
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.counters import Counter, Get, Increment, Mailer, Stop, WhoAreYou, mailer
from tests.unit.runtime.hosting.recorded import Log, RecordedCluster

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
    """J2"""
    await cluster.add_node("node3")
    assert await mailer.ask(Increment()) is None
    await cluster.stop_node("node1")
    assert Mailer.stopped == ["protocol.mailer"]
    assert await mailer.ask(Get("protocol.mailer")) == 0
    assert home(cluster) == ["node2"], "the next oldest"
    assert len(Mailer.born) == 2


async def test_it_is_taken_over_after_a_crash_without_a_message(cluster: MemoryCluster) -> None:
    """J3"""
    await until(lambda: home(cluster) == ["node1"])
    await cluster.add_node("node3")
    await cluster.kill_node("node1")
    await until(lambda: home(cluster) == ["node2"])
    await cluster.kill_node("node2")
    await until(lambda: home(cluster) == ["node3"])
    assert await mailer.ask(WhoAreYou()) == "protocol.mailer"
    assert len(Mailer.born) == 3


async def test_j4_the_oldest_crash_at_once_and_the_next_one_has_it(cluster: MemoryCluster) -> None:
    await until(lambda: home(cluster) == ["node1"])
    for name in ("node3", "node4"):
        await cluster.add_node(name)
    await until(lambda: all(node.registered for node in cluster.nodes.values()))
    await asyncio.gather(*(cluster.kill_node(name) for name in ("node1", "node2", "node3")))
    await until(lambda: home(cluster) == ["node4"])
    assert await mailer.ask(WhoAreYou()) == "protocol.mailer"
    assert len(Mailer.born) == 2, "on none of those that died with the first"


async def test_j5_a_node_that_is_cut_off_from_all_others_has_it_no_more_before_another_has(
    cluster: MemoryCluster,
) -> None:
    """It is downed by its own clock: no other node can tell it. The others wait for longer than
    that."""
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


class Postman(Counter):
    """Writes into the log of `RecordedCluster` when it begins, and when it gets its termination
    message.
    """

    log: ClassVar[Log] = []

    def __init__(self) -> None:
        super().__init__()
        self.log.append(("somewhere", "it begins", -1))

    async def receive(self, message: object) -> object:
        if isinstance(message, Stop):
            self.log.append(("somewhere", "it is told to end", -1))
            await asyncio.sleep(0.05)
            self.log.append(("somewhere", "it ends", -1))
        return await super().receive(message)


postman = ClusterSingleton.start("protocol.postman", entity=Postman, termination_message=Stop())


async def test_j7_the_order_of_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, it ends, the next one begins, and then its node's row goes: at each leave, and at
    the last one too.
    """
    log: Log = []
    monkeypatch.setattr(Postman, "log", log)
    type_ = registry.get("singleton:protocol.postman")
    config = dataclasses.replace(CONFIG, stop_timeout_seconds=10.0)
    async with RecordedCluster(log, [type_], nodes=3, config=config) as cluster:
        with cluster.in_use():
            for node, successor in (("node1", "node2"), ("node2", "node3"), ("node3", "")):
                await postman.ask(Increment())
                log.clear()
                await cluster.stop_node(node)
                what = [entry for entry in log if entry[1] != "coordinates"]
                assert what[:3] == [
                    ("somewhere", "it is told to end", -1),
                    ("somewhere", "it ends", -1),
                    (node, "stopped", 0),
                ]
                if successor:
                    assert what[3:5] == [(successor, "started", 0), ("somewhere", "it begins", -1)]
                assert what[-2:] == [(node, "its row goes", -1), (node, "is down", -1)]


async def test_j13_at_a_leave_it_moves_without_waiting_for_any_time_to_pass() -> None:
    """All that is waited for when nodes do not answer takes ten minutes here."""
    long = CoordinatorSettings(
        begin_hand_off_wait_seconds=600, hand_off_timeout_seconds=600, rebalance_interval_seconds=600
    )
    config = dataclasses.replace(
        CONFIG, lease_ttl_seconds=600, ping_interval_seconds=600, coordinator=long, stop_timeout_seconds=600
    )
    async with MemoryCluster([registry.get("singleton:protocol.mailer")], nodes=4, config=config) as cluster:
        with cluster.in_use():
            for node, successor in (("node1", "node2"), ("node2", "node3"), ("node3", "node4")):
                await until(lambda node=node: home(cluster) == [node])  # type: ignore[misc]
                async with asyncio.timeout(10 * SLACK):
                    await cluster.stop_node(node)
                await until(lambda successor=successor: home(cluster) == [successor])  # type: ignore[misc]


async def test_j14_every_proxy_is_answered(cluster: MemoryCluster) -> None:
    """Those of five nodes, wherever it lives, and that of a process that hosts nothing."""
    for name in ("node3", "node4", "node5"):
        await cluster.add_node(name)
    await until(lambda: home(cluster) == ["node1"])
    for process in (*cluster.nodes.values(), cluster.client):
        portal = Portal(cluster.loop, cluster.config.ask_timeout_seconds, cluster.config.region)
        portal.joined(process)
        with use_gateway(ClusterGateway(portal)):
            assert await mailer.ask(Increment()) is None
            assert await mailer.ask(WhoAreYou()) == "protocol.mailer"
        portal.close("this test is over")
    assert await mailer.ask(Get("protocol.mailer")) == 6, "all of them mean the same one"


async def test_j17_started_twice_it_is_one_and_its_termination_message_ends_it(
    cluster: MemoryCluster,
) -> None:
    again = ClusterSingleton.start("protocol.mailer", entity=Mailer, termination_message=Stop())
    assert await mailer.ask(Increment()) is None
    assert await again.ask(Get("protocol.mailer")) == 1
    assert Mailer.born == ["protocol.mailer"]
    await again.ask(Stop())
    assert Mailer.stopped == ["protocol.mailer"]
    await until(lambda: Mailer.born == ["protocol.mailer"] * 2)  # it is there again without a message
    assert await mailer.ask(Get("protocol.mailer")) == 0


async def test_messages_wait_for_it_while_it_moves(cluster: MemoryCluster) -> None:
    await mailer.ask(Increment())
    leaving = asyncio.ensure_future(cluster.stop_node("node1"))
    answers = await asyncio.gather(*(mailer.ask(WhoAreYou()) for _ in range(50)))
    await leaving
    assert answers == ["protocol.mailer"] * 50


async def test_the_oldest_give_way_when_too_many_wait() -> None:
    """The proxy's buffer: drop-oldest, told and counted."""
    region = RegionRoutes("singleton:x", {}, RegionLimits(max_waiting=2))
    calls = [
        PendingCall(number, Call("singleton:x", "x", "c", b""), 0, born=0.0, deadline=9.0)
        for number in (1, 2, 3, 4)
    ]
    for each in calls:
        assert not region.submit(each, 0.0)
    refused = [effect.pending.request for effect in region.out if isinstance(effect, Refuse)]
    assert refused == [1, 2]
    assert any(isinstance(effect, AskHomes) for effect in region.out)
    assert list(region.routes[0].waiting) == [3, 4]
    assert region.calls == 2


async def test_a_buffer_of_none_lets_nothing_wait() -> None:
    region = RegionRoutes("singleton:x", {}, RegionLimits(max_waiting=0))
    region.submit(PendingCall(1, Call("singleton:x", "x", "c", b""), 0, born=0.0, deadline=9.0), 0.0)
    assert [effect.reason for effect in region.out if isinstance(effect, Refuse)] == ["buffer_full"]
    assert BufferFull.kind == "buffer_full"


async def test_wrong_buffer_sizes_are_refused() -> None:
    for size in (-1, 10_001, True):
        with pytest.raises(DeclarationError, match="from 0 to 10000"):
            SingletonProxy("protocol.other", buffer_size=size)
