"""One bad input costs what it is about and nothing else: shard ids, strategies, refused rows, rows
that are gone.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import count
from typing import Any

import msgspec
import pytest

from sharding_app.protocol import allocation
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.strategy import (
    Allocations,
    ClusterView,
    ShardAllocationStrategy,
    version_key,
)
from sharding_app.protocol.coordinator.effects import Decide, Note
from sharding_app.protocol.coordinator.strategies import OWN
from sharding_app.protocol.messages import NoHome
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import HomeChange, ShardRow
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node, told_home

OTHER = "shop.Order"
BOTH = (TYPE, OTHER)


def two_nodes() -> list[Any]:
    return [node("a", 1, types=BOTH), node("b", 2, types=BOTH)]


# -- Shard ids -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", [3_000_000_000, -7, 12, "5", 1.5, True, None])
def test_a_shard_that_cannot_be_is_refused_and_others_of_the_question_get_homes(shard: Any) -> None:
    play = Play(two_nodes(), numbers={TYPE: 12, OTHER: 12})
    play.ask("p-web", 1, shard, 2)
    assert sorted(play.homes()) == [1, 2]
    refused = play.heard("p-web", NoHome)
    assert [(each.reason, each.shards) for each in refused] == [("no_such_shard", [shard])]
    assert (TYPE, shard) not in play.machine.waiters


# -- Strategies ------------------------------------------------------------------------------------


class Broken:
    """A user's strategy whose answers are made by a function."""

    def __init__(self, answer: Callable[..., Any], moves: Callable[..., Any] = lambda *_: []) -> None:
        self.answer = answer
        self.moves = moves

    def allocate(self, requester: str | None, shard: int, allocations: Allocations, view: ClusterView) -> str:
        return self.answer(requester, shard, allocations, view)  # type: ignore[no-any-return]

    def rebalance(
        self, allocations: Mapping[str, Sequence[int]], in_progress: Set[int], view: ClusterView
    ) -> list[int]:
        return self.moves(allocations, in_progress, view)  # type: ignore[no-any-return]


def raises(*_: Any) -> Any:
    raise KeyError("no such region")


async def coroutine(*_: Any) -> Any:
    return "a"


NONSENSE: dict[str, Callable[..., Any]] = {
    "raises": raises,
    "the name of a node": lambda *_: "node-a",
    "unknown region": lambda *_: "x",
    "a number": lambda *_: 1,
    "nothing": lambda *_: None,
    "unhashable": lambda *_: ["a"],
    "a coroutine": coroutine,
}


@pytest.mark.parametrize("how", NONSENSE)
def test_a_strategy_that_fails_costs_its_own_type_a_fall_back_to_the_default(how: str) -> None:
    broken = Broken(NONSENSE[how], raises)
    play = Play(two_nodes(), strategy_of=lambda name: broken if name == TYPE else LeastShardAllocation())
    play.ask("a", 1, 2, 3, 4)
    play.ask("a", 1, 2, 3, 4, type_name=OTHER)
    assert Counter(play.homes().values()) == Counter(play.homes(OTHER).values()) == {"a": 2, "b": 2}
    assert {row.epoch for row in play.rows.values()} == {1}
    play.wait(60)
    assert {row.epoch for row in play.rows.values()} == {1}
    assert play.noted("strategy_failed") == [TYPE, TYPE]
    "One line for `allocate` and one for `rebalance`, not one at each interval."
    assert play.machine.placement.strategies.failures[TYPE] > 8
    assert TYPE in play.machine.placement.strategies.failing


@pytest.mark.parametrize(
    "moves",
    [
        raises,
        lambda *_: None,
        lambda *_: 7,
        lambda *_: ["1"],
        lambda *_: [99],
        lambda *_: [[1]],
        lambda *_: "12",
        coroutine,
    ],
)
def test_a_rebalance_that_fails_moves_nothing(moves: Callable[..., Any]) -> None:
    play = Play(two_nodes(), strategy=Broken(lambda *_: "a", moves))
    play.ask("a", 1, 2)
    play.wait(60)
    assert play.homes() == {1: "a", 2: "a"}
    assert play.noted("strategy_failed") == [TYPE]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raises", "allocate raised KeyError: 'no such region'"),
        ("a number", "allocate answered 1, not "),
        ("a coroutine", "allocate answered a coroutine, not "),
    ],
)
def test_the_timeline_says_how_a_strategy_has_failed(how: str, told: str) -> None:
    play = Play(two_nodes(), strategy=Broken(NONSENSE[how], raises))
    play.ask("a", 1)
    (first, *_) = [each.detail for each in play.notes if each.action == "strategy_failed"]
    assert first.startswith(told)


def test_a_strategy_that_cannot_be_found_is_told_and_the_default_takes_its_place() -> None:
    play = Play(two_nodes(), strategy_of=raises)
    play.ask("a", 1, 2)
    assert play.homes() == {1: "a", 2: "b"}
    assert {each.detail for each in play.notes if each.action == "strategy_failed"} == {
        "strategy raised KeyError: 'no such region'"
    }
    strategies = play.machine.placement.strategies
    assert not strategies.wants_locations(TYPE)
    assert strategies.failing == {TYPE: "wants_locations raised KeyError: 'no such region'"}


def test_a_strategy_cannot_change_what_the_coordinator_knows() -> None:
    def answer(requester: Any, shard: int, allocations: Any, view: Any) -> str:
        for name in ("clear", "popitem", "changed"):
            assert not hasattr(allocations, name)
        assert not hasattr(allocations["a"], "clear")
        assert list(allocations) == ["a", "b"]
        return str(min(allocations, key=lambda each: len(allocations[each])))

    play = Play(two_nodes(), strategy=Broken(answer))
    play.ask("a", 1, 2, 3, 4)
    assert Counter(play.homes().values()) == {"a": 2, "b": 2}
    assert not play.noted("strategy_failed")


def test_a_strategy_that_takes_long_is_left_alone_for_a_while() -> None:
    clock = 0.0

    def slow(*_: Any) -> str:
        nonlocal clock
        clock += 0.6
        return "a"

    play = Play(two_nodes(), strategy=Broken(slow), strategy_clock=lambda: clock)
    play.ask("a", 1, 2)
    assert play.homes() == {1: "a", 2: "a"}
    assert play.noted("strategy_failed") == [TYPE]
    before = play.machine.placement.strategies.failures[TYPE]
    play.ask("a", 3, 4)
    assert play.homes() == {1: "a", 2: "a", 3: "b", 4: "b"}
    assert play.machine.placement.strategies.failures[TYPE] > before, "each decision without it counts"
    clock += 120
    play.ask("a", 5)
    assert play.homes()[5] == "a"


def test_a_strategy_that_takes_long_now_and_then_is_asked_on() -> None:
    """What it took is added up within ten seconds, not for ever."""
    clock = 0.0

    def slow(*_: Any) -> str:
        nonlocal clock
        clock += 0.75
        return "a"

    play = Play(two_nodes(), strategy=Broken(slow), strategy_clock=lambda: clock)
    for shard in range(6):
        play.ask("a", shard)
        clock += 9.25
    assert set(play.homes().values()) == {"a"}
    assert play.noted("strategy_failed") == []
    play.ask("a", 6)
    play.ask("a", 7)
    assert play.noted("strategy_failed") == [TYPE], "two within ten seconds"


@pytest.mark.parametrize("kind", sorted(OWN, key=str))
def test_a_strategy_of_this_package_is_not_timed(kind: Callable[[], ShardAllocationStrategy]) -> None:
    play = Play(two_nodes(), strategy=kind(), strategy_clock=count(0.0, 2.0).__next__)
    play.ask("a", 1, 2)
    play.wait(60)
    assert sorted(play.homes()) == [1, 2]
    assert play.noted("strategy_failed") == []


def test_each_strategy_of_this_package_is_known_as_such() -> None:
    modules = (
        importlib.import_module(f"{allocation.__name__}.{each.name}")
        for each in pkgutil.iter_modules(allocation.__path__)
    )
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "rebalance")
    }
    assert found - {ShardAllocationStrategy} == OWN


def test_a_strategy_that_works_again_is_no_longer_said_to_fail() -> None:
    broken = Broken(raises)
    play = Play(two_nodes(), strategy=broken)
    play.ask("a", 1)
    broken.answer = lambda *_: "b"
    play.ask("a", 2)
    assert play.homes()[2] == "b"
    assert play.machine.placement.strategies.failing == {}


# -- Rows that the store refuses -------------------------------------------------------------------


def test_a_new_shard_whose_row_the_store_refuses_is_dropped_and_its_asker_told() -> None:
    play = Play(two_nodes())
    play.refused.add((TYPE, 2))
    play.ask("p-web", 1, 2, 3)
    play.wait(3)
    assert sorted(play.homes()) == [1, 3]
    assert [(each.reason, each.shards) for each in play.heard("p-web", NoHome)] == [("refused", [2])]
    assert (TYPE, 2) not in play.machine.tables.writing
    assert not play.machine.waiters
    allocated = play.machine.placement.allocated[TYPE]
    assert sorted(shard for shards in allocated.values() for shard in shards) == [1, 3]
    play.refused.clear()
    play.ask("p-web", 2)
    assert 2 in play.homes()


def test_a_new_shard_that_the_store_says_nothing_of_is_dropped_and_its_asker_told() -> None:
    """The cluster knows no such type: no row can be made."""
    play = Play(two_nodes())
    machine = play.machine
    machine.get_shard_home("a", TYPE, [1], play.now)
    (decide,) = [each for each in machine.outbox.effects if isinstance(each, Decide)]
    machine.outbox.take()
    machine.decided(decide.changes, [], play.now)
    play.play()
    assert [(each.reason, each.shards) for each in play.heard("a", NoHome)] == [("refused", [1])]
    assert machine.waiters == {}
    assert play.homes() == {}


def test_a_refused_change_of_a_dead_homes_shard_keeps_its_end_from_being_told() -> None:
    """Its epoch is not raised yet: what the dead home had may still be committed by it."""
    play = Play(two_nodes())
    play.ask("a", 1, 2, 3, 4)
    lost = play.shards_of("b")
    play.refused.add((TYPE, lost[0]))
    play.die("b")
    play.wait(2)
    assert play.homes()[lost[1]] == "a"
    assert play.homes()[lost[0]] == "b"
    assert play.decided_times < 20
    assert not play.gone("a")
    play.refused.clear()
    play.wait(10)
    assert set(play.homes().values()) == {"a"}
    assert play.gone("a") == ["b"]


# -- Rows that are gone ----------------------------------------------------------------------------


def test_rows_deleted_under_a_running_coordinator_are_read_again_and_made_anew() -> None:
    play = Play(two_nodes())
    play.ask("p-web", *range(6))
    for shard in range(6):
        del play.rows[TYPE, shard]
    play.die("b")
    play.wait(5)
    play.ask("p-web", *range(6))
    play.wait(1)
    assert play.homes() == dict.fromkeys(range(6), "a")
    # A node that still holds the deleted rows' epochs stays fenced.
    assert all(row.epoch >= 2 for row in play.rows.values())
    assert play.decided_times < 12
    assert all(told_home(play, "p-web", shard) == "a" for shard in range(6))


def test_a_shard_that_is_no_more_when_its_move_is_answered_is_forgotten() -> None:
    play = Play([node("a", 1), node("b", 2)], rows=[ShardRow(TYPE, 5, 1, "a", "home")])

    def removed(change: HomeChange) -> None:
        del play.rows[TYPE, change.shard]
        play.machine.types_read({TYPE: Numbering(3)})

    play.on_decide = removed
    play.machine.handoffs.begin([(TYPE, 5)], play.now, "b")
    play.play()
    assert play.machine.placement.rows == {}
    assert not play.machine.busy


def test_a_row_that_is_found_to_be_on_its_way_is_brought_to_its_end() -> None:
    """An operator has put back an older state of the row, among others that have vanished."""
    play = Play(two_nodes())
    play.ask("p-web", 1, 2)
    row = play.rows[TYPE, 1]
    play.rows[TYPE, 1] = msgspec.structs.replace(row, step="handoff")
    del play.rows[TYPE, 2]
    play.machine.rows_read([TYPE], list(play.rows.values()), play.now)
    play.play()
    play.wait(2)
    assert play.rows[TYPE, 1].step == "home"
    assert play.rows[TYPE, 1].epoch == row.epoch + 1


def test_a_home_that_finds_no_row_of_its_shard_says_so_and_gets_a_new_one() -> None:
    play = Play(two_nodes())
    play.ask("p-web", 1)
    home = play.homes()[1]
    assert home is not None
    play.rows.clear()
    play.machine.given_up(home, TYPE, [1], [1])
    play.play()
    play.wait(1)
    assert play.rows[TYPE, 1].epoch == 2


def test_rows_that_went_back_in_time_are_taken_as_they_are_and_their_epochs_never_used_again() -> None:
    play = Play(two_nodes(), rows=[ShardRow(TYPE, 1, 7, "b", "home")])
    play.rows[TYPE, 1] = ShardRow(TYPE, 1, 3, "b", "home")
    play.die("b")
    play.wait(5)
    assert play.rows[TYPE, 1].home == "a"
    assert play.rows[TYPE, 1].epoch > 7
    assert play.decided_times < 8


def test_the_helper_writes_what_a_store_would() -> None:
    """Guards the tests above: a change whose expected epoch is wrong changes nothing."""
    play = Play(two_nodes())
    play.ask("a", 1)
    before = dict(play.rows)
    change = HomeChange(TYPE, 1, 9, 10, "b", "home")
    play.machine.outbox.decide([change])
    play.play()
    assert play.rows == before
    assert not [each for each in play.machine.outbox.effects if isinstance(each, Note)]


@pytest.mark.parametrize("version", ["9" * 5000, "", "²", "1..2", "\ud800", "1." * 2000])
def test_any_version_that_a_node_may_say_is_ordered(version: str) -> None:
    """Python reads no int of more than 4300 digits: such a node ended one coordinator after the
    other.
    """
    play = Play([node("a", 1), node("b", 2, app_version=version)])
    play.ask("p-web", *range(4))
    assert set(play.homes().values()) <= {"a", "b"}
    assert version_key("1.9.0") < version_key("1.10.0") < version_key("1.10.1")
    assert version_key("1.0-rc") < version_key("1.0")
    assert version_key("01.2") == version_key("1.2")
