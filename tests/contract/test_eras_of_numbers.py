"""Numbers of shards after a failover of DATABASE that has lost steps of a resize. Further journals
may follow the lost ones: the numbers of the new era count there, whatever their own revision was.
"""

from datetime import UTC, datetime

import msgspec
import pytest

from sharding_app.ports.journal import Mark, ShardsFenced
from sharding_app.protocol.coordinator.terms import begins_era, era_of
from sharding_app.protocol.ids import Term, shard_of
from sharding_app.protocol.numbering import Numbering
from tests.contract.factories import World
from tests.support.given import CART, event_row, member, message, with_type

pytestmark = pytest.mark.asyncio

SIX = msgspec.structs.replace(CART, number_of_shards=6, extractor="hash:crc32-1")
TYPE, NUMBER = "tests.Taken", 7
IDS = [f"entity-{number}" for number in range(40)]
SOON = datetime(2001, 1, 1, tzinfo=UTC)
LOST = [Numbering(6, 12, 2, 3), Numbering(12, 0, 0, 8), Numbering(6, 2, 1, 2), Numbering(2, 0, 0, 4)]
FOUND = Numbering(6, revision=1 << 40)


async def revisions(world: World) -> list[int]:
    return [each.numbering.revision for each in await world.store().types()]


async def election(world: World) -> Term:
    session = world.session("coordinator")
    await session.open()
    term = await session.elect("coordinator")
    assert term is not None
    await session.close()
    return term


async def elected_after_a_promotion(world: World) -> Term:
    """Return the term of the first coordinator on a server that was promoted."""
    await world.store().join(member("coordinator"), (1, 2))
    assert await election(world) == 1
    await world.of_other_lineage()
    term = await election(world)
    assert begins_era(term)
    return term


async def test_numbers_of_a_new_era_have_higher_revisions_than_all_of_former_ones(world: World) -> None:
    store = world.store()
    await with_type(store, SIX)
    await with_type(store, msgspec.structs.replace(SIX, name="tests.Other"))
    assert await store.journal_place("journal_b", "there") == ("journal_b", "there")
    assert await store.resize(SIX.name, 6, 12)
    assert sorted(await revisions(world)) == [0, 1]
    term = await elected_after_a_promotion(world)
    assert await revisions(world) == [term, term]
    assert await election(world) == term + 1
    assert await revisions(world) == [term, term], "the era goes on"
    numbers = {each.name: each.numbering for each in await store.types()}
    assert numbers[SIX.name] == Numbering(6, 12, 0, term), "only the revision is another one"
    assert (await store.coordinator()).numbers == 2 * term


async def test_a_second_failover_begins_another_era_whatever_the_clock_is(world: World) -> None:
    """The second one comes within the same second, or its clock is behind that of the first one."""
    store = world.store()
    await with_type(store, SIX)
    await store.journal_place("journal_b", "there")
    first = await elected_after_a_promotion(world)
    later = await election(world)
    await world.of_other_lineage()
    second = await election(world)
    assert begins_era(second)
    assert era_of(second) > era_of(later) == era_of(first)
    assert await revisions(world) == [second]


async def test_they_stay_where_there_is_no_further_journal(world: World) -> None:
    """Nothing in DATABASE itself follows numbers that it has lost."""
    store = world.store()
    await with_type(store, SIX)
    await elected_after_a_promotion(world)
    assert await revisions(world) == [0]


@pytest.mark.parametrize("lost", LOST)
async def test_a_journal_goes_back_to_numbers_of_a_new_era(world: World, lost: Numbering) -> None:
    """Rows have the shards of before the lost steps again, and the homes of theirs are fenced."""
    journal = world.journal()
    six = Numbering(6)
    await journal.take(TYPE, NUMBER, six, dict.fromkeys(range(6), 5), "n-one")
    await journal.remember([Mark(NUMBER, shard_of(each, 6), 5, each, True) for each in IDS])
    await journal.stage(
        [message(NUMBER, f"of {each}", each, shard=shard_of(each, 6), epoch=5, due=SOON) for each in IDS]
    )
    shards = {lost.shard_of(each): 9 for each in IDS}
    assert (await journal.take(TYPE, NUMBER, lost, shards, "n-one")).shards == shards.keys()
    assert not (await journal.take(TYPE, NUMBER, six, {0: 99}, "n-two")).shards
    back = dict.fromkeys(range(6), 1 << 40)
    assert (await journal.take(TYPE, NUMBER, FOUND, back, "n-two")).shards == back.keys()
    there = {each: shard_of(each, 6) for each in IDS}
    marks = await journal.recall(NUMBER, range(40))
    assert {entity: shard for shard, entities in marks.items() for entity in entities} == there
    page = await journal.due([(NUMBER, shard) for shard in range(40)], 0.0, 1000)
    assert {each.entity: each.shard for each in page.messages} == there
    for entity in IDS:
        with pytest.raises(ShardsFenced):
            await journal.append([event_row(NUMBER, entity, 1, shard=lost.shard_of(entity), epoch=9)])
    assert not (await journal.take(TYPE, NUMBER, lost, shards, "n-one")).shards
