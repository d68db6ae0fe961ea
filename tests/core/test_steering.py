"""What an operator asks of the coordinator: done and told, or refused with a reason; and what the timeline says of moves."""

import pytest

from sharding_app.core.coordinator import CoordinatorSettings
from sharding_app.core.messages import Steer
from sharding_app.core.moves import GATHER_PLACED_SECONDS, SHARDS_IN_A_LINE, Moves, ranges, within
from sharding_app.core.steering import steer
from tests.core.coordination import TYPE, Play, node


def wish(play: Play, action: str, **details: object) -> tuple[bool, str]:
    outcome = steer(play.machine, Steer(1, action, by="root", **details), play.now)  # type: ignore[arg-type] # as given
    play.play()
    return outcome


def two(*, shards: int = 4) -> Play:
    play = Play([node("a", 1), node("b", 2)], settings=CoordinatorSettings(rebalance_interval_seconds=1e9))
    play.ask("a", *range(shards))
    return play


def test_a_shard_is_moved_to_where_the_operator_wants_it() -> None:
    play = two()
    shard = next(shard for shard, home in play.homes().items() if home == "a")
    done, text = wish(play, "move", type=TYPE, shard=shard, target="b")
    assert (done, text.partition(":")[0]) == (True, "The shard moves")
    play.wait(1)
    assert play.homes()[shard] == "b"
    assert [(each.subject, each.detail) for each in play.notes if each.action == "move_asked"] == [
        (f"{TYPE}/{shard}", "by root")
    ]


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"type": TYPE, "shard": 99, "target": "b"}, "lives nowhere"),
        ({"type": "shop.Gone", "shard": 0, "target": "b"}, "lives nowhere"),
        ({"type": TYPE, "shard": 0, "target": "x"}, "cannot take shards"),
        ({"type": TYPE, "shard": 0, "target": "a"}, "lives there already"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused_with_a_reason(details: dict[str, object], reason: str) -> None:
    play = two()
    play.wait(1)
    assert play.homes()[0] == "a"
    done, text = wish(play, "move", **details)
    assert not done
    assert reason in text
    assert not [each for each in play.notes if each.action == "move_asked"]


def test_a_shard_does_not_move_to_a_node_that_leaves() -> None:
    play = two()
    play.change("b", state="leaving")
    assert wish(play, "move", type=TYPE, shard=0, target="b")[0] is False


def test_one_type_alone_is_rebalanced() -> None:
    play = Play([node("a", 1)], settings=CoordinatorSettings(rebalance_interval_seconds=1e9))
    play.ask("a", *range(10))
    play.join(node("b", 2))
    done, text = wish(play, "rebalance", type="shop.Gone")
    assert (done, "nothing to move" in text) == (False, True)
    assert set(play.homes().values()) == {"a"}
    assert wish(play, "rebalance", type=TYPE)[0]
    play.wait(1)
    assert set(play.homes().values()) == {"a", "b"}


def test_two_operators_cannot_move_a_shard_at_once() -> None:
    play = two()
    play.silent.add("a")
    assert steer(play.machine, Steer(1, "move", TYPE, 0, target="b", by="one"), play.now)[0]
    done, text = steer(play.machine, Steer(2, "move", TYPE, 0, target="b", by="other"), play.now)
    assert (done, "moving already" in text) == (False, True)


def test_rebalancing_is_asked_for_paused_and_let_go_on() -> None:
    play = Play([node("a", 1)], settings=CoordinatorSettings(rebalance_interval_seconds=1e9))
    play.ask("a", *range(10))
    assert wish(play, "pause")[0]
    assert wish(play, "pause") == (False, "Rebalancing is paused already.")
    play.join(node("b", 2))
    done, text = wish(play, "rebalance")
    assert (done, "paused" in text) == (False, True)
    assert wish(play, "resume")[0]
    assert wish(play, "resume") == (False, "Rebalancing is not paused.")
    done, text = wish(play, "rebalance")
    assert (done, "will move" in text) == (True, True)
    play.wait(2)
    assert len(play.shards_of("b")) > 0
    assert [each.action for each in play.notes if each.action.startswith("rebalancing")] == [
        "rebalancing_paused", "rebalancing_resumed", "rebalancing_asked",
    ]  # fmt: skip


def test_asking_to_rebalance_what_is_balanced_says_so() -> None:
    play = two()
    play.wait(1)
    done, text = wish(play, "rebalance")
    assert (done, text.startswith("Nothing has to move")) == (True, True)
    play.change("b", state="leaving")
    play.wait(2)
    assert wish(play, "rebalance")[1].startswith("Nothing moves")


def test_an_unknown_wish_is_refused() -> None:
    assert wish(two(), "dance") == (False, "The coordinator does not know the wish 'dance'.")


# -- The timeline ------------------------------------------------------------------------------------------------------


def test_the_timeline_tells_where_shards_were_placed_and_moved_with_their_pause() -> None:
    play = two(shards=4)
    play.wait(GATHER_PLACED_SECONDS + 1, step=0.5)
    placed = {each.detail for each in play.notes if each.action == "shards_placed"}
    assert placed == {"0,2 at a", "1,3 at b"}
    wish(play, "move", type=TYPE, shard=0, target="b")
    play.wait(2)
    (moved,) = [each for each in play.notes if each.action == "shards_moved"]
    assert moved.subject == TYPE
    assert moved.detail.startswith("0 from a to b, away for ")


def test_the_shards_of_a_dead_node_are_told_as_moved() -> None:
    play = two(shards=4)
    play.wait(2)
    play.die("b")
    play.wait(2)
    (moved,) = [each for each in play.notes if each.action == "shards_moved"]
    assert moved.detail.startswith("1,3 from b to a")


def test_a_new_coordinator_does_not_tell_of_what_it_has_found() -> None:
    play = two(shards=4)
    play.wait(2)
    again = Play([node("a", 1), node("b", 2)], rows=play.rows.values())
    again.wait(GATHER_PLACED_SECONDS + 1, step=0.5)
    assert not [each for each in again.notes if each.action.startswith("shards_")]


def test_lines_are_bounded_and_can_be_searched() -> None:
    out: list[object] = []
    moves = Moves(out)
    for shard in range(2 * SHARDS_IN_A_LINE + 1):
        moves.began((TYPE, shard), "b", 0.0)
        moves.started((TYPE, shard), "a", 0.0)
    moves.tick(0.5, busy=True)
    assert out == []
    moves.tick(0.5, busy=False)
    assert len(out) == 3
    moves.tick(9.0, busy=False)
    assert len(out) == 3


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([7], "7"), ([1, 2, 3], "1-3"), ([0, 2, 3, 9], "0,2-3,9")]
)
def test_numbers_in_short(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
    assert [number for number in range(12) if within(f"{text} at a", number)] == numbers
