"""Worlds in which shards move between journals: which seeds they are, and the judge of a switch."""

from __future__ import annotations

import pytest

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.adapters.memory.message_rows import Stored
from sharding_app.adapters.memory.move_rows import MoveRow
from sharding_app.ports.deliveries import MessageRow
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.records import ShardRow, TypeConfig
from sharding_app.testing.simulation import archives, closings, journals, projections, resizes
from sharding_app.testing.simulation.journals import journals_of
from sharding_app.testing.simulation.move_seeds import SEEDS, loses_a_switch
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.world import World

LEDGER, THERE = "sim.Ledger", "second"
KEY = LEDGER, 0


def test_moves_are_in_seeds_of_each_kind() -> None:
    assert set(SEEDS) <= set(journals.SEEDS)
    assert not set(SEEDS) & {*closings.SEEDS, *resizes.SEEDS}
    assert {seed % 2 for seed in SEEDS} == {0, 1}
    assert {len(journals_of(seed)) for seed in SEEDS} == {1, 2}
    assert set(SEEDS) & set(archives.SEEDS)
    assert {seed % 24 for seed in SEEDS} & set(projections.SEEDS)
    assert [seed for seed in range(96) if loses_a_switch(seed)] == [28]


@pytest.fixture
def world() -> World:
    """A world in which a shard with one event is about to move to a further journal."""
    world = World(42, 3, None, None)
    cluster = world.server.cluster
    cluster.register_types([TypeConfig(LEDGER, "entity", 1, "hash:crc32-1", "1", "", "events")])
    cluster.shards[KEY] = ShardRow(LEDGER, 0, 5, None, "stopped")
    cluster.journals[KEY], cluster.moves[KEY] = "", MoveRow("", THERE, "closed")
    world.where.decided(KEY)
    world.where.fenced([KEY], "")
    world.server.journal.events[1, "a"] = {1: event(5)}
    return world


def event(epoch: int, noted: str = "t") -> Committed:
    payload = f'{{"token":"{noted}"}}'.encode()
    return Committed(EventRow(1, "a", 1, 0, epoch, "Noted", 1, payload, None, None, None), 1.0)


def switch(world: World) -> PromiseBroken | None:
    world.server.cluster.switch(LEDGER, [0], THERE)
    return world.failure


def test_a_shard_lies_in_its_new_journal_from_the_switch_on(world: World) -> None:
    there = world.journals[THERE].journal
    there.events[1, "a"] = {1: event(6)}  # a copy has the epoch at which it was made
    assert world.lies_in(world.server, LEDGER, "a")
    assert switch(world) is None
    assert world.where.is_in(KEY) == THERE
    assert world.lies_in(world.journals[THERE], LEDGER, "a")
    assert not world.lies_in(world.server, LEDGER, "a")


@pytest.mark.parametrize("rows", [{}, {1: event(6, "other")}, {1: event(6), 2: event(6)}])
def test_a_copy_that_lacks_rows_or_has_others_is_found(world: World, rows: dict[int, Committed]) -> None:
    world.journals[THERE].journal.events[1, "a"] = rows
    failure = switch(world)
    assert failure is not None
    assert (failure.promise, failure.name) == (3, "moves_lose_nothing")


def test_a_message_that_waits_in_the_former_journal_is_found(world: World) -> None:
    cluster = world.server.cluster
    cluster.journals[KEY], cluster.moves[KEY] = THERE, MoveRow(THERE, "", "closed")
    there = world.journals[THERE]
    row = MessageRow("m", 1, 0, "a", 5, 1, 0, LEDGER, "b", "go", b"")
    for server in (world.server, there):
        server.journal.events[1, "a"] = {1: event(5)}
        server.messages.put(Stored(row, server.date()))
    world.where.fenced([KEY], THERE)
    cluster.switch(LEDGER, [0], "")
    assert world.failure is not None
    assert world.failure.name == "moved_shards_leave_no_messages"


def test_what_a_former_journal_has_lost_since_its_copy_is_there_again(world: World) -> None:
    world.journals[THERE].journal.events[1, "a"] = {1: event(6)}
    world.server.journal.events.clear()
    world.server.promote()
    assert switch(world) is None
    assert [each.token for each in world.witness.journal[f"{LEDGER}/a"]] == ["t"]


def test_a_shard_whose_switch_is_lost_lies_where_it_was_switched(world: World) -> None:
    cluster = world.server.cluster
    world.journals[THERE].journal.events[1, "a"] = {1: event(6)}
    assert switch(world) is None
    cluster.journals[KEY], cluster.moves[KEY] = "", MoveRow("", THERE, "closed")
    with pytest.raises(PromiseBroken):
        world.where.decided(KEY)
    world.where.cluster_went_back()
    assert world.where.has_lost(KEY)
    world.where.decided(KEY)
    assert world.where.is_in(KEY) == THERE
    with pytest.raises(PromiseBroken, match="a_shard_lies_in_one_journal"):
        world.where.committed("", LEDGER, event(5).row, "n")
    world.where.put_right(KEY)
    assert not world.where.has_lost(KEY)
    assert (cluster.journals[KEY], cluster.moves[KEY].step) == (THERE, "moved")
    world.where.decided(KEY)
