"""DATABASE fails over to an asynchronous standby, and loses that shards have moved. No command
takes what the former journal has left for what the shards have stored.
"""

from __future__ import annotations

import pytest

from sharding_app.protocol.moving import CannotMove
from tests.integration.adapters.postgres import test_moving
from tests.integration.adapters.postgres.test_moving import IDS, THERE, Both

both, databases = test_moving.both, test_moving.databases
SOME = IDS[:12]


def loses_the_switch(both: Both, source: str) -> None:
    """Let the cluster's rows say again that the shards lie where they were, and move."""
    both.run("", "UPDATE sharding_shard SET journal = %s", source)
    both.run("", "UPDATE sharding_move SET step = 'copying'")


@pytest.fixture
def moved_back(both: Both) -> Both:
    """Shards lay in the further journal, and have moved to DATABASE."""
    both.fill("", SOME)
    both.move()
    both.delete()
    both.move("")
    return both


@pytest.mark.parametrize("command", [lambda both: both.move(""), Both.cancel])
def test_a_shard_is_not_copied_from_a_journal_that_it_has_left(moved_back: Both, command: object) -> None:
    """Its messages, timers and remembered ids are gone there."""
    before = moved_back.stored("")
    assert before["message"]
    loses_the_switch(moved_back, THERE)
    assert callable(command)
    with pytest.raises(CannotMove, match="DATABASE has lost"):
        command(moved_back)
    assert moved_back.stored("") == before


def test_a_shard_that_was_put_right_by_hand_is_no_copy(both: Both) -> None:
    """The row of its move still says that it is being copied."""
    both.fill("", SOME)
    both.move()
    before = both.stored(THERE)
    loses_the_switch(both, "")
    both.run("", "UPDATE sharding_shard SET journal = %s", THERE)
    with pytest.raises(CannotMove, match="lie there no more"):
        both.cancel()
    assert both.stored(THERE) == before
    both.run("", "UPDATE sharding_move SET step = 'moved'")
    assert both.cancel() == []
    assert both.stored(THERE) == before
