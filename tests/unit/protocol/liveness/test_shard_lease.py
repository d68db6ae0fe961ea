"""The machine of shards' leases, step by step."""

import pytest

from sharding_app.protocol.liveness.shard_lease import (
    Acquire,
    Granted,
    LeaseEffect,
    LeaseTerms,
    Lost,
    Refused,
    Release,
    Renew,
    ShardLeases,
)

TERMS = LeaseTerms(ttl_seconds=10.0, renew_seconds=1.0, retry_seconds=0.5)


class Play:
    """A machine, and time that stands still."""

    def __init__(self, terms: LeaseTerms = TERMS) -> None:
        self.machine = ShardLeases(terms)
        self.now = 0.0

    def at(self, now: float) -> list[LeaseEffect]:
        """Let it be that time; what the machine says."""
        self.now = now
        self.machine.tick(now)
        said, self.machine.out = self.machine.out, []
        return said

    def held(self, name: str = "a") -> None:
        self.machine.want(name, self.now)
        assert self.at(self.now) == [Acquire([name])]
        self.machine.answered([name], [name], self.now, self.now)
        assert self.at(self.now) == [Granted(name)]


def test_j12_not_until_it_is_granted() -> None:
    play = Play()
    play.machine.want("a", 0.0)
    assert not play.machine.holds("a", 0.0)
    assert play.at(0.0) == [Acquire(["a"])]
    assert not play.machine.holds("a", 0.1)
    assert play.at(4.0) == [], "asked once while the answer is awaited"
    play.machine.answered(["a"], ["a"], 0.0, 4.0)
    assert play.machine.out == [Granted("a")]
    assert play.machine.holds("a", 4.0)


def test_j12_refused_is_asked_again_and_told_once() -> None:
    play = Play()
    play.machine.want("a", 0.0)
    assert play.at(0.0) == [Acquire(["a"])]
    play.machine.answered(["a"], [], 0.0, 0.1)
    assert play.at(0.1) == [Refused("a")]
    assert play.machine.next_due == 0.6
    assert play.at(0.5) == []
    assert play.at(0.6) == [Acquire(["a"])]
    play.machine.answered(["a"], [], 0.6, 0.6)
    assert play.at(0.6) == [], "said already"
    assert play.at(1.1) == [Acquire(["a"])]
    play.machine.answered(["a"], ["a"], 1.1, 1.1)
    assert play.at(1.1) == [Granted("a")]


def test_a_refusal_is_told_to_the_next_who_wants_it() -> None:
    play = Play()
    play.machine.want("a", 0.0)
    for now in (0.0, 1.0):
        assert play.at(now) == [Acquire(["a"])]
        play.machine.unwant("a", now)
        play.machine.want("a", now)
        play.machine.answered(["a"], [], now, now)
        assert play.at(now) == [Refused("a")]


def test_j12_a_failure_is_no_grant_and_is_asked_again() -> None:
    play = Play()
    play.machine.want("a", 0.0)
    play.at(0.0)
    play.machine.unanswered(["a"], 0.2)
    assert not play.machine.holds("a", 0.2)
    assert play.at(0.2) == []
    assert play.at(0.7) == [Acquire(["a"])]
    play.machine.answered(["a"], ["a"], 0.7, 0.7)
    assert play.at(0.7) == [Granted("a")]


def test_j12_lost_then_stopped_then_released_then_asked_for_again() -> None:
    play = Play()
    play.held()
    assert play.at(1.0) == [Renew(["a"])]
    play.machine.renewed(["a"], [], 1.0)
    assert play.machine.out == [Lost("a")]
    assert not play.machine.holds("a", 1.0)
    play.machine.out.clear()
    assert play.at(3.0) == [], "given back only when what needed it has stopped"
    play.machine.unwant("a", 3.0)
    assert play.at(3.0) == [Release(["a"])]
    play.machine.want("a", 3.0)
    assert play.at(3.0) == [], "not while it is being given back"
    play.machine.released(["a"], 3.1)
    assert play.at(3.1) == [Acquire(["a"])]
    play.machine.answered(["a"], ["a"], 3.1, 3.1)
    assert play.at(3.1) == [Granted("a")]


def test_j12_released_when_it_is_not_wanted_any_more() -> None:
    play = Play()
    play.held()
    play.machine.unwant("a", 2.0)
    assert not play.machine.holds("a", 2.0)
    assert play.at(2.0) == [Release(["a"])]
    play.machine.released(["a"], 2.0)
    assert len(play.machine) == 0
    assert play.machine.next_due == float("inf"), "nothing costs anything"


def test_it_is_renewed_and_valid_by_our_own_clock_from_when_it_was_sent() -> None:
    play = Play()
    play.held()
    assert play.machine.next_due == 1.0
    assert play.at(1.0) == [Renew(["a"])]
    play.machine.renewed(["a"], ["a"], 1.0)
    assert play.machine.holds("a", 9.9)
    assert not play.machine.holds("a", 10.0), "nine of ten seconds after it was sent"
    assert play.at(10.1) == [Lost("a")]


def test_it_is_lost_from_the_end_of_its_time_until_its_user_has_stopped() -> None:
    play = Play()
    assert not play.machine.has_lost("a", 0.0), "it was never wanted"
    play.held()
    lost = [play.machine.has_lost("a", now) for now in (0.0, 8.9, 9.0)]
    play.at(9.0)
    lost.append(play.machine.has_lost("a", 9.1))
    play.machine.unwant("a", 9.2)
    lost.append(play.machine.has_lost("a", 9.2))
    assert lost == [False, False, True, True, False]


def test_renewals_that_fail_are_tried_again_while_it_is_valid() -> None:
    play = Play()
    play.held()
    play.at(1.0)
    play.machine.not_renewed(["a"], 1.2)
    assert play.machine.holds("a", 1.2)
    assert play.at(1.7) == [Renew(["a"])]
    assert play.at(8.9) == [], "one at a time"
    assert play.at(9.0) == [Lost("a")], "its time is over, whatever the answer would be"
    play.machine.renewed(["a"], ["a"], 1.7)
    assert not play.machine.holds("a", 9.0)


def test_an_answer_that_is_not_awaited_changes_nothing() -> None:
    play = Play()
    play.machine.answered(["a"], ["a"], 0.0, 0.0)
    assert (play.machine.out, len(play.machine)) == ([], 0)
    play.held()
    play.machine.answered(["a"], ["a"], 5.0, 5.0)
    assert play.machine.out == [], "it is granted once"
    assert not play.machine.holds("a", 9.0), "only renewals make it last"


def test_a_release_that_fails_says_nothing_of_a_lease_that_is_held_again() -> None:
    play = Play()
    play.held()
    play.machine.not_released(["a"], 0.5)
    assert play.machine.holds("a", 0.5)
    assert play.at(1.0) == [Renew(["a"])]


def test_what_is_not_wanted_when_the_answer_comes_is_given_back() -> None:
    play = Play()
    for answer in ("granted", "none", "refused"):
        play.machine.want("a", 0.0)
        assert play.at(0.0) == [Acquire(["a"])]
        play.machine.unwant("a", 0.0)
        if answer == "none":
            play.machine.unanswered(["a"], 0.0)
        else:
            play.machine.answered(["a"], ["a"] if answer == "granted" else [], 0.0, 0.0)
        assert play.at(0.0) == ([] if answer == "refused" else [Release(["a"])])
        play.machine.released(["a"], 0.0)
        assert len(play.machine) == 0


def test_a_release_that_fails_is_tried_until_it_is_answered() -> None:
    """Other leases of the node may prolong it."""
    play = Play()
    play.held()
    play.machine.unwant("a", 0.0)
    assert play.at(0.0) == [Release(["a"])]
    assert play.machine.next_due == float("inf"), "nothing is to do while it is under way"
    play.machine.not_released(["a"], 0.1)
    assert play.machine.next_due == 0.6
    assert play.at(0.6) == [Release(["a"])]
    play.machine.not_released(["a"], 59.0)
    assert play.at(59.5) == [Release(["a"])]
    play.machine.released(["a"], 59.6)
    assert len(play.machine) == 0


def test_a_release_of_a_lease_whose_time_is_over_is_tried_again_too() -> None:
    play = Play()
    play.held()
    assert play.at(9.0) == [Lost("a")]
    play.machine.unwant("a", 9.5)
    assert play.at(9.5) == [Release(["a"])]
    play.machine.not_released(["a"], 9.6)
    assert play.at(10.1) == [Release(["a"])]


def test_a_lease_that_was_renewed_is_renewed_again() -> None:
    play = Play()
    play.held()
    for now in (1.0, 2.0, 3.0):
        assert play.at(now) == [Renew(["a"])]
        play.machine.renewed(["a"], ["a"], now)


def test_an_answer_to_a_renewal_that_comes_after_the_end_loses_nothing() -> None:
    play = Play()
    play.held()
    assert play.at(1.0) == [Renew(["a"])]
    play.machine.unwant("a", 1.0)
    assert play.at(1.0) == [Release(["a"])]
    play.machine.renewed(["a"], [], 1.0)
    play.machine.released(["a"], 1.1)
    play.machine.renewed(["a"], [], 1.0)
    assert play.at(2.0) == []
    assert len(play.machine) == 0


def test_a_lease_that_is_wanted_again_before_it_ran_out_is_asked_for_though_the_release_failed() -> None:
    play = Play()
    play.held()
    play.machine.unwant("a", 0.0)
    play.at(0.0)
    play.machine.want("a", 0.1)
    play.machine.not_released(["a"], 0.2)
    assert play.at(0.2) == [Acquire(["a"])]


def test_many_are_asked_for_and_renewed_together() -> None:
    play = Play()
    for name in "abc":
        play.machine.want(name, 0.0)
    assert play.at(0.0) == [Acquire(["a", "b", "c"])]
    play.machine.answered("abc", ["a", "c"], 0.0, 0.0)
    assert play.at(0.0) == [Granted("a"), Refused("b"), Granted("c")]
    assert play.at(1.0) == [Renew(["a", "c"]), Acquire(["b"])]


def test_e4_times_fit_together() -> None:
    assert LeaseTerms().ttl_seconds == 120.0
    assert LeaseTerms().renew_every == 12.0, "a tenth"
    assert LeaseTerms(ttl_seconds=30.0).renew_every == 5.0, "at least five seconds"
    assert LeaseTerms(ttl_seconds=30.0, renew_seconds=2.0).renew_every == 2.0
    for wrong in (
        {"ttl_seconds": 10.0},
        {"ttl_seconds": 30.0, "renew_seconds": 15.0},
        {"renew_seconds": 0.0},
    ):
        with pytest.raises(ValueError, match="renewed at least twice"):
            LeaseTerms(**wrong)
    for none in ("ttl_seconds", "retry_seconds", "answer_seconds"):
        with pytest.raises(ValueError, match="above 0"):
            LeaseTerms(**{none: 0.0})
