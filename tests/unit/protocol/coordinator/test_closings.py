"""What the coordinator does with shards that are closed for a move to another journal."""

import pytest

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.protocol.messages import OperatorRequest, ReplyCode, ShardHome
from sharding_app.protocol.records import ClosedShard, ShardRow
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node, told_home
from tests.unit.protocol.coordinator.test_resizing import a_store


def placed() -> tuple[Play, ClusterRows]:
    """Return a cluster of two nodes that are the homes of four shards, which are being copied."""
    store = a_store()
    play = Play([node("a", 1), node("b", 2)], store=store)
    play.ask("p-1", *range(4))
    assert all(play.homes().values())
    assert store.begin_move(TYPE, range(4), "two") == [0, 1, 2, 3]
    return play, store


def fence(store: ClusterRows, shard: int) -> None:
    """Do what a move does to the row of a closed shard without a home."""
    row = store.shards[TYPE, shard]
    assert row.home is None
    store.shards[TYPE, shard] = ShardRow(TYPE, shard, row.epoch + 1, None, "stopped")
    store.epochs[store.type_ids[TYPE], shard] = row.epoch + 1


def homeless(play: Play) -> list[int]:
    return [shard for shard, home in play.homes().items() if home is None]


def test_a_closed_shard_loses_its_home_and_the_others_keep_theirs() -> None:
    play, store = placed()
    others = {shard: home for shard, home in play.homes().items() if shard not in (1, 2)}
    store.close_until(TYPE, [1, 2], 60.0)
    play.read_closings()
    play.wait(5)
    assert homeless(play) == [1, 2]
    assert {shard: home for shard, home in play.homes().items() if shard in others} == others
    assert not play.machine.busy


def test_a_shard_that_is_opened_gets_a_home_by_its_row_of_then() -> None:
    play, store = placed()
    store.close_until(TYPE, [1], 60.0)
    play.read_closings()
    play.wait(5)
    play.ask("p-2", 1)
    play.wait(5)
    assert told_home(play, "p-2", 1) is None, "the call waits"
    fence(store, 1)
    before, decided = store.shards[TYPE, 1].epoch, play.decided_times
    store.open(TYPE, [1])
    play.read_closings()
    play.wait(1)
    assert store.shards[TYPE, 1].home is not None
    assert store.shards[TYPE, 1].epoch == before + 1
    assert play.decided_times == decided + 1, "no decision was made by a former row"
    assert told_home(play, "p-2", 1) == store.shards[TYPE, 1].home


def test_a_new_coordinator_knows_the_closed_shards() -> None:
    _, store = placed()
    store.close_until(TYPE, [0, 3], 60.0)
    later = Play([node("a", 1), node("b", 2)], store=store, term=2)
    later.wait(5)
    assert homeless(later) == [0, 3]
    store.open(TYPE, [0, 3])
    later.read_closings()
    later.wait(5)
    assert homeless(later) == []


def test_a_hand_off_under_way_ends_without_a_home() -> None:
    play, store = placed()
    play.silent.update("ab")
    target = "b" if play.homes()[1] == "a" else "a"
    play.machine.handoffs.begin([(TYPE, 1)], play.now, target)
    play.play()
    store.close_until(TYPE, [1], 60.0)
    play.read_closings()
    play.silent.clear()
    play.wait(5)
    assert homeless(play) == [1]


def test_the_database_gives_no_home_and_the_coordinator_learns_it() -> None:
    """Its memory is behind: the shard leaves one home for another, and has none afterwards."""
    play, store = placed()
    target = "b" if play.homes()[1] == "a" else "a"
    store.close_until(TYPE, [1], 60.0)
    play.machine.handoffs.begin([(TYPE, 1)], play.now, target)
    play.play()
    play.wait(1)
    assert homeless(play) == [1]
    assert play.machine.placement.closed == {(TYPE, 1): "two"}
    decided = play.decided_times
    play.wait(5)
    assert play.decided_times == decided, "it does not try again"


def test_the_shards_of_a_dead_home_are_fenced_though_one_is_closed() -> None:
    """The closed one too, before any process hears that the node is gone."""
    play, store = placed()
    dead = play.homes()[1]
    assert dead is not None
    before = {shard: store.shards[TYPE, shard].epoch for shard in play.shards_of(dead)}
    store.close_until(TYPE, [1], 60.0)
    play.die(dead)
    assert homeless(play) == [1]
    assert all(store.shards[TYPE, shard].epoch > epoch for shard, epoch in before.items())
    assert play.gone("b" if dead == "a" else "a") == [dead]


@pytest.mark.parametrize("known", [True, False])
def test_shards_without_a_home_stay_as_they_are(known: bool) -> None:
    play, store = placed()
    store.close_until(TYPE, [1], 60.0)
    play.read_closings()
    play.wait(5)
    row = store.shards[TYPE, 1]
    if not known:
        play.machine.closings_read([], [row], play.now)
        play.play()
    play.ask("p-2", 1)
    play.wait(5)
    assert store.shards[TYPE, 1] == row
    assert not [each for each in play.heard("p-2", ShardHome) if 1 in each.shards]


def test_no_operator_moves_a_closed_shard_to_a_node() -> None:
    play, store = placed()
    home = play.homes()[1]
    store.close_until(TYPE, [1], 60.0)
    play.silent.update("ab")
    play.read_closings()
    request = OperatorRequest(
        request=1, action="move", type=TYPE, shard=1, target="b" if home == "a" else "a", by="me"
    )
    code, text = play.machine.operator.carry_out(request, play.now)
    assert code is ReplyCode.REFUSED
    assert "another journal" in text


def test_lapsed_closings_are_noted_together() -> None:
    play, _ = placed()
    play.machine.closings.lapsed([ClosedShard(TYPE, shard, "two") for shard in (3, 0, 1)])
    play.play()
    (line,) = [each for each in play.notes if each.action == "shards_opened"]
    assert line.subject == TYPE
    assert line.detail.startswith("0-1,3: ")
    assert "'two'" in line.detail


def test_nothing_is_handed_off_for_a_closing_while_the_cluster_stops() -> None:
    play, store = placed()
    play.change("a", asked="prepare")
    store.close_until(TYPE, [1], 60.0)
    play.read_closings()
    play.wait(5)
    assert homeless(play) == []


def test_no_resize_begins_while_shards_move() -> None:
    _, store = placed()
    assert not store.resize(TYPE, 4, 8)
    store.moves.clear()
    assert store.resize(TYPE, 4, 8)
