"""Replies that follow a commit, also that of an object which was dropped."""

import pytest

from sharding_app.protocol.shard import Shard
from sharding_app.runtime.journal.commits import LastCommit, NotCommitted, Resident


class Last(LastCommit):
    def committed(self) -> None:
        pass

    def not_committed(self, why: NotCommitted, detail: str) -> None:
        if why is NotCommitted.REFUSED:
            self.slot.drop_object()
        if detail:
            raise ValueError(detail)


def a_slot() -> Resident:
    slot = Resident("a", Shard("shop.Cart", 0, 1, Resident))
    slot.tail = Last(slot, ())
    return slot


def test_the_last_commit_of_a_dropped_object_is_known_until_it_has_failed() -> None:
    slot = a_slot()
    last = slot.tail
    assert last is not None
    slot.drop_object()
    assert (slot.tail, slot.doomed) == (None, last)
    told: list[NotCommitted | None] = []
    last.follow(told.append)
    last.resolved(NotCommitted.SUPERSEDED)
    assert told == [NotCommitted.SUPERSEDED]
    assert slot.doomed is None


def test_one_whose_own_failure_drops_the_object_is_soon_over() -> None:
    slot = a_slot()
    last = slot.tail
    assert last is not None
    last.resolved(NotCommitted.REFUSED)
    assert slot.tail is slot.doomed is None


def test_one_that_is_over_when_the_object_is_dropped_is_waited_for_no_more() -> None:
    slot = a_slot()
    assert slot.tail is not None
    slot.tail.resolved(NotCommitted.FENCED)
    slot.drop_object()
    assert slot.doomed is None


def test_one_whose_consequences_fail_is_over_too() -> None:
    slot = a_slot()
    last = slot.tail
    assert last is not None
    slot.drop_object()
    with pytest.raises(ValueError, match="a bug"):
        last.resolved(NotCommitted.SUPERSEDED, "a bug")
    assert last.is_resolved


def test_followers_are_told_behind_an_error_in_the_outcome() -> None:
    last = a_slot().tail
    assert last is not None
    told: list[NotCommitted | None] = []

    def fails(why: NotCommitted | None) -> None:
        raise ValueError("another bug")

    for follower in (told.append, fails, told.append):
        last.follow(follower)
    with pytest.raises(ValueError, match="a bug"):
        last.resolved(NotCommitted.FENCED, "a bug")
    assert told == [NotCommitted.FENCED] * 2
    assert last.is_resolved
