"""Messages from outside of a transaction that knew the numbers of shards of before a resize.

Each stands in a shard in which its target does not live now. The home of that shard delivers it all
the same, and an erasure and an archive of the target find it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio

from sharding_app import EventSourced, ShardingSettings, applies, command, event
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.entities.registry import registry
from sharding_app.ports.journal import Archival, Erasure
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

NAME = "late.Parcel"
FORMER = 2


@event
class Moved:
    to: str


class Parcel(EventSourced, name=NAME):
    settings = ShardingSettings(number_of_shards=FORMER)

    def __init__(self) -> None:
        self.places: list[str] = []

    @command
    def move(self, to: str) -> None:
        self.persist(Moved(to))

    @applies(Moved)
    def on_moved(self, happened: Moved) -> None:
        self.places.append(happened.to)


async def resize(cluster: MemoryCluster, wanted: int) -> None:
    known = cluster.server.cluster.types[NAME].number_of_shards
    assert await MemoryStore(cluster.server, "p-operator").resize(NAME, known, wanted)
    await until(lambda: cluster.server.cluster.types[NAME].numbering.shards == wanted, seconds=60)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([registry.get(NAME)], nodes=2) as made:
        with made.in_use():
            yield made


def places(cluster: MemoryCluster, entity: str) -> list[str]:
    return [each.to for each in cluster.events(Parcel, entity)]


def moved(before: int, after: int) -> str:
    """Return an id with another shard after the resize than before."""
    return next(each for each in map(str, range(99)) if shard_of(each, before) != shard_of(each, after))


def home(cluster: MemoryCluster, entity: str) -> tuple[TypeHost, int]:
    """Return the home of the entity's present shard, and that shard."""
    shard = cluster.server.cluster.types[NAME].numbering.shard_of(entity)
    hosts = [each.hosts[NAME] for each in cluster.nodes.values()]
    return next(each for each in hosts if shard in each.shards), shard


def know(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """Let those outside go on to know that number of shards."""
    number = cluster.server.cluster.type_ids[NAME]
    monkeypatch.setattr(cluster.outside, "_place", lambda name, entity: (number, shard_of(entity, shards)))


async def store_by_former_number(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, entity: str
) -> None:
    """Store a timer of an hour from now. Its shard is another one than the entity's."""
    with monkeypatch.context() as patched:
        know(cluster, patched, FORMER)
        await Parcel.ref(entity).move.later(timedelta(hours=1), "shop")
    ((row, *_),) = cluster.server.messages.rows.values()
    assert row.shard != home(cluster, entity)[1]


@pytest.mark.parametrize("wanted", [4, 1])
async def test_they_are_delivered_once(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    """The news of them goes to the home of the present shard, which finds nothing: the home of the
    former shard, or of the one that took its place, finds them overdue.
    """
    entity = moved(FORMER, wanted)
    await Parcel.ref(entity).move("port")
    await resize(cluster, wanted)
    with monkeypatch.context() as patched:
        know(cluster, patched, FORMER)
        await Parcel.ref(entity).move.durably("ship")
        await Parcel.ref(entity).move.later(timedelta(seconds=90), "shop")
    await until(lambda: places(cluster, entity) == ["port", "ship"], seconds=40)
    await until(lambda: places(cluster, entity) == ["port", "ship", "shop"], seconds=60)
    assert not cluster.server.messages.rows
    await travel(60)
    assert len(places(cluster, entity)) == 3


async def test_an_erasure_takes_them_along(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    entity = moved(FORMER, 4)
    await Parcel.ref(entity).move("port")
    await resize(cluster, 4)
    await store_by_former_number(cluster, monkeypatch, entity)
    host, shard = home(cluster, entity)
    erased = await host.erasing.erase(shard, entity, "an operator")
    assert erased == Erasure(events=1, messages=1)
    assert not cluster.server.messages.rows


async def test_an_archive_leaves_their_entity(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity = moved(FORMER, 4)
    await Parcel.ref(entity).move("port")
    await resize(cluster, 4)
    await store_by_former_number(cluster, monkeypatch, entity)
    host, shard = home(cluster, entity)
    mark = cluster.server.journal.mark(cluster.server.cluster.type_ids[NAME], shard, entity)
    assert await host.erasing.archive(shard, entity, mark) == Archival(left="messages")
    assert places(cluster, entity) == ["port"]
