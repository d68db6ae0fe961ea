"""Worlds with further journals: which seeds have them, and the judge of who writes where."""

from __future__ import annotations

from collections import Counter

import pytest

from sharding_app.ports.journal import EventRow
from sharding_app.testing.simulation import projections, resizes
from sharding_app.testing.simulation.faults import JOURNAL_KINDS, schedule
from sharding_app.testing.simulation.journals import SEEDS, journals_of
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.world import World

LEDGER = "sim.Ledger"


@pytest.fixture
def world() -> World:
    """A world with one further journal, in which a type is known."""
    world = World(16, 3, None, None)
    world.server.cluster.type_ids[LEDGER] = 1
    return world


def row(epoch: int, shard: int = 0) -> EventRow:
    return EventRow(1, "a", 1, shard, epoch, "Added", 1, b"{}", None, None, None)


def decide(world: World, shard: int, name: str) -> None:
    world.server.cluster.journals[LEDGER, shard] = name
    world.where.decided((LEDGER, shard))


def take(world: World, epoch: int, home: str, shard: int = 0) -> list[int]:
    world.witness.homes[LEDGER, shard, epoch] = home
    return world.journals["second"].cluster.take(LEDGER, 1, {shard: epoch}, home)


def test_a_third_of_the_seeds_have_further_journals_and_others_have_none() -> None:
    names = Counter(len(journals_of(seed)) for seed in range(48 * 3))
    assert names == {0: 99, 1: 27, 2: 18}
    projecting = [seed for seed in SEEDS if seed % 24 in projections.SEEDS]
    for kinds in (SEEDS, projecting):
        assert {seed % 2 for seed in kinds} == {0, 1}
        assert {len(journals_of(seed)) for seed in kinds} == {1, 2}
    assert not set(SEEDS) & set(resizes.SEEDS)
    both = [seed for seed in range(96) if journals_of(seed) and resizes.is_resized(seed)]
    assert both == sorted(resizes.BESIDE_JOURNALS)
    assert {seed % 2 for seed in both} == {0, 1}
    assert {len(journals_of(seed)) for seed in both} == {1, 2}


def test_each_fault_of_a_journal_is_drawn() -> None:
    drawn = Counter(
        fault.kind
        for seed in range(400)
        for fault in schedule(seed, 3, journals=journals_of(seed))
        if fault.journal
    )
    assert drawn.keys() == {kind.name for kind in JOURNAL_KINDS}
    assert all(fault.journal == "" for fault in schedule(16, 3))
    assert str(next(each for each in schedule(16, 3, journals=("second",)) if each.journal)).count(
        "of second"
    )


def test_an_event_of_the_home_that_has_taken_the_shard_is_right(world: World) -> None:
    decide(world, 0, "second")
    assert take(world, 1, "n1-1") == [0]
    world.where.started((LEDGER, 0), 1)
    world.where.committed("second", LEDGER, row(1), "n1-1")
    assert world.failure is None


def test_an_event_of_another_home_is_found(world: World) -> None:
    decide(world, 0, "second")
    take(world, 1, "n1-1")
    take(world, 2, "n2-1")
    for epoch, writer in ((1, "n1-1"), (2, "n1-1")):
        with pytest.raises(PromiseBroken, match="written_by_who_has_taken_it"):
            world.where.committed("second", LEDGER, row(epoch), writer)


def test_an_event_in_another_journal_is_found(world: World) -> None:
    decide(world, 0, "second")
    with pytest.raises(PromiseBroken, match="a_shard_lies_in_one_journal"):
        world.where.committed("", LEDGER, row(1), "n1-1")


def test_a_row_that_is_made_anew_in_another_journal_is_found(world: World) -> None:
    decide(world, 0, "second")
    with pytest.raises(PromiseBroken, match="a_shard_lies_in_one_journal"):
        decide(world, 0, "")


def test_an_epoch_that_falls_is_found(world: World) -> None:
    decide(world, 0, "second")
    take(world, 2, "n2-1")
    assert take(world, 1, "n1-1") == [], "the rows refuse it"
    world.journals["second"].cluster.shards.clear()  # as if they did not
    take(world, 1, "n1-1")
    assert world.failure is not None
    assert world.failure.name == "taken_epochs_rise"


def test_a_take_by_a_node_that_was_never_the_home_is_found(world: World) -> None:
    decide(world, 0, "second")
    world.journals["second"].cluster.take(LEDGER, 1, {0: 1}, "n1-1")
    assert world.failure is not None
    assert world.failure.name == "hosts_what_the_row_says"


def test_a_home_that_goes_on_after_a_promotion_is_found(world: World) -> None:
    decide(world, 0, "second")
    take(world, 1, "n1-1")
    world.where.started((LEDGER, 0), 1)
    world.journals["second"].fail_over()
    with pytest.raises(PromiseBroken, match="begins_anew_after_a_promotion"):
        world.where.committed("second", LEDGER, row(1), "n1-1")
    take(world, 2, "n1-1")
    world.where.started((LEDGER, 0), 2)
    world.where.committed("second", LEDGER, row(2), "n1-1")


def test_a_take_that_a_standby_lacks_may_come_again(world: World) -> None:
    """The epochs of another server are not compared with those that it has never seen."""
    decide(world, 0, "second")
    take(world, 1, "n1-1")
    server = world.journals["second"]
    server.standby.part(asynchronous=True)
    take(world, 3, "n2-1")
    server.fail_over()
    take(world, 2, "n0-1")
    assert world.failure is None
