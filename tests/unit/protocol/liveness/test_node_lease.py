"""The lease as a machine: one number, and who is told what (promise 2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.liveness.node_lease import (
    NEVER,
    Lease,
    LeaseChange,
    Return,
    after_return,
    longest_overlap,
    resume_check,
)
from sharding_app.protocol.records import Lineage, Server, ShardRow

HERE = Server(started="one", timeline=1)
RESTARTED = Server(started="two", timeline=1)
PROMOTED = Server(started="three", timeline=2)


def ping(
    lease: Lease, session: int, sent: float, server: Server = HERE, *, took: float = 0.01
) -> list[LeaseChange]:
    lease.ping_sent(session, sent)
    return lease.ping_answered(session, sent, server, sent + took)


def valid_lease(at: float = 10.0) -> Lease:
    lease = Lease(2.0, 3.0)
    for session in (0, 1):
        lease.locked(session)
        ping(lease, session, at)
    assert lease.state == "valid"
    return lease


def test_is_valid_only_when_both_locks_are_held() -> None:
    lease = Lease(2.0, 3.0)
    lease.locked(0)
    assert ping(lease, 0, 10.0) == []
    assert ping(lease, 1, 10.0) == [], "it has no lock"
    assert not lease.is_valid(10.1)
    lease.locked(1)
    assert ping(lease, 1, 10.2) == ["valid", "settled"]
    assert lease.is_valid(12.19)
    assert lease.valid_until == pytest.approx(12.2)


def test_a_ping_that_was_sent_before_the_lock_was_taken_proves_nothing() -> None:
    lease = Lease(2.0, 3.0)
    lease.locked(0)
    ping(lease, 0, 10.0)
    lease.ping_sent(1, 10.1)
    lease.locked(1)
    assert lease.ping_answered(1, 10.1, HERE, 10.2) == []
    assert not lease.is_valid(10.2)


def test_counts_from_when_the_answered_ping_was_sent() -> None:
    lease = valid_lease(10.0)
    ping(lease, 0, 11.0, took=0.9)
    assert lease.valid_until == pytest.approx(13.0)


def test_the_limit_itself_is_too_late() -> None:
    lease = valid_lease(10.0)
    assert lease.is_valid(11.999)
    assert not lease.is_valid(12.0)
    assert lease.tick(12.0) == ["suspended"]


def test_one_session_is_enough_once_it_has_answered_since() -> None:
    lease = valid_lease(10.0)
    assert lease.session_lost(0, 10.5) == ["suspended"]
    assert lease.valid_until == NEVER
    assert ping(lease, 1, 10.6) == ["back"]
    assert lease.resume(lease.generation, 10.7)
    assert lease.is_valid(12.5)
    ping(lease, 1, 11.0)
    assert lease.is_valid(12.9)
    assert lease.settled is None


def test_an_answer_to_a_ping_from_before_the_loss_proves_nothing() -> None:
    lease = valid_lease(10.0)
    lease.ping_sent(1, 10.4)
    assert lease.session_lost(0, 10.5) == ["suspended"]
    assert lease.ping_answered(1, 10.4, HERE, 10.6) == []
    assert lease.state == "suspended"


def test_losing_both_sessions_suspends_once() -> None:
    lease = valid_lease(10.0)
    assert lease.session_lost(0, 10.1) == ["suspended"]
    assert lease.session_lost(1, 10.1) == []
    assert lease.valid_until == NEVER


def test_a_session_without_its_lock_renews_nothing() -> None:
    lease = valid_lease(10.0)
    lease.session_lost(0, 10.1)
    lease.session_lost(1, 10.1)
    assert ping(lease, 0, 10.2) == []
    assert lease.state == "suspended"
    lease.locked(0)
    assert ping(lease, 0, 10.3) == ["back"]


def test_is_not_valid_again_before_the_rows_were_compared() -> None:
    lease = valid_lease(10.0)
    lease.tick(12.5)
    assert ping(lease, 0, 12.6) == ["back"]
    assert not lease.is_valid(12.7)
    assert ping(lease, 1, 12.8) == ["settled"] or lease.settled == HERE
    assert not lease.is_valid(12.9)
    assert lease.resume(lease.generation, 13.0)
    assert lease.is_valid(13.1)


def test_rows_read_for_an_older_lapse_resume_nothing() -> None:
    lease = valid_lease(10.0)
    lease.tick(12.5)
    ping(lease, 0, 12.6)
    first = lease.generation
    lease.session_lost(0, 12.7)
    lease.session_lost(1, 12.7)
    lease.locked(0)
    assert ping(lease, 0, 12.8) == ["back"]
    assert not lease.resume(first, 12.9)
    assert lease.resume(lease.generation, 12.9)


def test_lapsing_while_the_rows_are_read_refuses_to_resume() -> None:
    lease = valid_lease(10.0)
    lease.tick(12.5)
    ping(lease, 0, 12.6)
    assert not lease.resume(lease.generation, 14.7)
    assert lease.tick(14.7) == [], "it is suspended already: the node is not told twice"
    assert lease.state == "suspended"


def test_it_lapses_at_the_limit_itself_while_the_rows_are_read() -> None:
    lease = valid_lease(10.0)
    lease.tick(12.5)
    ping(lease, 0, 12.5)
    limit = 12.5 + 2.0
    generation = lease.generation
    assert not lease.resume(generation, limit), "too late"
    lease.tick(limit)
    assert (lease.state, lease.generation) == ("suspended", generation + 1)


def test_an_answer_after_the_limit_tells_of_the_lapse_first() -> None:
    lease = valid_lease(10.0)
    lease.ping_sent(0, 11.5)
    assert lease.ping_answered(0, 11.5, HERE, 12.1) == ["suspended", "back"]
    assert not lease.is_valid(12.2)


def test_a_stop_between_the_clock_and_the_renewal_is_found_out() -> None:
    lease = valid_lease(10.0)
    lease.ping_sent(0, 11.5)
    assert lease.ping_answered(0, 11.5, HERE, 11.9) == []
    assert lease.confirm(12.4) == ["suspended"], "another thread may have seen the limit of 12.0 pass"
    assert lease.valid_until == NEVER


def test_confirming_in_time_changes_nothing() -> None:
    lease = valid_lease(10.0)
    lease.ping_sent(0, 11.5)
    lease.ping_answered(0, 11.5, HERE, 11.6)
    assert lease.confirm(11.61) == []
    assert lease.is_valid(13.4)


def test_an_answer_to_a_ping_of_a_former_connection_is_ignored() -> None:
    lease = valid_lease(10.0)
    lease.ping_sent(0, 11.0)
    lease.session_lost(0, 11.1)
    lease.locked(0)
    assert lease.ping_answered(0, 11.0, HERE, 11.2) == []
    assert lease.state == "suspended"
    assert ping(lease, 1, 11.3) == ["back"]
    assert lease.resume(lease.generation, 11.4)
    assert lease.valid_until == pytest.approx(13.3), "only session 1 counts"


def test_tells_once_that_both_are_held_on_another_server() -> None:
    lease = valid_lease(10.0)
    for session in (0, 1):
        lease.session_lost(session, 10.5)
    for session in (0, 1):
        lease.locked(session)
    assert ping(lease, 0, 10.8, RESTARTED) == ["back"]
    assert lease.resume(lease.generation, 10.85)
    assert ping(lease, 1, 10.9, RESTARTED) == ["settled"]
    assert ping(lease, 0, 11.0, RESTARTED) == []
    assert lease.settled == RESTARTED


def test_a_session_on_an_older_timeline_does_not_count() -> None:
    lease = valid_lease(10.0)
    lease.session_lost(0, 10.1)
    lease.locked(0)
    ping(lease, 0, 10.2, PROMOTED)
    assert ping(lease, 0, 13.3, PROMOTED) == ["back"]
    assert lease.resume(lease.generation, 13.4)
    ping(lease, 1, 14.9)
    assert lease.valid_until == pytest.approx(15.3), "session 1 speaks to a server that was replaced"


@pytest.mark.parametrize(
    ("lived", "then"),
    [
        (None, "go_on"),
        (Lineage("s", 2), "go_on"),
        (Lineage("s", 1), "read_again"),
        (Lineage("other", 2), "begin_anew"),
    ],
)
def test_a_node_that_comes_back_reads_again_what_another_line_of_commits_may_lack(
    lived: Lineage | None, then: Return
) -> None:
    assert after_return(lived, Lineage("s", 2)) == then


def test_dropped_is_the_end() -> None:
    lease = valid_lease(10.0)
    lease.drop()
    assert not lease.is_valid(10.1)
    assert ping(lease, 0, 10.2) == []
    assert not lease.resume(lease.generation, 10.3)
    assert lease.state == "dropped"
    assert lease.settled is None


def test_resumes_equal_epochs_only_never_greater_ones() -> None:
    rows = [
        ShardRow("Cart", 1, 5, "me", "home"),
        ShardRow("Cart", 2, 6, "me", "home"),
        ShardRow("Cart", 3, 5, "other", "home"),
        ShardRow("Cart", 4, 4, "me", "home"),
        ShardRow("Cart", 5, 5, None, "stopped"),
        ShardRow("Cart", 6, 5, "me", "handoff"),
        ShardRow("Order", 1, 5, "me", "home"),
    ]
    mine = {("Cart", shard): 5 for shard in range(1, 8)}
    keep, drop = resume_check(rows, mine, "me")
    assert keep == [("Cart", 1), ("Cart", 6)]
    assert drop == [("Cart", 2), ("Cart", 3), ("Cart", 4), ("Cart", 5), ("Cart", 7)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ping", "late", "lost", "lock", "tick", "resume", "stale resume"]),
        st.integers(0, 1),
        st.floats(0.01, 1.5),
        st.sampled_from([HERE, RESTARTED]),
    ),
    max_size=60,
)


@given(STEPS)
def test_validity_never_outlives_the_pings_of_sessions_with_their_lock(
    steps: list[tuple[str, int, float, Server]],
) -> None:
    """Whatever happens: valid means that a session that holds its lock was answered a ping sent
    within the limit, and after any moment of invalidity the node resumed with the newest
    generation.
    """
    lease, now = Lease(2.0, 3.0), 10.0
    held = [False, False]
    proof = [NEVER, NEVER]
    suspended_since_resume = False
    for kind, session, passed, server in steps:
        before = now
        if kind == "ping" or kind == "late":
            sent = now
            lease.ping_sent(session, sent)
            now += passed if kind == "late" else 0.01
            changes = lease.ping_answered(session, sent, server, now)
            if held[session]:
                proof[session] = sent + 2.0
            changes += lease.confirm(now)
        elif kind == "lost":
            held[session], proof[session] = False, NEVER
            changes = lease.session_lost(session, now)
        elif kind == "lock":
            held[session], proof[session] = True, NEVER
            lease.locked(session)
            changes = lease.tick(now)
        elif kind == "tick":
            now += passed
            changes = lease.tick(now)
        else:
            generation = lease.generation - (kind == "stale resume")
            resumed = lease.resume(generation, now)
            assert not (resumed and kind == "stale resume")
            suspended_since_resume = suspended_since_resume and not resumed
            changes = []
        assert now >= before
        suspended_since_resume = suspended_since_resume or "suspended" in changes
        assert lease.valid_until <= max(proof)
        if suspended_since_resume:
            assert lease.valid_until == NEVER
        if not lease.is_valid(now) and lease.state == "valid":
            assert lease.tick(now) == ["suspended"]
            suspended_since_resume = True


@given(
    st.floats(0.9, 1.1),
    st.lists(st.tuples(st.floats(0.01, 0.5), st.floats(0.0, 1.9)), max_size=20),
    st.integers(0, 20),
)
def test_who_hears_of_neither_end_goes_on_for_the_longest_overlap_at_most(
    rate: float, pings: list[tuple[float, float]], answered: int
) -> None:
    """The server has answered some pings, each within some time, when it frees both locks. The
    node's clock has a rate of its own, and the pings that it sends from then on go nowhere.
    """
    lease, now, freed = valid_lease(10.0), 10.0, 10.0
    for number, (pause, took) in enumerate(pings):
        now += pause
        lease.ping_sent(number % 2, now)
        if number < answered:
            freed = now  # at the earliest
            now += took
            lease.ping_answered(number % 2, freed, HERE, now)
    assert lease.state != "valid" or (lease.valid_until - freed) / rate <= longest_overlap(2.0, 0.1) + 1e-9
