"""What every journal does that is not in the cluster's own database: its rows of shards, made by
their homes, are the fence.
"""

import asyncio
from datetime import UTC, datetime

import pytest

from sharding_app.ports.journal import Journal, JournalUnavailable, Mark, ShardsFenced
from sharding_app.protocol.ids import Epoch, ShardId, shard_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Lineage
from tests.contract.factories import World
from tests.support.given import event_row, message

pytestmark = pytest.mark.asyncio

TYPE, NUMBER = "tests.Taken", 7
SIX, TWELVE = Numbering(6), Numbering(12, revision=9)
IDS = [f"entity-{number}" for number in range(40)]
SOON = datetime(2001, 1, 1, tzinfo=UTC)


async def take(
    journal: Journal, shards: dict[ShardId, Epoch], home: str = "n-one", numbers: Numbering = SIX
) -> frozenset[ShardId]:
    return (await journal.take(TYPE, NUMBER, numbers, shards, home)).shards


async def test_a_home_writes_at_the_epoch_that_it_has_taken(world: World) -> None:
    journal = world.journal()
    with pytest.raises(ShardsFenced):
        await journal.append([event_row(NUMBER, "a", 1, shard=3, epoch=5)])
    assert await take(journal, {3: 5, 4: 5}) == {3, 4}
    await journal.append([event_row(NUMBER, "a", 1, shard=3, epoch=5)])
    assert await journal.is_home(NUMBER, 3, 5, "n-one")
    assert not await journal.is_home(NUMBER, 3, 5, "n-two")


async def test_a_later_epoch_fences_the_former_home(world: World) -> None:
    first, second = world.journal("one"), world.journal("two")
    await take(first, {3: 5})
    assert await take(second, {3: 6}, "n-two") == {3}
    with pytest.raises(ShardsFenced):
        await first.append([event_row(NUMBER, "a", 1, shard=3, epoch=5)])
    assert not await first.is_home(NUMBER, 3, 5, "n-one")


async def test_what_comes_late_changes_nothing(world: World) -> None:
    """A statement of a former home may execute long after its answer was given up."""
    first, second = world.journal("one"), world.journal("two")
    await take(second, {3: 6}, "n-two")
    assert await take(first, {3: 5, 4: 5}) == {4}
    assert await take(first, {3: 6}) == frozenset(), "the epoch is that of another home"
    assert await take(second, {3: 6}, "n-two") == {3}, "it may be repeated"


async def test_a_shard_is_taken_again_before_anything_else_is_written_in_a_lineage(world: World) -> None:
    journal = world.journal()
    await take(journal, {3: 5})
    journal.live_in(Lineage("another", 9))
    with pytest.raises(JournalUnavailable):
        await journal.append([event_row(NUMBER, "a", 1, shard=3, epoch=5)])
    with pytest.raises(JournalUnavailable):
        await take(journal, {3: 5})
    found = await journal.take(TYPE, NUMBER, SIX, {3: 5, 4: 6}, "n-one", first=True)
    assert found.shards == {3, 4}
    assert await world.journal("other").is_home(NUMBER, 4, 6, "n-one")


async def test_a_shard_that_has_moved_to_another_journal_is_not_taken(world: World) -> None:
    """The cluster's own database may have lost the move: the copy that was left is not used."""
    journal = world.journal()
    await take(journal, {3: 5, 4: 5})
    await world.leave(NUMBER, 3, "journal_b")
    found = await journal.take(TYPE, NUMBER, SIX, {3: 9, 4: 9}, "n-two")
    assert found.shards == {4}
    assert found.left == {3: "journal_b"}
    with pytest.raises(ShardsFenced):
        await journal.append([event_row(NUMBER, "a", 1, shard=3, epoch=9)])
    await world.leave(NUMBER, 3, "")
    found = await journal.take(TYPE, NUMBER, SIX, {3: 9}, "n-two")
    assert found.shards == {3}
    assert not found.left


@pytest.mark.parametrize("numbers", [TWELVE, Numbering(6, 12, 4, 3)])
async def test_after_a_resize_all_shards_of_one_that_has_moved_are_not_taken(
    world: World, numbers: Numbering
) -> None:
    journal = world.journal()
    await take(journal, {3: 5, 4: 5})
    await world.leave(NUMBER, 3, "journal_b")
    found = await journal.take(TYPE, NUMBER, numbers, {3: 9, 9: 9, 4: 9}, "n-two")
    assert found.shards == {4}
    assert found.left == {3: "journal_b", 9: "journal_b"}


async def test_after_a_resize_shards_of_a_former_number_are_where_their_entities_are(world: World) -> None:
    """Some came back to this journal, and some left it, while there were fewer shards."""
    journal = world.journal()
    await take(journal, dict.fromkeys(range(6), 5))
    for shard in (0, 3):
        await world.leave(NUMBER, shard, "journal_b")
    assert await take(journal, {1: 9}, numbers=Numbering(3, revision=2)) == {1}
    await world.leave(NUMBER, 0, "")
    await world.leave(NUMBER, 2, "journal_b")
    later = await journal.take(TYPE, NUMBER, Numbering(6, revision=4), dict.fromkeys(range(6), 11), "n-two")
    assert later.shards == {0, 1, 3, 4}
    assert later.left == {2: "journal_b", 5: "journal_b"}


async def test_a_take_waits_for_an_append_under_way(world: World) -> None:
    journal = world.journal()
    await take(journal, {3: 5})
    async with world.holding(NUMBER, 3):
        with pytest.raises(JournalUnavailable):
            await take(world.journal("two"), {3: 6}, "n-two")
    assert await take(journal, {3: 5}) == {3}


async def test_it_says_whether_there_are_messages(world: World) -> None:
    journal = world.journal()
    assert not (await journal.take(TYPE, NUMBER, SIX, {3: 5}, "n-one")).uses_messages
    await journal.stage([message(NUMBER, "m", "a", shard=3, epoch=5)])
    assert (await journal.take(TYPE, NUMBER, SIX, {3: 5}, "n-one")).uses_messages


@pytest.mark.parametrize("numbers", [TWELVE, Numbering(3, revision=9), Numbering(6, 18, 2, 3)])
async def test_after_a_resize_the_first_take_gives_rows_their_new_shards(
    world: World, numbers: Numbering
) -> None:
    journal = world.journal()
    await take(journal, dict.fromkeys(range(6), 5))
    await journal.remember([Mark(NUMBER, shard_of(each, 6), 5, each, True) for each in IDS])
    await journal.stage(
        [message(NUMBER, f"of {each}", each, shard=shard_of(each, 6), epoch=5, due=SOON) for each in IDS]
    )
    wanted = numbers.shard_of(IDS[0])
    assert await take(world.journal("two"), {wanted: 9}, "n-two", numbers) == {wanted}
    there = {each: numbers.shard_of(each) for each in IDS}
    marks = await journal.recall(NUMBER, range(40))
    assert {entity: shard for shard, entities in marks.items() for entity in entities} == there
    page = await journal.due([(NUMBER, shard) for shard in range(40)], 0.0, 1000)
    assert {each.entity: each.shard for each in page.messages} == there


async def test_after_a_resize_all_former_homes_of_the_group_are_fenced(world: World) -> None:
    """An entity whose new shard is taken first may still be written by the home of its old one."""
    former, new = world.journal("one"), world.journal("two")
    entity = next(each for each in IDS if shard_of(each, 12) >= 6)
    old = shard_of(entity, 6)
    await take(former, {old: 5})
    assert await take(new, {old + 6: 9}, "n-two", TWELVE) == {old + 6}
    with pytest.raises(ShardsFenced):
        await former.append([event_row(NUMBER, entity, 1, shard=old, epoch=5)])
    assert await take(former, {old: 5}) == frozenset(), "its numbers are of before the resize"
    assert await take(former, {old: 5}, numbers=TWELVE) == frozenset()
    assert await take(former, {old: 9}, numbers=TWELVE) == {old}


async def test_groups_that_have_not_changed_live_on(world: World) -> None:
    journal = world.journal()
    await take(journal, {0: 5, 1: 5, 4: 5})
    half = Numbering(6, 12, 2, 1)
    assert await take(world.journal("two"), {7: 9}, "n-two", half) == {7}
    await journal.append([event_row(NUMBER, "a", 1, shard=4, epoch=5)])
    for shard in (0, 1):
        with pytest.raises(ShardsFenced):
            await journal.append([event_row(NUMBER, "a", 2, shard=shard, epoch=5)])


async def test_takes_at_once_have_one_end(world: World) -> None:
    journals = [world.journal(f"n{number}", lock_seconds=60) for number in range(4)]
    shards = dict.fromkeys(range(6), 5)
    found = await asyncio.gather(*(take(each, shards, f"n-{number}") for number, each in enumerate(journals)))
    assert sorted(shard for each in found for shard in each) == list(range(6))
