"""Shards of which the cluster's database has lost the rows with a failover, while their entities
lie in a further journal.
"""

import msgspec
import pytest

from sharding_app.ports.store import ClusterStore, StaleTerm, StoreUnavailable
from sharding_app.protocol.coordinator.terms import lowest_epoch
from sharding_app.protocol.ids import ShardId, Term
from sharding_app.protocol.journals import journal_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import HomeChange, ShardStep, StoredShard
from tests.contract.factories import World
from tests.contract.test_eras_of_numbers import elected_after_a_promotion, election
from tests.support.given import CART, member, with_type

pytestmark = pytest.mark.asyncio

SIX = msgspec.structs.replace(CART, number_of_shards=6, extractor="hash:crc32-1")
TYPE, NUMBER = "tests.Taken", 7
NUMBERING = Numbering(6)
READ = frozenset({"journal_b", "journal_c"})


def found(
    shard: ShardId,
    epoch: int = 5,
    journal: str = "journal_b",
    numbering: Numbering = NUMBERING,
    *,
    step: ShardStep = "home",
) -> StoredShard:
    return StoredShard(SIX.name, shard, epoch, journal, step, numbering)


def first_home(shard: ShardId, term: Term = 1) -> HomeChange:
    return HomeChange(SIX.name, shard, 0, lowest_epoch(term), "n-one", "home")


async def lying(store: ClusterStore) -> dict[ShardId, tuple[str, int]]:
    return {row.shard: (row.journal, row.epoch) for row in await store.homes(SIX.name, range(24))}


async def with_journals(world: World, store: ClusterStore) -> None:
    await with_type(store, SIX)
    for name in sorted(READ):
        await store.journal_place(name, f"the place of {name}")
    await store.join(member("coordinator"), (1, 2))
    term = await election(world)
    await store.decide(term, [first_home(2, term)])
    assert await store.journals_to_read() is None, "nothing can be lost yet"


async def test_a_shard_without_a_row_gets_no_home_before_all_journals_are_read(world: World) -> None:
    store = world.store()
    await with_journals(world, store)
    await world.of_other_lineage()
    with pytest.raises(StaleTerm):
        await store.decide(1, [first_home(3)])
    with pytest.raises(StoreUnavailable):
        await store.resize(SIX.name, 6, 12)
    term = await election(world)
    assert await store.journals_to_read() == READ
    there = lowest_epoch(term)
    moved = await store.decide(term, [HomeChange(SIX.name, 2, 1, there, "n-two", "home")])
    assert [(row.epoch, row.home) for row in moved] == [(there, "n-two")], "that has a row"
    for changes in (
        [first_home(3, term)],
        [first_home(3, term), HomeChange(SIX.name, 2, there, there + 1, None, "stopped")],
    ):
        with pytest.raises(StoreUnavailable) as refused:
            await store.decide(term, changes)
        assert refused.value.answered
    with pytest.raises(StoreUnavailable):
        await store.resize(SIX.name, 6, 12)
    assert not await store.restore_shards(term, frozenset({"journal_b"}), [found(3)])
    assert set(await lying(store)) == {2}
    assert await store.restore_shards(term, READ, [])
    assert await store.journals_to_read() is None
    assert [row.home for row in await store.decide(term, [first_home(3, term)])] == ["n-one"]
    assert await store.resize(SIX.name, 6, 12)
    assert await election(world) == term + 1
    assert await store.journals_to_read() is None, "the era goes on"


async def test_where_shards_lie_is_not_told_before_that(world: World) -> None:
    """A list of ids would leave out those of a shard whose row is lost."""
    store = world.store()
    await with_journals(world, store)
    number = (await store.type_ids())[SIX.name]
    assert await store.shard_journals(number) == {2: ""}
    await world.of_other_lineage()
    term = 1
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="journal_b") as refused:
            await store.shard_journals(number)
        assert refused.value.answered
        term = await election(world)
    assert await store.restore_shards(term, READ, [found(3)])
    assert (await store.shard_journals(number)).keys() == {2, 3}


async def test_no_step_of_a_resize_is_taken_before_that(world: World) -> None:
    store = world.store()
    await with_journals(world, store)
    await store.decide(1, [HomeChange(SIX.name, 2, 1, 2, None, "stopped")])
    assert await store.resize(SIX.name, 6, 2)
    term = await elected_again(world)
    (config,) = await store.types()
    with pytest.raises(StoreUnavailable):
        await store.renumber(term, SIX.name, config.numbering, 2, lowest_epoch(term))
    assert await store.restore_shards(term, READ, [])
    assert await store.renumber(term, SIX.name, config.numbering, 2, lowest_epoch(term)) is not None


async def elected_again(world: World) -> Term:
    await world.of_other_lineage()
    return await election(world)


async def test_lost_rows_are_made_again_in_their_journals(world: World) -> None:
    store = world.store()
    await with_journals(world, store)
    term = await elected_again(world)
    former, gone = await lying(store), StoredShard("tests.Gone", 1, 5, "journal_b", "home", Numbering(6))
    with pytest.raises(StaleTerm):
        await store.restore_shards(term - 1, READ, [found(3)])
    there = [found(2, 9), found(3, 7), found(4, 5, "journal_c"), gone]
    assert await store.restore_shards(term, READ, there)
    assert await store.restore_shards(term, READ, there), "the first answer may be lost"
    assert await lying(store) == former | {3: ("journal_b", 7), 4: ("journal_c", 5)}
    rows = {row.shard: row for row in await store.shards()}
    assert (rows[3].home, rows[3].step) == (None, "stopped")
    await store.decide(term, [HomeChange(SIX.name, 3, 7, lowest_epoch(term), "n-one", "home")])
    assert (await lying(store))[3] == ("journal_b", lowest_epoch(term))


async def test_a_journal_in_which_a_home_has_taken_it_counts_more_than_one_with_a_copy(world: World) -> None:
    store = world.store()
    await with_journals(world, store)
    term = await elected_again(world)
    copies = [found(3, 9, "journal_c", step="copied"), found(4, 9, step="copied")]
    assert await store.restore_shards(term, READ, [*copies, found(3, 5), found(4, 5, "journal_c")])
    lies = await lying(store)
    assert (lies[3], lies[4]) == (("journal_b", 5), ("journal_c", 5))


async def test_a_journal_that_a_shard_is_about_to_leave_counts_more_than_its_copy(world: World) -> None:
    """A move fences both before its switch, at the same epoch."""
    store = world.store()
    await with_journals(world, store)
    term = await elected_again(world)
    both = [
        found(3, 9, "journal_c", step="copied"), found(3, 9, step="stopped"),
        found(4, 9, step="copied"), found(4, 9, "journal_c", step="stopped"),
    ]  # fmt: skip
    assert await store.restore_shards(term, READ, [*both, found(5, 9, "journal_c", step="copied")])
    lies = await lying(store)
    assert (lies[3], lies[4]) == (("journal_b", 9), ("journal_c", 9))
    assert lies[5] == ("journal_c", 9), "the switch may be lost, and its source has left it"


@pytest.mark.parametrize(
    ("theirs", "shard", "stands_for", "group"),
    [
        (Numbering(12, revision=4), 9, 3, [3]),  # twelve shards are lost: the six hold
        (Numbering(6, 12, 4, 3), 9, 3, [3]),
        (Numbering(2, revision=4), 1, 1, [1, 3, 5]),  # it has the entities of all three
        (Numbering(6, 2, 2, 3), 1, 1, [1, 3, 5]),
    ],
)
async def test_a_shard_of_a_resize_that_is_lost_stands_for_the_one_of_now(
    world: World, theirs: Numbering, shard: ShardId, stands_for: ShardId, group: list[ShardId]
) -> None:
    """Others of its group come to lie beside it, whatever the weights say."""
    store = world.spread_store({"": 1.0, "journal_c": 1.0})
    await with_journals(world, store)
    term = await elected_again(world)
    assert await store.restore_shards(term, READ, [found(shard, 5, "journal_b", theirs)])
    assert (await lying(store))[stands_for] == ("journal_b", 5)
    await store.decide(term, [first_home(each, term) for each in group if each != stands_for])
    lies = await lying(store)
    assert {each: lies[each][0] for each in group} == dict.fromkeys(group, "journal_b")
    (config,) = await store.types()
    assert {theirs.shards, theirs.wanted} <= {0, 6, *config.declared}, "nodes may declare these"


async def test_shards_of_a_former_group_lie_beside_each_other(world: World) -> None:
    """A failover may lose the resize that has parted them."""
    weights = {"": 1.0, "second": 1.0}
    store = world.spread_store(weights)
    await with_type(store, SIX)
    term = await election_of(world)
    assert await store.resize(SIX.name, 6, 18)
    (config,) = await store.types()
    assert await store.renumber(term, SIX.name, config.numbering, 6, 1)
    by_weights = {each: journal_of(SIX.name, each, weights) for each in range(18)}
    assert any(by_weights[each] != by_weights[each % 6] for each in range(18))
    await store.decide(term, [first_home(each) for each in range(12, 18)])
    await store.decide(term, [first_home(each) for each in range(12)])
    lies = {shard: journal for shard, (journal, _) in (await lying(store)).items()}
    assert lies == {each: by_weights[12 + each % 6] for each in range(18)}


async def election_of(world: World) -> Term:
    await world.store().join(member("coordinator"), (1, 2))
    return await election(world)


async def test_nothing_is_to_be_read_where_there_was_no_journal(world: World) -> None:
    """One that is added later has no shard yet."""
    store = world.store()
    await with_type(store, SIX)
    term = await elected_after_a_promotion(world)
    assert await store.journals_to_read() is None
    await store.journal_place("journal_b", "there")
    assert await store.journals_to_read() is None
    await store.decide(term, [first_home(3, term)])


async def test_a_journal_says_which_shards_lie_in_it(world: World) -> None:
    journal = world.journal()
    assert await journal.stored_shards("journal_b") == []
    await journal.take(TYPE, NUMBER, Numbering(6), {3: 5, 4: 6, 5: 5}, "n-one")
    await world.leave(NUMBER, 5, "journal_c")
    stored = sorted(await journal.stored_shards("journal_b"), key=lambda each: each.shard)
    assert stored == [
        StoredShard(TYPE, 3, 5, "journal_b", "home", Numbering(6)),
        StoredShard(TYPE, 4, 6, "journal_b", "home", Numbering(6)),
    ]
    numbers = Numbering(6, 12, 4, 3)
    await journal.take(TYPE, NUMBER, numbers, {4: 9}, "n-one")
    stored = sorted(await journal.stored_shards("journal_b"), key=lambda each: each.shard)
    assert stored == [
        StoredShard(TYPE, 3, 6, "journal_b", "stopped", numbers),
        StoredShard(TYPE, 4, 9, "journal_b", "home", numbers),
    ]


async def test_a_term_ends_with_the_lineage_of_its_election(world: World) -> None:
    """A coordinator that has not heard of a failover decides nothing behind it: rows that are lost
    may have given out the epochs that it would give.
    """
    store = world.store()
    await with_type(store, SIX)
    await store.introduce_workers({SIX.name: 4})
    await store.join(member("coordinator"), (1, 2))
    await store.join(member("other"), (3, 4))
    term = await election(world)
    assert await store.decide(term, [first_home(2, term)])
    assert await store.resize(SIX.name, 6, 12)
    (config,) = await store.types()
    wished = await store.rescale(SIX.name, 8)
    assert wished is not None
    await world.of_other_lineage()
    for write in (
        store.decide(term, [HomeChange(SIX.name, 2, 1, 2, "other", "home")]),
        store.bury(term, "other"),
        store.put_in_force(term, wished),
        store.renumber(term, SIX.name, config.numbering, 1, 1),
        store.open_lapsed(term),
        store.restore_shards(term, frozenset(), []),
    ):
        with pytest.raises(StaleTerm):
            await write
    (row,) = await store.shards()
    assert (row.epoch, row.home) == (1, "n-one")
    again = await election(world)
    assert await store.decide(again, [HomeChange(SIX.name, 2, 1, lowest_epoch(again), "other", "home")])
