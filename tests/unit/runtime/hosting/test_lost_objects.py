"""What a home says of commands whose object was thrown away, or whose shard has moved on: they go
to the next home.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sharding_app import EventSourced, applies, command, query
from sharding_app.ports.journal import Outcome
from sharding_app.protocol.messages import Answer, AnyMessage, HandBack
from sharding_app.protocol.records import ShardRow
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Added
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


class Shelf(EventSourced, name="entities.Shelf"):
    books: int = 0

    @command
    def put(self) -> int:
        self.persist(Added("book", 1))
        return self.books

    @query
    def count(self) -> int:
        return self.books

    @query
    async def count_slowly(self) -> int:
        await asyncio.sleep(1.0)
        return self.books

    @query(fenced=True)
    def count_surely(self) -> int:
        return self.books

    @applies(Added)
    def on_added(self, happened: Added) -> None:
        self.books += happened.quantity


class Home:
    """The home of the one shelf. What it says is noted, and heard by no caller."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.host: TypeHost = cluster.nodes["node1"].hosts["entities.Shelf"]
        (self.shard,) = self.host.shards.values()
        self.said: list[type[AnyMessage]] = []
        self.asked: list[asyncio.Future[int]] = []
        self.host.send = lambda target, message: self.said.append(type(message))

    def ask(self, name: str, command_id: str = "") -> None:
        ref = Shelf.ref("a", command_id=command_id) if command_id else Shelf.ref("a")
        self.asked.append(asyncio.ensure_future(getattr(ref, name)()))

    def loses_its_shard(self) -> None:
        self.host.shard_life.drop(self.shard.number)


@pytest_asyncio.fixture
async def home() -> AsyncIterator[Home]:
    async with MemoryCluster([Shelf], nodes=1) as cluster:
        with cluster.in_use():
            assert await Shelf.ref("a").put() == 1
            made = Home(cluster)
            yield made
            for each in made.asked:
                each.cancel()


async def test_an_async_query_of_an_object_that_was_thrown_away_is_not_answered(home: Home) -> None:
    home.ask("count_slowly")
    await travel(0.5)
    home.loses_its_shard()
    await until(lambda: home.said)
    assert home.said == [HandBack]


@pytest.mark.parametrize(("name", "said"), [("count", Answer), ("count_surely", HandBack)])
async def test_a_fenced_query_looks_at_its_shards_row(home: Home, name: str, said: type[AnyMessage]) -> None:
    """The shard has moved on while the lease of its former home is valid: a plain query answers
    from what was.
    """
    shard, rows = home.shard, home.cluster.server.cluster.shards
    rows[shard.type, shard.number] = ShardRow(
        shard.type, shard.number, shard.epoch + 1, "n-elsewhere", "home"
    )
    home.ask(name)
    await until(lambda: home.said)
    assert home.said == [said]


async def test_a_retry_whose_object_is_thrown_away_while_the_journal_is_asked_does_not_begin(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[asyncio.Future[Outcome | None]] = []

    async def outcome(*_: object) -> Outcome | None:
        asked.append(asyncio.get_running_loop().create_future())
        return await asked[-1]

    monkeypatch.setattr(home.host.journal, "outcome", outcome)
    home.cluster.forget()
    home.ask("put", command_id="x")
    await until(lambda: asked)
    home.loses_its_shard()
    asked[0].set_result(None)
    await until(lambda: home.said)
    assert home.said == [HandBack]
    assert len(home.cluster.events(Shelf, "a")) == 1
