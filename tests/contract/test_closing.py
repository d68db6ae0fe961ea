"""What every cluster store does with shards that are closed for a move to another journal."""

import msgspec
import pytest

from sharding_app.ports.store import ClusterStore, StaleTerm
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ClosedShard, HomeChange, ShardRow
from tests.contract.factories import World
from tests.support.given import CART, homed

pytestmark = pytest.mark.asyncio

SIX = msgspec.structs.replace(CART, number_of_shards=6, extractor="hash:crc32-1")
NAME = SIX.name
LONG = 600.0
OVER = -1.0
"""Seconds of a closing that lapses as soon as it is made."""


async def moving(world: World, *shards: int) -> tuple[ClusterStore, int]:
    """Give shards homes at the epoch 4, and note that they are being copied."""
    number = await homed(world, dict.fromkeys(shards, 4), config=SIX)
    store = world.store()
    assert await store.begin_move(number, shards, "two") == sorted(shards)
    return store, number


async def row_of(store: ClusterStore, shard: int) -> ShardRow:
    (row,) = [each for each in await store.shards() if each.shard == shard]
    return row


async def closings(store: ClusterStore) -> int:
    """Return how often shards were closed or opened, as all readings agree."""
    (config,) = await store.types()
    coordinator, news = await store.coordinator(), await store.news("coordinator")
    assert coordinator.numbers == news.numbers == config.closings + config.revision
    return config.closings


def home(shard: int, expected: int, epoch: int, who: str = "other") -> HomeChange:
    return HomeChange(NAME, shard, expected, epoch, who, "home")


async def test_a_move_begins_once_and_for_shards_that_lie_elsewhere(world: World) -> None:
    store, number = await moving(world, 0, 1)
    assert await store.begin_move(number, [1, 0], "two") == []
    assert await store.begin_move(number, [5], "two") == [], "it has no row"
    assert await store.begin_move(number + 1, [0], "two") == []
    await store.decide(1, [home(2, 0, 4)])
    assert await store.begin_move(number, [2], "") == [], "it lies there"
    assert await closings(store) == 0


async def test_shards_are_closed_renewed_and_opened(world: World) -> None:
    store, number = await moving(world, 0, 1, 2)
    assert await store.closed_shards() == []
    assert await store.close_shards(number, [2, 1, 4], LONG) == [1, 2]
    assert await closings(store) == 1
    assert await store.closed_shards() == [ClosedShard(NAME, 1, "two"), ClosedShard(NAME, 2, "two")]
    assert await store.close_shards(number, [1], LONG) == [], "it is closed"
    assert await store.renew_closings(number, [0, 1, 2], LONG) == [1, 2]
    assert await closings(store) == 1
    assert await store.open_shards(number, [0, 1]) == [1]
    assert await closings(store) == 2
    assert await store.open_shards(number, [0, 1]) == []
    assert await store.renew_closings(number, [1, 2], LONG) == [2]
    assert await store.close_shards(number, [1], LONG) == [1], "it is still being copied"
    assert await closings(store) == 3
    assert await store.close_shards(number + 1, [0], LONG) == []


async def test_a_closed_shard_gets_no_home(world: World) -> None:
    """It is at home, is handed off, and has none afterwards; then it stays as it is."""
    store, number = await moving(world, 0, 1)
    await store.close_shards(number, [0], LONG)
    marked = HomeChange(NAME, 0, 4, 4, "home", "handoff")
    assert await store.decide(1, [marked]) == [ShardRow(NAME, 0, 4, "home", "handoff")]
    stopped = ShardRow(NAME, 0, 5, None, "stopped")
    both = await store.decide(1, [home(0, 4, 5), home(1, 4, 5)])
    assert sorted(both, key=lambda row: row.shard) == [stopped, ShardRow(NAME, 1, 5, "other", "home")]
    assert await store.decide(1, [home(0, 5, 6)]) == [stopped]
    assert await row_of(store, 0) == stopped
    await store.open_shards(number, [0])
    assert await store.decide(1, [home(0, 5, 6)]) == [ShardRow(NAME, 0, 6, "other", "home")]


async def test_a_closed_shard_stops_as_any_other(world: World) -> None:
    store, number = await moving(world, 0)
    await store.close_shards(number, [0], LONG)
    stopped = [HomeChange(NAME, 0, 4, 5, None, "stopped")]
    assert await store.decide(1, stopped) == [ShardRow(NAME, 0, 5, None, "stopped")]


async def test_a_closing_that_is_not_renewed_in_time_lapses(world: World) -> None:
    store, number = await moving(world, 0, 1, 2, 3)
    await store.close_shards(number, [0, 1], OVER)
    await store.close_shards(number, [2], LONG)
    assert await store.renew_closings(number, [1], LONG) == [1], "nothing has opened it yet"
    with pytest.raises(StaleTerm):
        await store.open_lapsed(2)
    before = await closings(store)
    assert await store.open_lapsed(1) == [ClosedShard(NAME, 0, "two")]
    assert await closings(store) == before + 1
    assert await store.open_lapsed(1) == []
    assert await closings(store) == before + 1
    assert [each.shard for each in await store.closed_shards()] == [1, 2]
    assert await store.renew_closings(number, [0, 1, 2], LONG) == [1, 2]


async def test_a_type_is_resized_or_its_shards_move(world: World) -> None:
    store, number = await moving(world, 0)
    assert not await store.resize(NAME, 6, 12)
    await store.close_shards(number, [0], LONG)
    assert not await store.resize(NAME, 6, 12)


async def test_no_shard_of_a_type_begins_to_move_during_a_resize(world: World) -> None:
    number = await homed(world, {0: 4}, config=SIX)
    store = world.store()
    assert await store.resize(NAME, 6, 12)
    assert await store.begin_move(number, [0], "two") == []
    stopped = [HomeChange(NAME, 0, 4, 5, None, "stopped")]
    await store.decide(1, stopped)
    assert await store.renumber(1, NAME, Numbering(6, 12, 0, 1), 6, 1) is not None
    assert await store.begin_move(number, [0], "two") == [0]
