"""What the coordinator does while further journals may have shards whose rows are lost."""

from sharding_app.protocol.coordinator.terms import lowest_epoch, next_term
from sharding_app.protocol.records import ShardRow
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node, told_home

TERM = next_term(1, same_lineage=False, now_seconds=1_700_000_000)


def unread(*rows: ShardRow) -> Play:
    play = Play([node("a", 1), node("b", 2)], rows=rows, term=TERM, numbers={TYPE: 6}, unread={"journal_b"})
    assert play.machine.placement.unread
    return play


def stopped(shard: int, epoch: int) -> ShardRow:
    return ShardRow(TYPE, shard, epoch, None, "stopped")


def test_a_shard_without_a_row_waits_and_those_with_one_go_on() -> None:
    play = unread(ShardRow(TYPE, 1, 4, "gone", "home"), stopped(2, 4))
    play.ask("p-1", 1, 2, 3)
    play.wait(5)
    assert play.homes()[1] in ("a", "b"), "its home is dead"
    assert play.homes()[2] in ("a", "b")
    assert 3 not in play.homes()
    assert told_home(play, "p-1", 3) is None, "the call waits"
    assert not play.machine.busy


def test_shards_that_are_found_get_homes_above_their_epochs_and_new_ones_their_first() -> None:
    play = unread(stopped(2, 4))
    play.ask("p-1", 3, 4)
    found = stopped(3, lowest_epoch(TERM) + 7)
    play.rows[TYPE, 3] = found
    play.machine.journals_read(list(play.rows.values()), play.now)
    play.play()
    assert play.rows[TYPE, 3].home in ("a", "b")
    assert play.rows[TYPE, 3].epoch == found.epoch + 1
    assert play.rows[TYPE, 4].epoch == lowest_epoch(TERM)
    assert told_home(play, "p-1", 3)
    assert told_home(play, "p-1", 4)
    assert [(each.subject, each.detail) for each in play.notes if each.action == "shards_restored"] == [
        (TYPE, "3")
    ]


def test_rows_that_are_known_stay_as_they_are() -> None:
    """A decision may have been written since they were read."""
    play = unread(stopped(2, 4))
    play.ask("p-1", 2)
    home = play.rows[TYPE, 2]
    assert home.home
    play.machine.journals_read([stopped(2, 4)], play.now)
    play.play()
    play.wait(5)
    assert play.rows[TYPE, 2] == home
    assert not [each for each in play.notes if each.action == "shards_restored"]
