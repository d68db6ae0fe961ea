"""Which shard an id has, before, in and after a resize."""

import pytest

from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.numbering import MOST_SHARDS, Numbering, why_not

IDS = [f"entity-{number}" for number in range(300)]
RESIZES = [(3, 12), (12, 6), (6, 18), (18, 1), (1, 4), (7, 7 * 64)]


@pytest.mark.parametrize(("shards", "wanted"), RESIZES)
def test_each_step_gives_the_ids_of_its_groups_the_shards_of_the_wanted_number(
    shards: int, wanted: int
) -> None:
    numbering = Numbering(shards, wanted)
    groups = min(shards, wanted)
    for done in range(groups):
        numbering = Numbering(shards, wanted, done)
        for each in IDS:
            number = wanted if shard_of(each, groups) < done else shards
            assert numbering.shard_of(each) == shard_of(each, number)
            assert numbering.has(numbering.shard_of(each))
        there = [shard for shard in range(numbering.most + 3) if numbering.has(shard)]
        assert len(there) == numbering.total
    assert numbering.after(groups) == Numbering(wanted, revision=1)


@pytest.mark.parametrize(("shards", "wanted"), RESIZES)
def test_the_shards_of_a_step_are_those_of_its_groups(shards: int, wanted: int) -> None:
    numbering = Numbering(shards, wanted)
    seen: list[int] = []
    while numbering.resizing:
        upto = numbering.step(8)
        assert upto > numbering.done
        former, later = numbering.former(upto), numbering.later(upto)
        assert former == [each for each in range(shards) if numbering.closed(each, 8)]
        after = numbering.after(upto)
        moved = [each for each in IDS if numbering.shard_of(each) in former]
        assert {after.shard_of(each) for each in moved} <= set(later)
        assert all(numbering.shard_of(each) == after.shard_of(each) for each in IDS if each not in moved)
        seen += former
        numbering = after
    assert sorted(seen) == list(range(shards))


def test_at_rest_the_number_alone_says_it() -> None:
    numbering = Numbering(5)
    assert not numbering.resizing
    assert [numbering.has(shard) for shard in (-1, 0, 4, 5)] == [False, True, True, False]
    assert not numbering.closed(0, 64)
    assert numbering.shard_of("alice") == shard_of("alice", 5)


@pytest.mark.parametrize(
    ("shards", "wanted", "why"),
    [
        (6, 12, ""), (6, 3, ""), (6, 1, ""), (6, 6, "6 shards already"), (6, 9, "neither a multiple nor a divisor"),
        (6, 0, "must be from 1"), (6, -6, "must be from 1"), (1, MOST_SHARDS + 1, "must be from 1"),
    ],
)  # fmt: skip
def test_some_numbers_cannot_be_reached(shards: int, wanted: int, why: str) -> None:
    found = why_not(shards, wanted)
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("numbers", "shard", "theirs", "stands_for"),
    [
        (Numbering(6), 3, Numbering(6), 3),
        (Numbering(6), 9, Numbering(12), 3),
        (Numbering(6), 9, Numbering(6, 12, 4), 3),
        (Numbering(6), 1, Numbering(2), 1),
        (Numbering(6, 12, 4), 9, Numbering(12), 9),
        (Numbering(6, 12, 4), 11, Numbering(12), 5),
        (Numbering(12), 5, Numbering(3), 5),
    ],
)
def test_a_shard_by_other_numbers_stands_for_one_that_has_its_entities(
    numbers: Numbering, shard: int, theirs: Numbering, stands_for: int
) -> None:
    assert numbers.stands_for(shard, theirs) == stands_for
    assert numbers.has(stands_for)
    least = min(numbers.groups, theirs.groups)
    assert stands_for % least == shard % least
