"""A message to an entity that stores nothing is not handled again after its node died, unless its
caller asked for that.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app import Entity, EventSourced, Rejected, Unavailable, applies, command, event, query
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio

HANDLED: Counter[str] = Counter()


@event
class Posted:
    text: str


class Mailer(Entity, name="protocol.Mailer"):
    @command
    async def mail(self, text: str) -> str:
        HANDLED[text] += 1
        await asyncio.sleep(0.3)
        return text

    @query
    async def look(self, text: str) -> str:
        HANDLED[text] += 1
        await asyncio.sleep(0.3)
        return text

    async def receive(self, message: object) -> object:
        raise NotImplementedError


class Letters(EventSourced, name="protocol.Letters"):
    sent: int = 0

    @command
    async def post(self, text: str) -> int:
        HANDLED[text] += 1
        await asyncio.sleep(0.3)
        self.persist(Posted(text))
        return self.sent

    @applies(Posted)
    def on_posted(self, happened: Posted) -> None:
        self.sent += 1


async def killed_while_it_handles(
    cluster: MemoryCluster, kind: type[Mailer] | type[Letters], text: str
) -> None:
    await until(lambda: HANDLED[text] > 0)
    await cluster.kill_node(cluster.home_of(kind, "bob"))


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    HANDLED.clear()
    async with MemoryCluster([Mailer, Letters], nodes=2) as made:
        with made.in_use():
            yield made


async def test_an_ask_of_an_entity_that_stores_nothing_is_told_that_its_fate_is_unknown(
    cluster: MemoryCluster,
) -> None:
    answer = asyncio.ensure_future(Mailer.ref("bob", timeout=20).mail("ask"))
    await killed_while_it_handles(cluster, Mailer, "ask")
    with pytest.raises(Unavailable) as told:
        await answer
    assert told.value.code == "fate_unknown"
    assert await Mailer.ref("bob", timeout=20).mail("later") == "later"
    assert HANDLED["ask"] == 1


async def test_a_tell_to_an_entity_that_stores_nothing_is_dropped_and_counted(cluster: MemoryCluster) -> None:
    Mailer.ref("bob").mail.tell("tell")
    await killed_while_it_handles(cluster, Mailer, "tell")
    assert await Mailer.ref("bob", timeout=20).look("later") == "later"
    assert cluster.client.region_client.drops["protocol.Mailer", "fate_unknown"] == 1
    assert HANDLED["tell"] == 1


async def test_a_query_and_a_command_whose_caller_gave_an_id_are_sent_again(cluster: MemoryCluster) -> None:
    query = asyncio.ensure_future(Mailer.ref("bob", timeout=20).look("query"))
    await killed_while_it_handles(cluster, Mailer, "query")
    assert await query == "query"
    await cluster.add_node()
    asked_for = asyncio.ensure_future(Mailer.ref("bob", timeout=20, command_id="again").mail("id"))
    await killed_while_it_handles(cluster, Mailer, "id")
    assert await asked_for == "id"
    assert HANDLED == {"query": 2, "id": 2}


async def test_a_command_of_an_entity_with_a_journal_is_sent_again_and_takes_effect_once(
    cluster: MemoryCluster,
) -> None:
    answer = asyncio.ensure_future(Letters.ref("bob", timeout=20).post("letter"))
    await asyncio.sleep(0)
    Letters.ref("bob").post.tell("second")
    await killed_while_it_handles(cluster, Letters, "letter")
    assert await answer == 1
    assert await Letters.ref("bob", timeout=20).post("third") == 3
    assert cluster.events(Letters, "bob") == [Posted("letter"), Posted("second"), Posted("third")]


async def test_what_waited_for_room_in_the_link_was_never_sent(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await Mailer.ref("bob").look("warm") == "warm"
    home = cluster.home_of(Mailer, "bob")
    full, outbox = cluster.nodes[home].incarnation, cluster.client.outbox
    put = outbox._put
    monkeypatch.setattr(outbox, "_put", lambda pending, target: target != full and put(pending, target))
    answer = asyncio.ensure_future(Mailer.ref("bob", timeout=20).mail("waits"))
    await until(lambda: bool(outbox.waiting))
    await cluster.kill_node(home)
    assert await answer == "waits"
    assert HANDLED["waits"] == 1


async def test_what_a_shard_was_doing_when_it_was_thrown_away_is_not_done_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover that lost its row: the node that has it finds, when it is back, that it
    is not its home. The call that comes back from it does not go there once more: its fate would be
    unknown too.
    """
    answer = asyncio.ensure_future(Mailer.ref("bob", timeout=20).mail("began"))
    behind = asyncio.ensure_future(Mailer.ref("bob", timeout=20).mail("waits"))
    await until(lambda: HANDLED["began"] > 0)
    home = cluster.nodes[cluster.home_of(Mailer, "bob")]
    outbox = cluster.client.outbox
    put = outbox._put
    monkeypatch.setattr(
        outbox, "_put", lambda pending, target: target != home.incarnation and put(pending, target)
    )
    home.hosting.keep([], home.hosting.epochs())
    handlers = home.hosts["protocol.Mailer"].execution.waiting
    await until(lambda: not handlers and bool(outbox.waiting))
    await cluster.kill_node(home.config.name)
    with pytest.raises(Unavailable) as told:
        await answer
    assert told.value.code == "fate_unknown"
    assert await behind == "waits"
    assert HANDLED == {"began": 1, "waits": 1}


async def test_an_orderly_leave_loses_nothing(cluster: MemoryCluster) -> None:
    """The coordinator leaves too, and the next one knows of no process that only asks."""
    for text in ("one", "two", "three"):
        assert await Mailer.ref("bob").mail(text) == text
        await cluster.add_node()
        await cluster.stop_node(cluster.home_of(Mailer, "bob"))
    assert await Mailer.ref("bob").mail("four") == "four"
    assert HANDLED == {"one": 1, "two": 1, "three": 1, "four": 1}


async def test_a_tell_that_its_node_refuses_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No caller learns of it, so the log has to say it."""
    HANDLED.clear()
    async with MemoryCluster([Mailer], config=NodeConfig(mailbox_size=1)) as cluster:
        with cluster.in_use():
            Mailer.ref("bob").mail.tell("runs")
            await until(lambda: HANDLED["runs"] == 1)
            for text in ("waits", "is refused"):
                Mailer.ref("bob").mail.tell(text)
            drops = cluster.client.region_client.drops
            await until(lambda: bool(drops))
            assert drops == {("protocol.Mailer", "buffer_full"): 1}
            assert "was not delivered: buffer_full" in caplog.text
            await until(lambda: HANDLED == {"runs": 1, "waits": 1})


async def test_a_tell_that_was_handled_and_rejected_is_none_that_was_not_delivered() -> None:
    class Choosy(Entity, name="protocol.Choosy"):
        @command
        def take(self, text: str) -> None:
            raise Rejected(text, code="not_now")

    async with MemoryCluster([Choosy]) as cluster:
        with cluster.in_use():
            Choosy.ref("bob").take.tell("no")
            with pytest.raises(Rejected):
                await Choosy.ref("bob").take("no")
            assert not cluster.client.region_client.drops
