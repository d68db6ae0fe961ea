"""Who is dead, and when that may be said (promises 1 and 13)."""

from sharding_app.core.membership import Membership, deaf_members
from sharding_app.core.records import Member, MemberState, Server

HERE = Server(started="one", timeline=1)
RESTARTED = Server(started="two", timeline=1)
AGAIN = Server(started="three", timeline=1)
TTL = 3.0


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


def test_the_second_lock_going_later_is_no_proof_of_death() -> None:
    """Two faults of the network, say: the process may not have heard of them yet."""
    judge = Membership(TTL)
    judge.judge(0.0, HERE, [member("a", 1)])
    assert judge.judge(0.5, HERE, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(3.4, HERE, [member("a", 0)]).suspect == ("a",)
    assert judge.judge(3.5, HERE, [member("a", 0)]).dead == ("a",)


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


def test_when_nobody_hears_nothing_moves() -> None:
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
