"""What the random lives have found once, each as a short history of its own."""

from collections.abc import Iterator
from typing import Any

import pytest

from sharding_app import NotSerializable, ShardingSettings, Unavailable, UnreadableEvent
from sharding_app.adapters.memory.journal_writes import JournalWrites
from sharding_app.adapters.memory.steps import Steps
from sharding_app.entities.registry import registry
from tests.simulation.lives.ledgers import (
    KINDS,
    PAUSE_SECONDS,
    QUICK,
    Hot,
    HotValue,
    Kind,
    Ledger,
    Trimmed,
    said,
)
from tests.simulation.lives.lives import RETENTION_SECONDS, WINDOW_SECONDS, Life

with registry.isolated():

    class OnlyWithRows(Ledger, name="properties.OnlyWithRows"):
        settings = ShardingSettings(snapshot_every=2, keep_snapshots=1).over(QUICK)


@pytest.fixture
def life() -> Iterator[Life]:
    made = Life([*KINDS, OnlyWithRows])
    made.run(made.begin(nodes=1))
    try:
        yield made
        made.run(made.settle())
        made.run(made.look())
        made.run(made.recover())
    finally:
        made.run(made.end())
        made.close()


@pytest.mark.parametrize("kind", [Hot, HotValue])
@pytest.mark.parametrize("operation", ["slow_steps", "slowly", "with_row", "in_steps", "total_slowly"])
def test_what_runs_on_a_lost_object_stores_nothing(life: Life, kind: Kind, operation: str) -> None:
    """The commit before it fails while its handler waits, or before it has even begun: a new object
    takes over.
    """
    life.call(kind, "a", "add", named=False)
    life.run(life.pass_time(0.2))
    life.cluster.fail_next_write(kind, "a")
    refused = life.call(kind, "a", "add", named=False)
    behind = life.call(kind, "a", operation, named=False)
    life.run(life.pass_time(PAUSE_SECONDS / 2))
    after = life.call(kind, "a", "add", named=False)
    life.run(life.settle())
    assert isinstance(refused.attempts[0].error, NotSerializable)
    assert isinstance(behind.attempts[0].error, Unavailable)
    assert "nothing of this one is stored" in str(behind.attempts[0].error)
    assert after.attempts[0].reply == said(["t1.1", "t4.1"])


def test_a_fenced_query_does_not_tell_of_a_commit_that_failed(life: Life) -> None:
    life.call(Hot, "a", "add", named=False)
    life.run(life.pass_time(0.2))
    life.cluster.fail_next_write(Hot, "a")
    life.trouble.next("append", "slow")
    life.trouble.next("homes", "slow")
    life.call(Hot, "a", "add", named=False)
    sure = life.call(Hot, "a", "total_surely", named=False)
    life.run(life.settle())
    assert isinstance(sure.attempts[0].error, Unavailable)


@pytest.mark.parametrize("kind", [Hot, HotValue])
def test_a_retry_behind_a_commit_that_failed_gets_its_first_reply(life: Life, kind: Kind) -> None:
    """It must not hear that nothing of it is stored."""
    once = life.call(kind, "a", "add", named=True)
    life.run(life.pass_time(0.2))
    life.cluster.fail_next_write(kind, "a")
    life.call(kind, "a", "add", named=False)
    life.again(kind, "a", once)
    after = life.call(kind, "a", "add", named=False)
    life.run(life.settle())
    assert [each.reply for each in once.attempts] == [said(["t1.1"])] * 2
    assert after.attempts[0].reply == said(["t1.1", "t3.1"])


def test_an_id_is_remembered_while_a_retry_may_be_under_way(life: Life) -> None:
    """Sent within the window, handled after it, and its first attempt is old enough to be trimmed
    by then.
    """
    once = life.call(Trimmed, "a", "add", named=True)
    life.run(life.pass_time(WINDOW_SECONDS - 1))
    for _ in range(60):
        life.call(Trimmed, "a", "slowly", named=False)
    life.again(Trimmed, "a", once)
    life.run(life.settle())
    assert [each.reply for each in once.attempts] == [said(["t1.1"])] * 2


def test_commits_with_rows_count_for_snapshots(life: Life) -> None:
    for _ in range(4):
        life.call(OnlyWithRows, "a", "with_row", named=False)
        life.run(life.pass_time(0.2))
    assert [each.seq for each in life.cluster.snapshots(OnlyWithRows, "a")] == [4]


def many_years(life: Life) -> list[int]:
    """Let an entity with a snapshot alone until its events are old, and return those that stay."""
    for _ in range(4):
        life.call(Trimmed, "a", "add", named=False)
        life.run(life.pass_time(0.2))
    life.run(life.pass_time(2 * WINDOW_SECONDS + 2 * RETENTION_SECONDS))
    return list(life.cluster._rows(Trimmed, "a"))


def test_events_of_an_entity_that_is_left_alone_go(life: Life) -> None:
    assert many_years(life) == [4]


def test_a_snapshot_that_goes_with_its_events_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake is planted: no recovery is possible any more."""
    trim = JournalWrites.trim

    def too_far(self: JournalWrites, type_id: int, entity: str, *rest: Any, **more: Any) -> Steps[int]:
        gone = yield from trim(self, type_id, entity, *rest, **more)
        if gone:
            self._rows.snapshots.pop((type_id, entity))
        return gone

    monkeypatch.setattr(JournalWrites, "trim", too_far)
    life = Life([Trimmed])
    life.run(life.begin(nodes=1))
    try:
        assert many_years(life) == [4]
        life.cluster.forget(Trimmed)
        with pytest.raises(UnreadableEvent, match="the journal has no number 1"):
            life.run(life.recover())
    finally:
        life.run(life.end())
        life.close()
