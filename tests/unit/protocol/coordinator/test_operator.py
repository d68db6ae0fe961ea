"""What an operator asks of the coordinator: done and told, or refused with a reason; and what the
timeline says of timeline.
"""

import pytest

from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.coordinator.timeline import (
    GATHER_PLACED_SECONDS,
    SHARDS_IN_A_LINE,
    Timeline,
    ranges,
    within,
)
from sharding_app.protocol.messages import OperatorRequest, ReplyCode
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node


def request(play: Play, action: str, **details: object) -> tuple[ReplyCode, str]:
    asked = OperatorRequest(1, action, by="root", **details)  # type: ignore[arg-type] # as given
    outcome = play.machine.operator.carry_out(asked, play.now)
    play.play()
    return outcome


def two(*, shards: int = 4) -> Play:
    play = Play([node("a", 1), node("b", 2)], settings=CoordinatorSettings(rebalance_interval_seconds=1e9))
    play.ask("a", *range(shards))
    return play


def test_a_shard_is_moved_to_where_the_operator_wants_it() -> None:
    play = two()
    shard = next(shard for shard, home in play.homes().items() if home == "a")
    code, text = request(play, "move", type=TYPE, shard=shard, target="b")
    assert (code, text.partition(".")[0]) == (ReplyCode.DONE, "The shard moves")
    play.wait(1)
    assert play.homes()[shard] == "b"
    assert [(each.subject, each.detail) for each in play.notes if each.action == "move_asked"] == [
        (f"{TYPE}/{shard}", "by root")
    ]


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"type": TYPE, "shard": 99, "target": "b"}, "has no home yet"),
        ({"type": "shop.Gone", "shard": 0, "target": "b"}, "has no home yet"),
        ({"type": TYPE, "shard": 0, "target": "x"}, "cannot take shards"),
        ({"type": TYPE, "shard": 0, "target": "a"}, "already there"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused_with_a_reason(details: dict[str, object], reason: str) -> None:
    play = two()
    play.wait(1)
    assert play.homes()[0] == "a"
    code, text = request(play, "move", **details)
    assert code is ReplyCode.REFUSED
    assert reason in text
    assert not [each for each in play.notes if each.action == "move_asked"]


def test_a_shard_does_not_move_to_a_node_that_leaves() -> None:
    play = two()
    play.change("b", state="leaving")
    assert request(play, "move", type=TYPE, shard=0, target="b")[0] is ReplyCode.REFUSED


def test_one_type_alone_is_rebalanced() -> None:
    play = Play([node("a", 1)], settings=CoordinatorSettings(rebalance_interval_seconds=1e9))
    play.ask("a", *range(10))
    play.join(node("b", 2))
    code, text = request(play, "rebalance", type="shop.Gone")
    assert (code, "nothing to move" in text) == (ReplyCode.REFUSED, True)
    assert set(play.homes().values()) == {"a"}
    assert request(play, "rebalance", type=TYPE)[0] is ReplyCode.DONE
    play.wait(1)
    assert set(play.homes().values()) == {"a", "b"}


def test_two_operators_cannot_move_a_shard_at_once() -> None:
    play = two()
    play.silent.add("a")
    carry_out = play.machine.operator.carry_out
    code, _ = carry_out(OperatorRequest(1, "move", TYPE, 0, target="b", by="one"), play.now)
    assert code is ReplyCode.DONE
    code, text = carry_out(OperatorRequest(2, "move", TYPE, 0, target="b", by="other"), play.now)
    assert (code, "already moving" in text) == (ReplyCode.REFUSED, True)
    play.play()
    play.wait(2.0)
    assert (TYPE, 0) not in play.machine.tables.writing, "its home is to stop it"
    assert request(play, "move", type=TYPE, shard=0, target="b")[0] is ReplyCode.REFUSED


def test_rebalancing_is_asked_for_paused_and_let_go_on() -> None:
    play = Play([node("a", 1)], settings=CoordinatorSettings(rebalance_interval_seconds=1e9))
    play.ask("a", *range(10))
    assert request(play, "pause")[0] is ReplyCode.DONE
    assert request(play, "pause") == (ReplyCode.REFUSED, "Rebalancing is already paused.")
    play.join(node("b", 2))
    code, text = request(play, "rebalance")
    assert (code, "paused" in text) == (ReplyCode.REFUSED, True)
    assert request(play, "resume")[0] is ReplyCode.DONE
    assert request(play, "resume") == (ReplyCode.REFUSED, "Rebalancing is not paused.")
    code, text = request(play, "rebalance")
    assert (code, "will move" in text) == (ReplyCode.DONE, True)
    play.wait(2)
    assert len(play.shards_of("b")) > 0
    assert [each.action for each in play.notes if each.action.startswith("rebalancing")] == [
        "rebalancing_paused", "rebalancing_resumed", "rebalancing_asked",
    ]  # fmt: skip


def test_asking_to_rebalance_a_cluster_that_is_about_to_stop_is_refused() -> None:
    play = two()
    for name in "ab":
        play.change(name, asked="stop")
    play.wait(1)
    code, text = request(play, "rebalance")
    assert (code, "about to stop" in text) == (ReplyCode.REFUSED, True)


def test_asking_to_rebalance_what_is_balanced_says_so() -> None:
    play = two()
    play.wait(1)
    code, text = request(play, "rebalance")
    assert (code, text.startswith("Nothing has to move")) == (ReplyCode.DONE, True)
    play.change("b", state="leaving")
    play.wait(2)
    assert request(play, "rebalance")[1].startswith("Nothing moves")


def test_an_unknown_request_is_refused() -> None:
    assert request(two(), "dance") == (
        ReplyCode.REFUSED,
        "The coordinator does not know the request 'dance'.",
    )


# -- The timeline ----------------------------------------------------------------------------------


def test_the_timeline_tells_where_shards_were_placed_and_moved_with_their_pause() -> None:
    play = two(shards=4)
    play.wait(GATHER_PLACED_SECONDS + 1, step=0.5)
    placed = {each.detail for each in play.notes if each.action == "shards_placed"}
    assert placed == {"0,2 at a", "1,3 at b"}
    request(play, "move", type=TYPE, shard=0, target="b")
    play.wait(2)
    (moved,) = [each for each in play.notes if each.action == "shards_moved"]
    assert moved.subject == TYPE
    assert moved.detail.startswith("0 from a to b, away for ")


def test_the_timeline_tells_which_version_a_node_runs() -> None:
    play = Play([node("a", 1, app_version="7")])
    play.join(node("b", 2, app_version="8", state="joining"), node("c", 3))
    told = {each.subject: each.detail for each in play.notes if each.action in ("node_joining", "node_up")}
    assert {name: told[name] for name in "bc"} == {"b": "node-b, version 8", "c": "node-c"}


def test_first_homes_are_gathered_for_a_while_and_told_in_one_line() -> None:
    """A cluster that grows shard by shard would fill the timeline with them."""
    outbox = Outbox(1)
    timeline = Timeline(outbox)
    for shard in range(3):
        timeline.started((TYPE, shard), "a", 100.0 + shard)
        timeline.tick(100.0 + shard, busy=False)
    timeline.tick(100.0 + GATHER_PLACED_SECONDS - 0.5, busy=False)
    assert outbox.effects == []
    timeline.tick(100.0 + GATHER_PLACED_SECONDS, busy=False)
    assert len(outbox.effects) == 1


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
    outbox = Outbox(1)
    timeline = Timeline(outbox)
    for shard in range(2 * SHARDS_IN_A_LINE + 1):
        timeline.began((TYPE, shard), "b", 0.0)
        timeline.started((TYPE, shard), "a", 0.0)
    timeline.tick(0.5, busy=True)
    assert outbox.effects == []
    timeline.tick(0.5, busy=False)
    assert len(outbox.effects) == 3
    timeline.tick(9.0, busy=False)
    assert len(outbox.effects) == 3


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([7], "7"), ([1, 2, 3], "1-3"), ([0, 2, 3, 9], "0,2-3,9")]
)
def test_numbers_in_short(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
    assert [number for number in range(12) if within(f"{text} at a", number)] == numbers
