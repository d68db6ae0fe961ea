"""A session that is none of ours holds the row of a shard: what waits for it in vain does nothing,
and the rest goes on.
"""

from collections.abc import Awaitable, Callable

import pytest

from sharding_app.ports.journal import (
    Erasure,
    Former,
    Journal,
    JournalUnavailable,
    Mark,
    RowRefused,
    ShardsFenced,
    ShardsLocked,
    Snapshot,
)
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.records import HomeChange
from tests.contract.factories import World
from tests.support.given import CART, event_row, homed

pytestmark = pytest.mark.asyncio

HELD, FREE = 0, 1
Write = Callable[[Journal, int], Awaitable[object]]
WRITES: dict[str, Write] = {
    "a mark": lambda journal, type_id: journal.remember([Mark(type_id, HELD, 1, "a", runs=True)]),
    "the end of a mark": lambda journal, type_id: journal.remember([Mark(type_id, HELD, 1, "a", runs=False)]),
    "a snapshot": lambda journal, type_id: journal.save_snapshots(
        [Snapshot(type_id, "a", 1, HELD, 1, b"{}")]
    ),
    "a former state": lambda journal, type_id: journal.forget_states(
        type_id, [Former("a", HELD, 1, 1, 2)], 3600
    ),
    "an erasure": lambda journal, type_id: journal.erase(
        type_id, HELD, 1, "a", at_most=10, before=Erasure(), by="operator"
    ),
}


async def test_an_append_names_the_shards_that_are_locked_and_writes_nothing(world: World) -> None:
    type_id = await homed(world, {HELD: 1, FREE: 1})
    journal = world.journal()
    await journal.append([event_row(type_id, "a", 1)])
    both = [event_row(type_id, "a", 2), event_row(type_id, "b", 1, shard=FREE)]
    async with world.holding(type_id, HELD):
        for rows in (both, both[:1]):
            with pytest.raises(ShardsLocked) as locked:
                await journal.append(rows)
            assert [*locked.value.holders] == [(type_id, HELD)]
            assert locked.value.answered
        assert not await journal.settle(both)
        assert [*await journal.locked([(type_id, HELD), (type_id, FREE)])] == [(type_id, HELD)]
        await journal.append(both[1:])
        with pytest.raises(RowRefused):
            await journal.append([event_row(type_id, "a", 1)])  # a number that is taken is found first
        with pytest.raises(ShardsFenced):
            await journal.append([event_row(type_id, "a", 2, epoch=7)])  # no row at that epoch to wait for
    await journal.append(both[:1])
    assert not await journal.locked([(type_id, HELD)])


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_what_is_fenced_waits_for_the_row_in_vain(world: World, write: Write) -> None:
    type_id = await homed(world, {HELD: 1, FREE: 1})
    journal = world.journal()
    await journal.append([event_row(type_id, "a", 1), event_row(type_id, "a", 2)])
    async with world.holding(type_id, HELD):
        with pytest.raises(JournalUnavailable, match="55P03"):
            await write(journal, type_id)
        assert len((await journal.read(type_id, ["a"]))["a"].events) == 2
        await journal.trim(type_id, "a", 1, 1, 0)
    await write(journal, type_id)


async def test_a_decision_about_a_locked_row_is_not_taken_and_neither_are_those_with_it(world: World) -> None:
    type_id = await homed(world, {HELD: 1, FREE: 1})
    store, term = world.store(), 1
    changes = [HomeChange(CART.name, shard, 1, 2, "next", "home") for shard in (HELD, FREE)]
    async with world.holding(type_id, HELD):
        with pytest.raises(StoreUnavailable, match="55P03") as refused:
            await store.decide(term, changes)
        assert refused.value.answered
        assert {row.epoch for row in await store.shards()} == {1}
        (row,) = await store.decide(term, changes[1:])
        assert row.epoch == 2
    rows = await store.decide(term, changes[:1])
    assert [row.epoch for row in rows] == [2]
