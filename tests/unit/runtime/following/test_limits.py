"""Followers at the edges: a standby that is away, limits, other threads, the end of the cluster."""

import asyncio
from collections.abc import Sequence

import pytest

from sharding_app import BufferFull, InvalidCall, Unavailable, WrongContext
from sharding_app.client.following import Hub
from sharding_app.entities.gateway import use_gateway
from sharding_app.ports.journal import JournalUnavailable, Reading, RowRefused, Wanted
from sharding_app.protocol.call import Call
from sharding_app.protocol.coordinator.terms import lowest_epoch, next_term
from sharding_app.protocol.following import News, Question, decode_news, decode_question, encode
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.hosting import following
from sharding_app.testing.cluster import MemoryCluster
from sharding_app.testing.local import LocalGateway
from tests.support.slack import SLACK
from tests.unit.runtime.following.auctions import Auction, Clicks, Collected, bid, follow
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

QUIET_SECONDS = 0.5 * SLACK
"So long nothing new comes before a thread has all."


async def test_nothing_is_shown_that_a_standby_lacks(cluster: MemoryCluster) -> None:
    await bid("1", 1)
    follower = follow()
    await until(lambda: follower.amounts == [1])
    cluster.server.standby.part()
    bidding = asyncio.ensure_future(Auction.ref("1", timeout=60).bid(2))
    await until(lambda: len(cluster.events_raw(Auction, "1")) == 2)
    late = follow(after=1)
    fresh = Auction.ref("1").events()
    first = asyncio.ensure_future(anext(fresh))
    await travel(3)
    assert follower.amounts == [1]
    assert not late.found
    cluster.server.standby.join()
    assert await bidding == 2
    await until(lambda: follower.amounts == [1, 2] and late.amounts == [2])
    assert (await first).number == 1
    await follower.stop()
    await late.stop()


async def test_a_home_secures_what_it_finds(cluster: MemoryCluster) -> None:
    """The commit of a former home is visible, and its acknowledgement is still to come."""
    await bid("1", 1)
    cluster.server.standby.part()
    bidding = asyncio.ensure_future(Auction.ref("1", timeout=60).bid(2))
    await until(lambda: len(cluster.events_raw(Auction, "1")) == 2)
    follower = follow()
    await travel(3)
    assert not follower.found
    cluster.server.standby.join()
    await until(lambda: follower.amounts == [1, 2])
    await bidding
    await follower.stop()


async def test_threads_follow(cluster: MemoryCluster) -> None:
    await bid("1", 1, 2)

    def read() -> tuple[list[int], list[int]]:
        events = [each.number for each in Auction.ref("1").sync.events(timeout=QUIET_SECONDS)]
        return events, list(Auction.ref("1").sync.current.changes(timeout=QUIET_SECONDS))  # type: ignore[attr-defined]

    assert await asyncio.to_thread(read) == ([1, 2], [2])
    with pytest.raises(WrongContext, match=r"sync\.events\(\) would block"):
        Auction.ref("1").sync.events()
    with pytest.raises(WrongContext, match="changes"):
        Auction.ref("1").sync.current.changes()  # type: ignore[attr-defined]


async def test_a_thread_does_not_wait_for_a_query_that_is_never_answered(cluster: MemoryCluster) -> None:
    await bid("1", 1)
    asked: list[int] = []

    def refuses(_: object) -> None:
        asked.append(1)
        if len(asked) > 50:
            raise TimeoutError("it is asked for ever")

    def read() -> list[int]:
        return list(Auction.ref("1").sync.current.changes(timeout=QUIET_SECONDS))  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sharding_app.entities.following._asked_sync", refuses)
        assert await asyncio.to_thread(read) == []
    assert asked


async def test_another_loop_follows(cluster: MemoryCluster) -> None:
    await bid("1", 1)

    async def read() -> list[int]:
        found = []
        async for happened in Auction.ref("1").events():
            found.append(happened.number)
            if len(found) == 2:
                break
        return found

    reading = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(read())))
    await bid("1", 2)
    assert await reading == [1, 2]
    await until(lambda: not any(each.subscriptions for each in cluster.portal.following.hub.feeds.values()))


async def test_a_process_follows_no_more_than_its_limit() -> None:
    async with MemoryCluster(config=NodeConfig(followers=2)) as cluster:
        with cluster.in_use():
            followers = [follow(name) for name in "ab"]
            await travel(1)
            with pytest.raises(BufferFull, match="follows 2 entities"):
                await anext(Auction.ref("c").events())
            for each in followers:
                await each.stop()
            await travel(30)
            third = follow("c")
            await bid("c", 3)
            await until(lambda: third.amounts == [3])
            await third.stop()


async def test_a_node_takes_no_more_than_its_limit() -> None:
    """Others ask again later, and miss nothing."""
    async with MemoryCluster(config=NodeConfig(followers=2)) as cluster:
        with cluster.in_use():
            first = [follow(name) for name in "ab"]
            await travel(1)
            hub = Hub(cluster.client.ask, 10)
            other = hub.subscribe("following.Auction", "c")
            waiting = asyncio.ensure_future(other.events(0, 0))
            await travel(1)
            following = cluster.nodes["node1"].hosting.parts[0].following
            assert following.waiting == 2
            assert following.counters["refused"] > 0
            await bid("c", 3)
            for each in first:
                await each.stop()
            await travel(40)
            assert [each.seq for each in await waiting] == [1]


@pytest.mark.parametrize("error", [JournalUnavailable("missing chunk 0 (XX001)"), RowRefused("no text")])
async def test_an_entity_that_cannot_be_read_holds_up_no_other(
    cluster: MemoryCluster, error: Exception
) -> None:
    names = [str(number) for number in range(20)]
    for name in names:
        await bid(name, 1)
    journal = cluster.nodes["node1"].node_ports.journal
    real = journal.follow

    async def read(wanted: Sequence[Wanted], page_bytes: int) -> list[Reading]:
        if any(each.entity == "7" for each in wanted):
            raise error
        return await real(wanted, page_bytes)

    journal.follow = read  # type: ignore[method-assign]
    followers = {name: follow(name) for name in names}
    await until(lambda: all(each.amounts == [1] for name, each in followers.items() if name != "7"))
    await bid("8", 2, 3)
    await until(lambda: followers["8"].amounts == [1, 2, 3])
    assert not followers["7"].found
    journal.follow = real  # type: ignore[method-assign]
    if isinstance(error, JournalUnavailable):
        await until(lambda: followers["7"].amounts == [1])
    else:
        assert isinstance(followers["7"].error, InvalidCall)
    for each in followers.values():
        await each.stop()


async def test_a_journal_that_is_away_is_asked_now_and_then(cluster: MemoryCluster) -> None:
    """However many entities are followed: reading each of them alone finds no journal either."""
    names = [str(number) for number in range(200)]
    for name in names:
        await bid(name, 1)
    reads: list[int] = []
    real = cluster.nodes["node1"].node_ports.journal.follow

    async def is_away(wanted: Sequence[Wanted], page_bytes: int) -> list[Reading]:
        reads.append(len(wanted))
        raise JournalUnavailable("the connection was refused")

    for node in cluster.nodes.values():
        node.node_ports.journal.follow = is_away  # type: ignore[method-assign]
    followers = [follow(name) for name in names]
    await travel(20)
    assert len(reads) < 40 * len(cluster.nodes)
    for node in cluster.nodes.values():
        node.node_ports.journal.follow = real  # type: ignore[method-assign]
    await until(lambda: all(each.amounts == [1] for each in followers))
    for each in followers:
        await each.stop()


async def test_a_question_that_waits_owes_nothing(cluster: MemoryCluster) -> None:
    """Its home is not looked up in the store."""
    follower = follow()
    await travel(10)
    assert cluster.nodes["node1"].hosting.parts[0].following.waiting == 1
    assert not cluster.client.locator._watched
    await follower.stop()


async def test_the_end_of_the_cluster_ends_followers(caplog: pytest.LogCaptureFixture) -> None:
    """No message is lost by it, so none is reported, and the end does not wait for their news."""
    async with MemoryCluster() as cluster:
        with cluster.in_use():
            follower, clicks = follow(), Collected(Clicks.ref("1").total.changes())
            await until(lambda: clicks.found == [0] and len(cluster.client.region_client.pending) == 2)
            assert not cluster.client.region_client.unfinished
    assert not [each for each in caplog.records if each.name == "sharding.region"]
    await asyncio.wait([follower.task, clicks.task], timeout=5)
    assert isinstance(follower.error, Unavailable)
    assert isinstance(clicks.error, Unavailable)


async def test_a_gateway_without_a_cluster_says_so() -> None:
    with use_gateway(LocalGateway()), pytest.raises(WrongContext, match="can be followed in a cluster"):
        await anext(Auction.ref("1").events())


@pytest.mark.parametrize(
    "raw", [b"", b"x" * 100, encode([-2, 0, 0, 0.0]), encode([0, 0, 5, -1.0]), encode("no")]
)
async def test_a_question_of_nonsense_is_refused(cluster: MemoryCluster, raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_question(raw)
    with pytest.raises(InvalidCall, match="no question"):
        await cluster.client.ask(Call("following.Auction", "1", "?events", raw))


async def test_the_home_itself_refuses_events_of_other_types(cluster: MemoryCluster) -> None:
    raw = encode(Question(0, 0, 5))
    with pytest.raises(InvalidCall, match="an in-memory entity"):
        await cluster.client.ask(Call("following.Clicks", "1", "?events", raw))
    answer = await cluster.client.ask(Call("following.Auction", "1", "?events", raw))
    assert decode_news(answer).events == []


async def test_a_large_answer_comes_in_parts(cluster: MemoryCluster) -> None:
    node = cluster.nodes["node1"]
    node.hosting.parts[0].following._max_bytes = 300
    await bid("1", *range(20))
    follower = follow()
    await until(lambda: follower.amounts == list(range(20)))
    await follower.stop()


async def test_a_change_of_an_in_memory_entity_has_a_number_that_a_message_carries() -> None:
    """After a failover too: the epoch is a large number then."""
    late = lowest_epoch(next_term(7, same_lineage=False, now_seconds=4_102_444_800, timeline=15))
    epochs = [1, 2, 2**20, late, late + 1, late + 2**20]
    numbers = [following.number_of_change(epoch, count) for epoch in epochs for count in (1, 2, 2**32 - 1)]
    assert len({*numbers}) == len(numbers)
    for number in numbers:
        assert decode_news(encode(News(number))).last == number
