"""Followers of an entity's events, over the in-memory cluster."""

import asyncio

import pytest

from sharding_app import EntityErased, EventsGone, Happened, InvalidCall
from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.following.auctions import Auction, Clicks, Collected, Lamp, bid, follow
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


async def test_a_follower_gets_what_was_committed_and_what_comes(cluster: MemoryCluster) -> None:
    await bid("1", 10, 20)
    follower = follow()
    await until(lambda: follower.amounts == [10, 20])
    await bid("1", 30)
    await until(lambda: follower.amounts == [10, 20, 30])
    first = follower.found[0]
    assert isinstance(first, Happened)
    assert (first.number, first.entity_id, first.type_name) == (1, "1", "following.Auction")
    assert first.ref == Auction.ref("1")
    assert first.at.tzinfo is not None
    assert [each.number for each in follower.found] == [1, 2, 3]
    await follower.stop()


async def test_a_follower_goes_on_after_a_number(cluster: MemoryCluster) -> None:
    await bid("1", 10, 20, 30)
    follower = follow(after=2)
    await until(lambda: follower.amounts == [30])
    await Auction.ref("1").bid_twice(40, 50)
    await Auction.ref("1").bid_in_steps(60, 70)
    await Auction.ref("1").bid_together(80)
    await until(lambda: follower.amounts == [30, 40, 50, 60, 70, 80])
    await follower.stop()


async def test_an_entity_without_a_past_can_be_followed_and_is_not_loaded(cluster: MemoryCluster) -> None:
    follower = follow("new")
    await travel(30)
    assert not follower.found
    assert not cluster.is_in_memory(Auction, "new")
    await bid("new", 5)
    await until(lambda: follower.amounts == [5])
    await follower.stop()


async def test_many_followers_of_a_process_ask_once(cluster: MemoryCluster) -> None:
    followers = [follow() for _ in range(20)]
    await travel(1)
    following = cluster.nodes["node1"].hosting.parts[0].following
    assert following.waiting == 1
    reads = following.counters["reads"]
    await bid("1", 10)
    await until(lambda: all(each.amounts == [10] for each in followers))
    assert following.counters["reads"] == reads + 1
    for each in followers:
        await each.stop()
    await travel(30)
    assert not cluster.portal.following.hub.feeds
    await travel(30)
    assert not following.waiting
    assert not following.shards
    assert following._committed not in cluster.nodes["node1"].writer.on_commit


async def test_a_slow_follower_reads_by_itself(cluster: MemoryCluster) -> None:
    quick = follow()
    slow = Auction.ref("1").events()
    await bid("1", *range(1, 11))
    assert (await anext(slow)).number == 1
    for start in range(11, 900, 50):
        await asyncio.gather(*(Auction.ref("1").bid(each) for each in range(start, start + 50)))
    await until(lambda: len(quick.found) == 910)
    assert [(await anext(slow)).number for _ in range(909)] == list(range(2, 911))
    await slow.aclose()  # type: ignore[attr-defined]
    await quick.stop()


async def test_followers_go_on_when_the_home_moves_or_dies(cluster: MemoryCluster) -> None:
    await cluster.add_node()
    await bid("1", 1)
    first, second = follow(), follow()
    await until(lambda: first.amounts == second.amounts == [1])
    home = cluster.home_of(Auction, "1")
    await cluster.stop_node(home)
    await bid("1", 2)
    await until(lambda: first.amounts == second.amounts == [1, 2])
    await cluster.add_node("other")
    await cluster.kill_node(cluster.home_of(Auction, "1"))
    await bid("1", 3)
    await until(lambda: first.amounts == second.amounts == [1, 2, 3])
    await first.stop()
    await second.stop()


async def test_an_erasure_ends_the_followers(cluster: MemoryCluster) -> None:
    await bid("1", 1, 2)
    follower, late = follow(), Auction.ref("1").events()
    assert [(await anext(late)).number for _ in range(2)] == [1, 2]
    await until(lambda: follower.amounts == [1, 2])
    await erase(cluster, "1")
    await until(lambda: follower.error)
    assert isinstance(follower.error, EntityErased)
    await bid("1", 7, 8, 9)
    with pytest.raises(EntityErased, match="up to event 2 is gone"):
        await anext(late)
    again = follow()
    await until(lambda: again.amounts == [7, 8, 9])
    with pytest.raises(EntityErased):
        await anext(Auction.ref("1").events(after=12))
    await again.stop()


async def test_deleted_events_are_no_silent_gap(cluster: MemoryCluster) -> None:
    await bid("1", 1, 2, 3, 4)
    late = Auction.ref("1").events()
    assert (await anext(late)).number == 1
    await bid("1", *range(5, 500))
    rows = cluster.server.journal.events[cluster._key(Auction, "1")]
    for number in range(1, 400):
        del rows[number]
    fresh = Auction.ref("1").events()
    assert (await anext(fresh)).number == 400, "it begins with the first that is left"
    with pytest.raises(EventsGone, match="after 4 are deleted") as caught:
        async for _ in late:
            pass
    assert caught.value.params["first"] == 400
    assert not isinstance(caught.value, EntityErased)


async def test_types_without_events_refuse(cluster: MemoryCluster) -> None:
    with pytest.raises(InvalidCall, match="Lamp is a durable-state entity"):
        Lamp.ref("1").events()
    with pytest.raises(InvalidCall, match="Clicks is an in-memory entity"):
        Clicks.ref("1").events()
    with pytest.raises(InvalidCall, match="after is the number"):
        Auction.ref("1").events(after=-1)
    with pytest.raises(InvalidCall, match="is a command"):
        Auction.ref("1").bid.changes(5)


async def test_changes_of_a_query(cluster: MemoryCluster) -> None:
    prices = Collected(Auction.ref("1").current.changes())
    await until(lambda: prices.found == [0])
    await bid("1", 10)
    await until(lambda: prices.found == [0, 10])
    await bid("1", 10)
    await travel(1)
    assert prices.found == [0, 10], "only another value is a change"
    await cluster.add_node()
    await cluster.kill_node("node1")
    await bid("1", 20)
    await until(lambda: prices.found == [0, 10, 20])
    await erase(cluster, "1")
    await until(lambda: prices.found == [0, 10, 20, 0])
    await prices.stop()


@pytest.mark.parametrize("lamp", [False, True])
async def test_another_life_with_as_many_events_is_a_change(cluster: MemoryCluster, lamp: bool) -> None:
    """It was erased, or the server lost its last event, and then as much was stored before the
    follower asked again.
    """
    entity, found = (Lamp, Lamp.ref("1").state) if lamp else (Auction, Auction.ref("1").current)
    shown = Collected(found.changes())
    await (Lamp.ref("1").switch(True) if lamp else bid("1", 10))
    await until(lambda: shown.found[-1:] == [True if lamp else 10])
    await travel(30)
    await cluster.kill_node("node1")
    rows = cluster.server.journal.events[cluster._key(entity, "1")]
    (former,) = rows.values()
    payload = b'{"on":false}' if lamp else b'{"amount":20}'
    rows[1] = Committed(former.row._replace(payload=payload), former.at + 100)
    await cluster.add_node()
    await until(lambda: shown.found[-1:] == [False if lamp else 20])
    await shown.stop()


async def test_changes_of_what_is_not_event_sourced(cluster: MemoryCluster) -> None:
    lamp, clicks = Collected(Lamp.ref("1").state.changes()), Collected(Clicks.ref("1").total.changes())
    await until(lambda: lamp.found == [False] and clicks.found == [0])
    await Lamp.ref("1").switch(True)
    await Clicks.ref("1").click()
    await until(lambda: lamp.found == [False, True] and clicks.found == [0, 1])
    await Clicks.ref("1").click_slowly()
    await until(lambda: clicks.found == [0, 1, 2])
    cluster.forget(Clicks)
    assert await Clicks.ref("1").total() == 0
    await until(lambda: clicks.found == [0, 1, 2, 0])
    await lamp.stop()
    await clicks.stop()


async def test_both_kinds_of_followers_share_a_feed(cluster: MemoryCluster) -> None:
    prices = Collected(Auction.ref("1").current.changes())
    await until(lambda: prices.found == [0])
    follower = follow()
    for amount in range(1, 20):
        await bid("1", amount)
    await until(lambda: follower.amounts == list(range(1, 20)) and prices.found[-1] == 19)
    assert len(cluster.portal.following.hub.feeds) == 1
    await prices.stop()
    await follower.stop()


async def test_one_who_begins_after_an_erasure_gets_nothing_of_the_former_life(
    cluster: MemoryCluster,
) -> None:
    """The process still has events of the former life, of which another follower is to be told:
    its question was refused by a full home, and is asked again after a pause.
    """
    former = follow()
    await until(lambda: bool(cluster.portal.following.hub.feeds))
    following = cluster.nodes["node1"].hosting.parts[0].following
    for number in range(4):
        await until(lambda: following.waiting == 1)
        following._limit = 0 if number == 3 else 10
        await bid("1", number)
        await until(lambda: len(former.found) == number + 1)  # noqa: B023 (it is awaited here)
    await until(lambda: following.counters["refused"] > 0)
    following._limit = 10
    await erase(cluster, "1")
    await bid("1", 10, 11)
    fresh = follow()
    await until(lambda: len(fresh.found) >= 2)
    await travel(20)
    await bid("1", 12)
    await until(lambda: len(fresh.found) >= 3 or fresh.error is not None)
    assert (fresh.amounts, fresh.error) == ([10, 11, 12], None)
    assert isinstance(former.error, EntityErased)
    await fresh.stop()


async def erase(cluster: MemoryCluster, name: str) -> None:
    node = cluster.nodes[cluster.home_of(Auction, name)]
    host = node.hosts["following.Auction"]
    shard = node.region_client.shard_of("following.Auction", name)
    answer = await host.erasing.erase(shard, name, "a test")
    assert not isinstance(answer, str), answer
