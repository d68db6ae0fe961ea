"""Who is dead, and when that may be said (promises 1 and 13)."""

import random

import msgspec
import pytest

from sharding_app.protocol.liveness.membership import Membership, deaf_members, member_names
from sharding_app.protocol.records import Member, MemberState, Server

HERE = Server(started="one", timeline=1)
RESTARTED = Server(started="two", timeline=1)
AGAIN = Server(started="three", timeline=1)
TTL = 3.0
OWN_LIMIT = 2.0
PING = 0.5


def member(
    name: str,
    locks: int,
    *,
    server: Server | None = HERE,
    state: MemberState = "up",
    deaf: bool = False,
) -> Member:
    return Member(
        incarnation=name,
        name=name,
        host="h",
        pid=1,
        age=1,
        state=state,
        server=server,
        locks=locks,
        deaf=deaf,
    )


def test_both_held_is_alive() -> None:
    verdict = Membership(TTL).judge(0.0, HERE, [member("a", 2)])
    assert (verdict.alive, verdict.suspect, verdict.dead) == (("a",), (), ())
    assert verdict.next_look == float("inf")


def test_both_gone_on_the_same_run_is_dead_at_once() -> None:
    verdict = Membership(TTL).judge(0.0, HERE, [member("a", 0), member("b", 2)])
    assert verdict.dead == ("a",)
    assert verdict.alive == ("b",)


def test_one_gone_is_suspect_for_the_ttl_then_alive() -> None:
    judge = Membership(TTL)
    assert judge.judge(0.0, HERE, [member("a", 1)]).suspect == ("a",)
    assert judge.judge(2.9, HERE, [member("a", 1)]).suspect == ("a",)
    assert judge.judge(3.0, HERE, [member("a", 1)]).alive == ("a",)


def test_the_second_lock_going_just_after_the_first_is_dead_at_once() -> None:
    judge = Membership(TTL)
    judge.judge(0.0, HERE, [member("a", 1)])
    assert judge.judge(0.05, HERE, [member("a", 0)]).dead == ("a",)


def test_a_lock_that_stood_alone_for_longer_than_an_interval_is_no_silence() -> None:
    """Two faults of the network, say: the process may not have heard of them yet."""
    judge = Membership(TTL, ping_interval_seconds=0.5)
    judge.judge(0.0, HERE, [member("a", 1)])
    judge.judge(0.6, HERE, [member("a", 1)])
    assert judge.judge(0.7, HERE, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(3.6, HERE, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(3.7, HERE, [member("a", 0)]).dead == ("a",)


def silent_node(chance: random.Random) -> tuple[float, tuple[float, float]]:
    """Cut a node off, or freeze it; return when, and when the server frees its two locks."""
    phase, cut = chance.uniform(0, PING), 10 + chance.uniform(0, PING)
    last = [phase + index * PING / 2 for index in (0, 1)]
    last = [
        at + PING * ((cut - at) // PING) - chance.uniform(0, PING / 2) for at in last
    ]  # pings may be late
    return cut, (last[0] + TTL, last[1] + TTL)


def read_until_dead(judge: Membership, freed: tuple[float, float], distance: float, first: float) -> float:
    now = first
    while True:
        locks = sum(at > now for at in freed)
        if judge.judge(now, HERE, [member("a", locks)]).dead:
            return now
        now += distance


@pytest.mark.parametrize("distance", [0.005, 0.01, 0.05, 0.09, 0.11, 0.17, 0.25])
def test_a_silent_node_is_dead_with_the_first_reading_after_its_locks(distance: float) -> None:
    """However often the coordinator reads, and whenever its readings fall."""
    chance = random.Random(distance)
    for _ in range(100):
        cut, freed = silent_node(chance)
        judge = Membership(TTL, ping_interval_seconds=PING)
        dead = read_until_dead(judge, freed, distance, first=9 + chance.uniform(0, distance))
        assert dead <= max(freed) + distance
        assert dead <= cut + 3.5
        last_ping = max(freed) - TTL
        assert dead > last_ping + OWN_LIMIT * 1.1, "whatever its clock, it handles nothing any more"


@pytest.mark.parametrize("distance", [0.005, 0.01, 0.09, 0.17, 0.25, 0.6])
def test_a_node_that_hears_of_neither_of_two_faults_is_not_dead_while_its_lease_may_hold(
    distance: float,
) -> None:
    """As far as it can be told from silence: the faults lie further apart than a ping interval and
    two readings.
    """
    chance = random.Random(distance)
    for _ in range(100):
        first = 10.0
        second = first + PING + 2 * distance + chance.uniform(0.001, 2.5)
        judge = Membership(TTL, ping_interval_seconds=PING)
        dead = read_until_dead(judge, (first, second), distance, first=9 + chance.uniform(0, distance))
        assert dead >= second + OWN_LIMIT * 1.1


def test_a_restart_gives_everyone_the_full_ttl() -> None:
    judge = Membership(TTL)
    judge.judge(0.0, HERE, [member("a", 2)])
    first = judge.judge(10.0, RESTARTED, [member("a", 0)])
    assert first.suspect == ("a",)
    assert first.dead == ()
    assert 10.0 < first.next_look <= 13.0
    assert judge.judge(12.9, RESTARTED, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(13.0, RESTARTED, [member("a", 0)]).dead == ("a",)


def test_coming_back_within_the_ttl_is_alive() -> None:
    judge = Membership(TTL)
    judge.judge(10.0, RESTARTED, [member("a", 0)])
    assert judge.judge(10.3, RESTARTED, [member("a", 2)]).alive == ("a",)
    later = judge.judge(20.0, AGAIN, [member("a", 0, server=RESTARTED)])
    assert later.suspect == ("a",), "an old doubt is not remembered"


def test_a_second_restart_starts_the_ttl_anew() -> None:
    judge = Membership(TTL)
    judge.judge(10.0, RESTARTED, [member("a", 0)])
    assert judge.judge(12.0, AGAIN, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(13.5, AGAIN, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(15.0, AGAIN, [member("a", 0)]).dead == ("a",)


def test_a_lock_seen_in_between_starts_the_ttl_anew() -> None:
    """It was there and may have renewed its lease; its row does not yet name the new server."""
    judge = Membership(TTL)
    judge.judge(10.0, RESTARTED, [member("a", 0)])
    judge.judge(12.0, RESTARTED, [member("a", 1)])
    assert judge.judge(12.5, RESTARTED, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(13.1, RESTARTED, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(15.5, RESTARTED, [member("a", 0)]).dead == ("a",)


def test_one_that_joins_and_never_locks_has_the_ttl() -> None:
    judge = Membership(TTL)
    joining = member("a", 0, server=None, state="joining")
    assert judge.judge(0.0, HERE, [joining]).suspect == ("a",)
    assert judge.judge(3.0, HERE, [joining]).dead == ("a",)


def test_the_judge_is_not_dead() -> None:
    assert Membership(TTL, me="a").judge(0.0, HERE, [member("a", 0)]).alive == ("a",)


def test_a_member_that_left_is_forgotten() -> None:
    judge = Membership(TTL)
    judge.judge(0.0, RESTARTED, [member("a", 0)])
    judge.judge(1.0, RESTARTED, [])
    assert judge.judge(3.5, RESTARTED, [member("a", 0)]).suspect == ("a",)


def test_deaf_only_while_another_one_hears() -> None:
    one_hears = [member("a", 2, deaf=True), member("b", 2)]
    assert deaf_members(one_hears) == ("a",)


def test_when_no_node_hears_nothing_moves() -> None:
    assert deaf_members([member("a", 2, deaf=True), member("b", 2, deaf=True)]) == ()
    assert deaf_members([member("a", 2, deaf=True)]) == ()


def test_a_joining_one_does_not_prove_that_the_layer_works() -> None:
    assert deaf_members([member("a", 2, deaf=True), member("b", 2, state="joining")]) == ()


def test_a_dead_ones_word_does_not_count() -> None:
    verdict = Membership(TTL).judge(0.0, HERE, [member("a", 2, deaf=True), member("b", 0)])
    assert verdict.dead == ("b",)
    assert verdict.deaf == ()
    verdict = Membership(TTL).judge(0.0, HERE, [member("a", 2, deaf=True), member("b", 2)])
    assert verdict.deaf == ("a",)


def test_nodes_of_one_name_are_told_apart_by_their_incarnations() -> None:
    first, second, other = (
        msgspec.structs.replace(member(name, 2), name="web") for name in ("1234567890", "abcdefghij", "other")
    )
    assert member_names([first]) == {"1234567890": "web"}
    assert member_names([first, second, msgspec.structs.replace(other, name="batch")]) == {
        "1234567890": "web(12345678)",
        "abcdefghij": "web(abcdefgh)",
        "other": "batch",
    }
