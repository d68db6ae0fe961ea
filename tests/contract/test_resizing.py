"""What every cluster store does with numbers of shards that change, and with the rows of the
entities.
"""

from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import msgspec
import pytest

from sharding_app.ports.deliveries import MessageChanges, Taking
from sharding_app.ports.journal import Erasure, Mark, ShardsFenced
from sharding_app.ports.store import ClusterStore, StaleTerm
from sharding_app.protocol.ids import Term
from sharding_app.protocol.journals import journal_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import HomeChange, ShardRow
from tests.contract.factories import World
from tests.support.given import CART, elected, event_row, homed, message, with_type

pytestmark = pytest.mark.asyncio

SIX = msgspec.structs.replace(CART, number_of_shards=6, extractor="hash:crc32-1")
IDS = [f"entity-{number}" for number in range(40)] + ["größe", "東京", "x" * 512]
SOON = datetime(2001, 1, 1, tzinfo=UTC)


def shard_of(entity: str, shards: int) -> int:
    return crc32(entity.encode()) % shards


async def numbering(store: ClusterStore) -> Numbering:
    (found,) = await store.types()
    return found.numbering


async def stopped(world: World, term: Term) -> None:
    """Let all shards stop that have a home."""
    store = world.store()
    homes = [row for row in await store.shards() if row.home is not None]
    await store.decide(
        term, [HomeChange(SIX.name, row.shard, row.epoch, row.epoch + 1, None, "stopped") for row in homes]
    )


async def stored(world: World, *shards: int) -> int:
    """Have entities of these shards, which are at home, remembered; and a message sent by each."""
    number = await homed(world, dict.fromkeys(shards, 4), config=SIX)
    journal = world.journal()
    ours = [each for each in IDS if shard_of(each, 6) in shards]
    await journal.remember([Mark(number, shard_of(each, 6), 4, each, True) for each in ours])
    await journal.stage(
        [message(number, f"of {each}", each, shard=shard_of(each, 6), epoch=4, due=SOON) for each in ours], []
    )
    return number


async def places(world: World, number: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the shards in which each entity is remembered, and has its message."""
    journal = world.journal()
    marks = await journal.recall(number, range(40))
    page = await journal.due([(number, shard) for shard in range(40)], 0.0, 1000)
    return (
        {entity: shard for shard, entities in marks.items() for entity in entities},
        {each.entity: each.shard for each in page.messages},
    )


@pytest.mark.parametrize("wanted", [18, 2])
async def test_a_step_gives_rows_and_shards_of_its_groups_their_new_numbers(
    world: World, wanted: int
) -> None:
    number = await stored(world, *range(6))
    store, term = world.store(), 1
    assert await store.resize(SIX.name, 6, wanted)
    await stopped(world, term)
    before = await numbering(store)
    assert before == Numbering(6, wanted, 0, 1)
    found = await store.renumber(term, SIX.name, before, 1, 9)
    assert found is not None
    after, rows = found
    assert after == await numbering(store) == before.after(1)
    assert rows == [ShardRow(SIX.name, shard, 9, None, "stopped") for shard in before.later(1)]
    there = {each: after.shard_of(each) for each in IDS}
    assert await places(world, number) == (there, there)
    rows = await store.shards()
    assert sorted(row.shard for row in rows) == [shard for shard in range(18) if after.has(shard)]


@pytest.mark.parametrize("wanted", [12, 3, 1])
async def test_the_last_step_puts_the_wanted_number_in_force(world: World, wanted: int) -> None:
    number = await stored(world, *range(6))
    store = world.store()
    await store.resize(SIX.name, 6, wanted)
    await stopped(world, 1)
    before = await numbering(store)
    found = await store.renumber(1, SIX.name, before, before.groups, 1)
    assert found is not None
    assert found[0] == Numbering(wanted, 0, 0, 2) == await numbering(store)
    there = {each: shard_of(each, wanted) for each in IDS}
    assert await places(world, number) == (there, there)
    assert [row.shard for row in await store.shards()] == list(range(wanted))
    homes = await store.homes(SIX.name, [0])
    assert [row.numbering for row in homes] == [found[0]]


async def test_a_frozen_home_writes_nothing_after_a_step(world: World) -> None:
    """Whatever epoch it had: each shard of the group gets one that none of them has had."""
    number = await homed(world, {0: 4, 3: 7}, config=SIX)
    store, journal = world.store(), world.journal()
    await store.resize(SIX.name, 6, 3)
    await stopped(world, 1)
    found = await store.renumber(1, SIX.name, await numbering(store), 1, 1)
    assert found is not None
    ((shard, epoch),) = ((row.shard, row.epoch) for row in found[1])
    assert (shard, epoch) == (0, 9)
    for late in ({"shard": 0, "epoch": 5}, {"shard": 3, "epoch": 8}, {"shard": 3, "epoch": 7}):
        with pytest.raises(ShardsFenced):
            await journal.append([event_row(number, "a", 1, **late)])


async def test_no_step_is_taken_while_a_shard_of_its_groups_has_a_home(world: World) -> None:
    await homed(world, {0: 4, 1: 4}, config=SIX)
    store = world.store()
    await store.resize(SIX.name, 6, 12)
    before = await numbering(store)
    assert await store.renumber(1, SIX.name, before, 1, 1) is None
    assert await store.renumber(1, SIX.name, before, 3, 1) is None
    assert await numbering(store) == before
    row = (await store.shards())[1]
    await store.decide(1, [HomeChange(SIX.name, 0, 4, 5, None, "stopped")])
    found = await store.renumber(1, SIX.name, before, 1, 1)
    assert found is not None
    assert [each.shard for each in found[1]] == [0, 6]
    assert (await store.homes(SIX.name, [1]))[0].home == row.home


async def test_a_step_that_is_repeated_after_a_lost_answer_changes_nothing(world: World) -> None:
    await homed(world, {}, config=SIX)
    store = world.store()
    await store.resize(SIX.name, 6, 12)
    before = await numbering(store)
    assert await store.renumber(1, SIX.name, before, 2, 1) is not None
    after = await numbering(store)
    assert await store.renumber(1, SIX.name, before, 2, 1) is None
    assert await numbering(store) == after


async def test_a_former_coordinator_takes_no_step(world: World) -> None:
    await homed(world, {}, config=SIX)
    store = world.store()
    await store.resize(SIX.name, 6, 12)
    with pytest.raises(StaleTerm):
        await store.renumber(0, SIX.name, await numbering(store), 1, 1)


async def test_a_shard_that_never_lived_gets_no_row(world: World) -> None:
    await homed(world, {1: 4}, config=SIX)
    store = world.store()
    await store.resize(SIX.name, 6, 12)
    await stopped(world, 1)
    found = await store.renumber(1, SIX.name, await numbering(store), 6, 1)
    assert found is not None
    assert [row.shard for row in found[1]] == [1, 7]


async def test_a_type_is_resized_once_at_a_time_and_from_the_number_it_has(world: World) -> None:
    await homed(world, {}, config=SIX)
    store = world.store()
    assert not await store.resize("shop.Unknown", 6, 12)
    assert not await store.resize(SIX.name, 5, 10)
    assert await store.resize(SIX.name, 6, 12)
    assert not await store.resize(SIX.name, 6, 18)
    assert (await numbering(store)).wanted == 12
    assert (await store.news("home")).numbers == 1


async def test_a_node_may_declare_the_number_of_before_or_after(world: World) -> None:
    """A release that says the new number can be deployed at any time, and be taken back."""
    await homed(world, {}, config=SIX)
    store = world.store()
    await store.resize(SIX.name, 6, 12)
    for done in (False, True):
        if done:
            await store.renumber(1, SIX.name, await numbering(store), 6, 1)
        for number, fits in ((6, True), (12, True), (18, False)):
            declared = msgspec.structs.replace(SIX, number_of_shards=number)
            _, differing = await store.register_types([declared])
            assert bool(differing) is not fits, (number, done)
    assert (await numbering(store)).shards == 12


@pytest.mark.parametrize("wanted", [12, 3])
async def test_shards_keep_the_locations_that_the_application_wants(world: World, wanted: int) -> None:
    await homed(world, {}, config=SIX)
    store = world.store()
    await store.locate(SIX.name, {1: "north", 4: "south"})
    await store.resize(SIX.name, 6, wanted)
    await store.renumber(1, SIX.name, await numbering(store), min(6, wanted), 1)
    _, found = await store.locations(SIX.name) or (0, {})
    assert found == ({1: "north", 7: "north", 4: "south", 10: "south"} if wanted == 12 else {1: "north"})


async def test_a_message_for_a_shard_that_there_is_no_more_gets_the_one_that_took_its_place(
    world: World,
) -> None:
    """It was stored from outside, by a transaction that knew the former number."""
    number = await homed(world, {}, config=SIX)
    store, journal = world.store(), world.journal()
    await store.resize(SIX.name, 6, 3)
    await store.renumber(1, SIX.name, await numbering(store), 3, 1)
    await journal.stage([message(number, "late", shard=4, epoch=None, due=SOON)], [])
    await store.refile(1)
    page = await journal.due([(number, 1)], 0.0, 10)
    assert [each.id for each in page.messages] == ["late"]


@pytest.mark.parametrize("wanted", [18, 2])
async def test_a_message_that_was_stored_by_a_former_number_is_the_entitys_own(
    world: World, wanted: int
) -> None:
    """It may be a timer of next year: an erasure takes it along."""
    number = await homed(world, {}, config=SIX)
    store, journal = world.store(), world.journal()
    await store.resize(SIX.name, 6, wanted)
    await store.renumber(1, SIX.name, await numbering(store), min(6, wanted), 1)
    entity = next(each for each in IDS if shard_of(each, 6) != shard_of(each, wanted))
    other = next(each for each in IDS if each != entity and shard_of(each, 6) == shard_of(entity, 6))
    former, present = shard_of(entity, 6), shard_of(entity, wanted)
    await store.decide(1, [HomeChange(SIX.name, present, 0, 1, "home", "home")])
    await journal.append([event_row(number, entity, 1, shard=present)])
    late = message(number, "late", entity, shard=former, epoch=None, due=SOON)
    await journal.stage([late, late._replace(id="kept", entity=other)], [])
    erased = await journal.erase(number, present, 1, entity, at_most=9, before=Erasure(), by="an operator")
    assert erased == Erasure(events=1, messages=1)
    page = await journal.due([(number, former)], 0.0, 10)
    assert [each.id for each in page.messages] == ["kept"]


async def test_shards_in_different_journals_do_not_become_one(world: World) -> None:
    """Whichever they lie in: the rows of one entity have to be in one journal."""
    store = world.spread_store({"": 1.0, "second": 1.0})
    await with_type(store, SIX)
    term = await elected(world)
    changes = [HomeChange(SIX.name, shard, 0, 4, None, "stopped") for shard in range(6)]
    await store.decide(term, changes)
    lies = {row.shard: row.journal for row in await store.homes(SIX.name, range(6))}
    assert lies == {shard: journal_of(SIX.name, shard, {"": 1.0, "second": 1.0}) for shard in range(6)}
    assert set(lies.values()) == {"", "second"}
    assert await store.journals_used() == {"second"}
    ids, _ = await store.register_types([SIX])
    assert await store.shard_journals(ids[SIX.name]) == lies
    assert not await store.resize(SIX.name, 6, 1)
    assert await store.resize(SIX.name, 6, 12)
    found = await store.renumber(term, SIX.name, await numbering(store), 6, 9)
    assert found is not None
    later = {row.shard: row.journal for row in await store.homes(SIX.name, range(12))}
    assert later == {shard: lies[shard % 6] for shard in range(12)}


async def test_shards_that_become_one_lie_in_one_journal_whenever_they_are_made(world: World) -> None:
    """Some get their first home after the resize was wished, one by one or together."""
    weights = {"": 1.0, "second": 1.0}
    store = world.spread_store(weights)
    await with_type(store, SIX)
    term = await elected(world)
    elsewhere = {shard: journal_of(SIX.name, shard, weights) for shard in range(6)}
    assert len({elsewhere[0], elsewhere[2], elsewhere[4]}) > 1
    assert len({elsewhere[1], elsewhere[3], elsewhere[5]}) > 1
    await store.decide(term, [HomeChange(SIX.name, 4, 0, 4, None, "stopped")])
    assert await store.resize(SIX.name, 6, 2)
    for shards in ((0,), (1, 2, 3, 5)):
        await store.decide(term, [HomeChange(SIX.name, each, 0, 4, None, "stopped") for each in shards])
    lies = {row.shard: row.journal for row in await store.homes(SIX.name, range(6))}
    assert lies == {shard: elsewhere[1 if shard % 2 else 4] for shard in range(6)}


@pytest.mark.parametrize("wanted", [18, 2])
@pytest.mark.parametrize("at_once", [3, 1000])
async def test_the_marks_of_messages_go_with_the_entities_that_took_them(
    world: World, wanted: int, at_once: int
) -> None:
    number = await homed(world, dict.fromkeys(range(6), 4), config=SIX)
    store: Any = world.store()  # both take the number of rows
    journal = world.journal()
    for each in IDS:
        shard = shard_of(each, 6)
        taking = Taking(f"of {each}", foreign="b", taker=(number, shard, 4, each))
        await journal.append(
            [event_row(number, each, 1, shard=shard, epoch=4)], MessageChanges(takes=[taking])
        )
    assert await store.resize(SIX.name, 6, wanted)
    await stopped(world, 1)
    before = await numbering(store)
    steps = 0
    while (await numbering(store)).revision == before.revision:
        assert await store.renumber(1, SIX.name, before, min(6, wanted), 9, at_once) is not None
        steps += 1
    assert (steps > 1) is (at_once < 1000)
    found = await journal.marks([(number, shard) for shard in range(40)], "", 1000)
    assert {each.id: each.shard for each in found} == {f"of {each}": shard_of(each, wanted) for each in IDS}
