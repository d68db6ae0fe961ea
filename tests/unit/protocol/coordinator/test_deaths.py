"""Regions that die at the worst moment: during a write, in the middle of a hand-off, several at
once, or unseen.
"""

from typing import TypeVar

import pytest

from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.coordinator.effects import Bury, CoordinatorEffect, Decide, Tell, TellAll
from sharding_app.protocol.coordinator.machine import LOCKED_AGAIN_SECONDS, Coordinator
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import BeginHandOff, HandOff, NodeGone, ShardHome
from sharding_app.protocol.records import HomeChange, ShardRow
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node, told_home

ALL = range(12)


def test_m3_a_death_during_a_write_is_not_lost() -> None:
    """The write gives a shard to a node that dies before the store has answered."""
    members = [node("a", 1), node("b", 2)]
    machine = Coordinator("a", 1, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded([], members, 0.0)
    machine.registered("b", 1, 0.0)
    machine.get_shard_home("a", TYPE, [1, 2], 0.0)
    first = taken(machine, Decide).changes
    assert sorted(str(change.home) for change in first) == ["a", "b"]
    machine.members_read(members, ["b"], [], 0.1)
    assert taken(machine, Bury).incarnation == "b"
    machine.buried("b", 0.1)
    machine.decided(first, rows(first), 0.2)
    (change,) = taken(machine, Decide).changes
    assert (change.home, change.epoch) == ("a", 2)
    machine.decided([change], rows([change]), 0.3)
    assert [each.word for each in effects(machine, TellAll)] == [NodeGone(1, "b")]


def test_m3_several_deaths_at_once() -> None:
    play = Play([node(name, age) for age, name in enumerate("abcd", 1)])
    play.ask("a", *ALL)
    play.read(dead=["b", "c", "d"])
    assert set(play.homes().values()) == {"a"}
    assert sorted(each.incarnation for each in play.heard("a", NodeGone)) == ["b", "c", "d"]


def test_m3_a_region_without_shards_dies() -> None:
    play = Play([node("a", 1), node("b", 2, types=())])
    play.ask("a", 1)
    play.die("b")
    assert play.homes() == {1: "a"}
    assert [each.incarnation for each in play.heard("a", NodeGone)] == ["b"]


def test_m3_other_traffic_goes_on_while_the_dead_are_fenced() -> None:
    """The store has not answered yet: who asks for another shard does not wait for that."""
    members = [node("a", 1), node("b", 2)]
    machine = Coordinator("a", 1, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded([ShardRow(TYPE, 1, 1, "b", "home")], members, 0.0)
    machine.registered("b", 1, 0.0)
    machine.members_read(members, ["b"], [], 0.1)
    assert taken(machine, Bury).incarnation == "b"
    machine.outbox.take()
    machine.get_shard_home("p-web", TYPE, [1, 2], 0.2)
    (change,) = taken(machine, Decide).changes
    assert (change.shard, change.home) == (2, "a")
    machine.decided([change], rows([change]), 0.3)
    machine.shard_started("a", TYPE, [2], [1], 0.4)
    told = [each.message for each in effects(machine, Tell) if each.to == "p-web"]
    assert [(each.home, each.shards) for each in told if isinstance(each, ShardHome)] == [("a", [2])]
    machine.buried("b", 0.5)
    (change,) = taken(machine, Decide).changes
    assert (change.shard, change.home, change.epoch) == (1, "a", 2)


def test_of_nodes_that_have_left_or_died_nothing_is_kept() -> None:
    play = Play([node(name, age) for age, name in enumerate("abc", 1)])
    play.die("b")
    del play.members["c"]
    play.read()
    assert [*play.machine.placement.members] == [*play.machine.placement.heard] == ["a"]
    assert not play.machine.placement._barred


def test_one_that_has_just_come_is_told_of_moves_too() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 1)
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.join(node("c", 3, types=()))
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "a")
    play.play()
    assert [each.shards for each in play.heard("c", BeginHandOff)] == [[1]]


def test_no_process_is_told_that_a_node_is_gone_before_its_epochs_are_raised() -> None:
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", *ALL)
    seen: list[int] = []
    play.on_decide = lambda change: seen.append(len(play.heard("a", NodeGone)))
    play.die("b")
    assert seen == [0] * 6
    assert len(play.heard("a", NodeGone)) == 1


def test_one_that_was_not_dead_after_all_gets_shards_again() -> None:
    play = Play([node("a", 1), node("b", 2)])
    machine = play.machine
    machine.members_read(list(play.members.values()), ["b"], [], play.now)
    assert taken(machine, Bury).incarnation == "b"
    machine.outbox.take()
    play.ask("a", 1, 2)
    assert play.homes() == {1: "a", 2: "a"}, "nothing while it may be dead"
    machine.unburied("b")
    play.ask("a", 3, 4)
    assert play.homes() == {1: "a", 2: "a", 3: "b", 4: "b"}
    play.die("b")
    assert play.gone("a") == ["b"], "it can be found dead again"


def test_one_that_is_found_dead_again_while_it_is_buried_is_buried_once() -> None:
    play = Play([node("a", 1), node("b", 2)])
    for _ in range(2):
        play.machine.members_read(list(play.members.values()), ["b"], [], play.now)
    assert play.machine.busy
    assert taken(play.machine, Bury).incarnation == "b"
    play.machine.buried("b", play.now)
    assert not play.machine.busy


def test_who_is_buried_is_told_before_its_shards_get_new_homes() -> None:
    """It may live, and have heard of neither of its sessions' ends."""
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", *ALL)
    seen: list[list[str]] = []
    play.on_decide = lambda change: seen.append(play.gone("b"))
    play.die("b")
    assert seen == [["b"]] * 6


@pytest.mark.parametrize("phase", ["begin", "stopping"])
def test_the_home_of_a_hand_off_dies(phase: str) -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3)])
    play.ask("a", 1)
    play.silent.update("abc" if phase == "begin" else "a")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    if phase == "stopping":
        play.wait(1.1)
    assert bool(play.heard("a", HandOff)) == (phase == "stopping")
    play.silent.difference_update("bc")
    play.members["c"] = node("c", 3)
    play.read(dead=["a"])
    row = play.rows[TYPE, 1]
    assert (row.home in ("b", "c"), row.epoch, row.step) == (True, 2, "home")
    assert not play.machine.handoffs.active


def test_the_target_of_a_hand_off_dies() -> None:
    play = Play([node("a", 1), node("b", 2), node("c", 3)])
    play.ask("a", 1)
    play.silent.add("a")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.die("b")
    play.silent.remove("a")
    play.wait(1.5)
    row = play.rows[TYPE, 1]
    assert (row.home in ("a", "c"), row.step) == (True, "home")


def test_a_shard_that_has_stopped_moves_without_waiting_for_acknowledgements() -> None:
    """A former coordinator had told its home to stop, and this one begins the hand-off again."""
    play = Play([node("a", 1), node("b", 2)])
    play.ask("a", 1)
    play.silent.add("b")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.machine.handoffs.stopped("a", TYPE, [1], [1], play.now)
    play.play()
    assert play.heard("a", HandOff) == []
    assert play.rows[TYPE, 1] == ShardRow(TYPE, 1, 2, "b", "home")


def test_a_new_coordinator_finishes_the_hand_off_that_it_finds() -> None:
    play = Play([node("b", 2), node("a", 1)], rows=[ShardRow(TYPE, 1, 7, "a", "handoff")])
    assert play.heard("a", BeginHandOff)
    assert play.heard("a", HandOff)[0].epochs == [7]
    assert (play.rows[TYPE, 1].epoch, play.rows[TYPE, 1].step) == (8, "home")
    assert told_home(play, "b", 1) == play.rows[TYPE, 1].home


def test_m9_a_home_that_no_member_row_names_is_fenced_and_a_live_one_is_not_touched() -> None:
    """It left or was buried while there was no coordinator; no process will ever report its end."""
    stale = [ShardRow(TYPE, 1, 4, "long gone", "home"), ShardRow(TYPE, 2, 4, "a", "home")]
    play = Play([node("a", 1)], rows=stale)
    play.read()
    assert (play.rows[TYPE, 1].home, play.rows[TYPE, 1].epoch) == ("a", 5)
    assert (play.rows[TYPE, 2].home, play.rows[TYPE, 2].epoch) == ("a", 4)
    assert play.noted("shards_fenced") == ["long gone"]


def test_a_home_that_is_silent_is_told_again_and_never_passed_over() -> None:
    """While its lease is valid it may answer what it reads. If it is dead, or deaf, its shards are
    fenced as such.
    """
    play = Play([node("a", 1), node("b", 2)], settings=CoordinatorSettings(hand_off_timeout_seconds=2.0))
    play.ask("a", 1)
    play.silent.add("a")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.wait(2.9)
    assert play.rows[TYPE, 1] == ShardRow(TYPE, 1, 1, "a", "handoff")
    play.wait(2.5)
    assert play.rows[TYPE, 1] == ShardRow(TYPE, 1, 1, "a", "handoff")
    assert play.noted("hand_off_late") == [f"{TYPE}/1"] * 2
    play.die("a")
    assert play.rows[TYPE, 1] == ShardRow(TYPE, 1, 2, "b", "home")


def test_acknowledgements_are_waited_for_until_the_time_is_over() -> None:
    wait = 1.0
    settings = CoordinatorSettings(begin_hand_off_wait_seconds=wait, retry_seconds=100.0)
    play = Play([node("a", 1), node("b", 2)], settings=settings)
    play.ask("a", 1)
    play.silent.add("b")
    play.machine.handoffs.begin([(TYPE, 1)], play.now, "b")
    play.play()
    play.wait(wait - 0.25, step=0.25)
    assert play.heard("a", HandOff) == []
    play.wait(0.25, step=0.25)
    assert len(play.heard("a", HandOff)) == 1, "and no longer"


def test_what_the_store_did_not_take_is_tried_again() -> None:
    machine = Coordinator("a", 1, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded([], [node("a", 1)], 0.0)
    machine.get_shard_home("p-web", TYPE, [1], 0.0)
    changes = taken(machine, Decide).changes
    machine.undecided(changes)
    assert machine.busy
    assert not effects(machine, Tell)
    machine.tick(0.5)
    again = taken(machine, Decide).changes
    assert again == changes
    machine.decided(again, rows(again), 0.6)
    machine.shard_started("a", TYPE, [1], [1], 0.0)
    assert any(isinstance(each.message, ShardHome) for each in effects(machine, Tell))


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_change_of_a_locked_row_is_tried_again_if_the_shard_has_lived_before(epoch: int) -> None:
    machine = Coordinator("a", 1, CoordinatorSettings(), lambda _: LeastShardAllocation())
    machine.loaded([], [node("a", 1)], 0.0)
    change = HomeChange(TYPE, 1, epoch, epoch + 1, "a", "home")
    assert machine.wait_for(change, 1.0) == bool(epoch)
    machine.outbox.take()
    machine.tick(1.0 + LOCKED_AGAIN_SECONDS)
    assert [each.changes for each in effects(machine, Decide)] == [[change]] * epoch


# -- The machine alone -----------------------------------------------------------------------------


E = TypeVar("E", bound=CoordinatorEffect)


def effects(machine: Coordinator, kind: type[E]) -> list[E]:
    found: list[E] = [each for each in machine.outbox.effects if isinstance(each, kind)]
    machine.outbox.take()
    return found


def taken(machine: Coordinator, kind: type[E]) -> E:
    (found,) = effects(machine, kind)
    return found


def rows(changes: list[HomeChange]) -> list[ShardRow]:
    return [ShardRow(each.type, each.shard, each.epoch, each.home, each.step) for each in changes]
