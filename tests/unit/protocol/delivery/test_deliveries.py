"""The machine of one shard's messages and timers: each transition, with its effects."""

import errno
from zoneinfo import ZoneInfo

import pytest

from sharding_app.protocol.delivery import recurrence
from sharding_app.protocol.delivery.deliveries import (
    DIED,
    FAILED,
    HORIZON_SECONDS,
    LEAD_SECONDS,
    OVER,
    OVERHEAD_BYTES,
    PARKED,
    PARTLY,
    QUEUED,
    REJECTED,
    SENT,
    UNJUDGED,
    UNKNOWN,
    UNREACHED,
    WRITING,
    BackOff,
    End,
    Failure,
    KeepAlone,
    MoveOn,
    Park,
    Send,
    SetAside,
    Turn,
)
from sharding_app.protocol.delivery.memory import Memory
from sharding_app.protocol.delivery.recurrence import Missed, Recurrence
from sharding_app.protocol.transitions import IllegalTransition
from tests.unit.protocol.delivery.harness import machine, message, sent, timer

HOURLY = Recurrence(seconds=3600.0).encode()
FREQUENT = Recurrence(seconds=5.0).encode()
SKIPPING = Recurrence(seconds=5.0, missed="skip").encode()
PAIR = ("a", "shop.Target", "b")
"""Of the messages of `message`."""


# -- Pairs -----------------------------------------------------------------------------------------


def test_a_message_goes_out_as_soon_as_it_is_committed() -> None:
    found, one = machine(), message("m1")
    found.staged([one], 1.0)
    assert sent(found) == ["m1"]
    assert one.state is SENT


def test_messages_of_a_pair_go_out_one_after_the_other_in_the_order_of_staging() -> None:
    found = machine()
    first, second, third = message("m1", 1), message("m2", 2), message("m3", 3)
    found.staged([first, second, third], 1.0)
    assert sent(found) == ["m1"]
    found.done(first, 2.0)
    assert sent(found) == ["m2"]
    found.gone(second, 3.0)
    assert sent(found) == ["m3"]
    found.done(third, 4.0)
    assert found.messages == {}


def test_pairs_do_not_wait_for_each_other() -> None:
    found = machine()
    found.staged([message("m1", 1), message("m2", 2, target="c"), message("m3", 3, owner="z")], 1.0)
    assert sent(found) == ["m1", "m2", "m3"]


def test_an_earlier_message_that_is_read_later_goes_first_unless_one_is_under_way() -> None:
    found = machine()
    second = message("m2", 2)
    found.staged([second, message("m4", 4)], 1.0)
    assert sent(found) == ["m2"]
    found.look()
    found.read_begins()
    found.page([message("m1", 1), message("m3", 3)], more=False, next_due=None, now=1.0)
    assert sent(found) == []
    found.done(second, 2.0)
    assert sent(found) == ["m1"]
    found.done(found.messages["m1"], 2.0)
    assert sent(found) == ["m3"]


# -- Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", [UNKNOWN, UNREACHED])
def test_an_attempt_without_an_answer_is_repeated_after_a_pause_that_grows(why: object) -> None:
    found, one = machine(), message("m1")
    found.staged([one, message("m2", 2)], 1.0)
    assert sent(found) == ["m1"]
    found.failed(one, why, "no answer", 1.0)  # type: ignore[arg-type]
    assert found.wake_at == pytest.approx(1.1)
    found.tick(1.09)
    assert sent(found) == []
    found.tick(1.1)
    assert sent(found) == ["m1"]
    assert one.attempt == 2
    found.failed(one, why, "no answer", 2.0)  # type: ignore[arg-type]
    assert found.wake_at == pytest.approx(2.2)
    assert one.failures == 0


def test_a_target_that_is_away_for_long_is_set_aside_without_a_count() -> None:
    found, one = machine(), message("m1")
    found.staged([one, message("m2", 2)], 0.0)
    now = 0.0
    for _ in range(7):
        sent(found)
        found.failed(one, UNREACHED, "nobody", now)
        now += 20.0
        found.tick(now)
    sent(found)
    found.failed(one, UNREACHED, "nobody", now)
    (effect,) = found.out
    assert isinstance(effect, SetAside)
    assert effect.failures == 0
    assert effect.pause == pytest.approx(12.8)


def test_an_attempt_without_an_answer_never_changes_the_row() -> None:
    """A slow attempt may still take effect: its row has to be due then."""
    found, one = machine(), message("m1")
    found.staged([one], 0.0)
    for number in range(20):
        assert sent(found) == ["m1"]
        found.failed(one, UNKNOWN, "no answer", number * 100.0)
        assert found.out == []
        found.tick(number * 100.0 + 99.0)


def test_a_failure_sets_the_row_aside_and_counts() -> None:
    found, one = machine(), message("m1")
    found.staged([one, message("m2", 2)], 1.0)
    sent(found)
    found.failed(one, FAILED, "no", 1.0)
    (effect,) = found.out
    assert isinstance(effect, SetAside)
    assert (effect.failures, effect.pause, effect.error) == (1, 1.0, "no")
    assert one.state is WRITING
    found.out = []
    found.set_aside(one, 1, 1.0, 5.0)
    found.tick(5.9)
    assert sent(found) == []
    found.tick(6.0)
    assert sent(found) == ["m1"]


def test_a_message_is_parked_after_its_failures_and_the_next_one_goes_out() -> None:
    found, one = machine(), message("m1")
    found.staged([one, message("m2", 2)], 1.0)
    one.failures = 2
    sent(found)
    found.failed(one, FAILED, "no", 1.0)
    (effect,) = found.out
    assert isinstance(effect, Park)
    assert effect.error == "no"
    found.out = []
    found.over(one, 2.0)
    assert sent(found) == ["m2"]


def test_a_rejected_message_is_final_at_once() -> None:
    found, one = machine(), message("m1")
    found.staged([one], 1.0)
    sent(found)
    found.failed(one, REJECTED, "no", 1.0)
    assert isinstance(found.out[0], Park)


def test_a_final_failure_goes_to_the_owner_if_it_names_a_command_for_it() -> None:
    found, one = machine(), message("m1", on_failure="refused")
    found.staged([one, message("m2", 2)], 1.0)
    sent(found)
    found.failed(one, REJECTED, "no", 1.0)
    (effect,) = found.out
    assert isinstance(effect, Turn)
    assert effect.new == "new-1"
    found.out = []
    found.turned(one, message("new-1", 1, target="a"), 2.0)
    assert sorted(sent(found)) == ["m2", "new-1"]


def test_a_message_that_is_parked_already_is_over() -> None:
    found, one = machine(), message("m1")
    found.staged([one, message("m2", 2)], 1.0)
    sent(found)
    found.failed(one, PARKED, "partly", 1.0)
    assert sent(found) == ["m2"]
    assert one.state is OVER


def test_a_pair_that_is_set_aside_for_long_leaves_the_memory_and_comes_back_in_order() -> None:
    found, one, second = machine(), message("m1"), message("m2", 2)
    found.staged([one, second], 1.0)
    one.failures = 1
    sent(found)
    found.failed(one, FAILED, "no", 1.0)
    found.out = []
    found.set_aside(one, 2, HORIZON_SECONDS + 20.0, 1.0)
    assert found.messages == {}
    found.staged([message("m3", 3)], 2.0)
    assert sent(found) == []
    assert not found.room_to_read(2.0)
    due = 1.0 + HORIZON_SECONDS + 20.0
    assert found.wake_at == pytest.approx(due - LEAD_SECONDS)
    assert found.room_to_read(due - LEAD_SECONDS)
    found.read_begins()
    head = message("m1", due=due)
    head.failures = 2
    found.page([head], more=True, next_due=None, now=due - 1.0)  # those behind it come next
    found.staged([message("m4", 4)], due - 0.5)
    found.tick(due)
    assert sent(found) == ["m1"]
    assert found.room_to_read(due)
    assert found.read_begins() == ["m1"]
    rows = [message("m2", 2), message("m3", 3), message("m4", 4)]
    found.page(rows, more=False, next_due=None, now=due)
    found.staged([message("m5", 5)], due)
    found.done(head, due + 1.0)
    assert sent(found) == ["m2"]
    assert list(found.messages) == ["m2", "m3", "m4", "m5"]


def test_those_behind_a_message_that_was_set_aside_are_read_if_it_ends_before() -> None:
    found, head = machine(), message("m1")
    found.staged([head, message("m2", 2)], 1.0)
    sent(found)
    found.failed(head, FAILED, "no", 1.0)
    found.out = []
    found.set_aside(head, 1, 100.0, 1.0)
    found.look()
    found.read_begins()
    back = message("m1", due=101.0)
    found.page([back], more=True, next_due=None, now=100.0)
    found.tick(101.0)
    assert sent(found) == ["m1"]
    found.done(back, 101.5)
    assert found.room_to_read(101.5)


# -- Timers ----------------------------------------------------------------------------------------


def test_a_timer_goes_out_at_its_time_and_not_before() -> None:
    found = machine()
    found.staged([timer("t1", 5.0)], 1.0)
    assert sent(found) == []
    assert found.wake_at == 5.0
    found.tick(4.999)
    assert sent(found) == []
    found.tick(5.0)
    assert sent(found) == ["t1"]


def test_timers_of_one_entity_do_not_wait_for_each_other() -> None:
    found = machine()
    found.staged([timer("t1", 1.0, key="x"), timer("t2", 1.0, key="y")], 1.0)
    assert sent(found) == ["t1", "t2"]


def test_a_timer_that_is_due_later_is_read_when_its_time_comes() -> None:
    found = machine()
    found.staged([timer("t1", 1000.0), timer("t2", 500.0, key="other")], 1.0)
    assert found.messages == {}
    assert found.wake_at == 500.0 - LEAD_SECONDS
    assert not found.room_to_read(400.0)
    assert found.room_to_read(500.0 - LEAD_SECONDS)
    assert found.read_begins() == []
    found.page([timer("t2", 500.0, key="other")], more=False, next_due=1000.0, now=499.0)
    found.tick(500.0)
    assert sent(found) == ["t2"]
    assert found.wake_at == 1000.0 - LEAD_SECONDS


def test_a_timer_that_is_staged_while_a_page_is_read_is_not_lost() -> None:
    found = machine(complete=False)
    found.read_begins()
    found.staged([timer("t1", 500.0)], 1.0)
    found.page([], more=False, next_due=1000.0, now=1.0)
    assert found.wake_at == 500.0 - LEAD_SECONDS


def test_a_timer_that_is_due_at_the_horizon_is_in_memory() -> None:
    """A page reads it too, so it would be there twice."""
    found = machine()
    found.staged([timer("t1", 1.0 + HORIZON_SECONDS), timer("t2", 1.1 + HORIZON_SECONDS, key="x")], 1.0)
    assert [*found.messages] == ["t1"]


def test_a_cancelled_timer_does_not_go_out() -> None:
    found = machine()
    found.staged([timer("t1", 5.0)], 1.0)
    found.cancelled("a", "closing")
    found.tick(6.0)
    assert sent(found) == []
    assert found.messages == {}


def test_a_timer_that_is_cancelled_while_it_fires_is_over() -> None:
    found, one = machine(), timer("t1", 1.0)
    found.staged([one], 1.0)
    assert sent(found) == ["t1"]
    found.cancelled("a", "closing")
    found.failed(one, FAILED, "no", 2.0)
    found.gone(one, 2.0)
    found.done(one, 2.0)
    assert found.out == []


def test_a_timer_with_the_same_key_takes_the_place_of_the_other() -> None:
    found, one = machine(), timer("t1", 1.0)
    found.staged([one], 1.0)
    assert sent(found) == ["t1"]
    found.staged([timer("t2", 3.0)], 2.0)
    found.gone(one, 2.0)
    found.tick(3.0)
    assert sent(found) == ["t2"]


def test_a_repeating_timer_goes_on_with_the_id_and_the_time_that_its_firing_has_stored() -> None:
    found, one = machine(), timer("t1", 5.0, every=FREQUENT)
    found.staged([one], 1.0)
    found.tick(5.5)
    assert sent(found) == ["t1"]
    assert one.again == ("new-1", 10.0)
    found.done(one, 6.0)
    found.tick(9.9)
    assert sent(found) == []
    found.tick(10.0)
    assert sent(found) == ["new-1"]


def test_a_repeated_attempt_goes_on_with_the_same_id_and_time() -> None:
    found, one = machine(), timer("t1", 5.0, every=FREQUENT)
    found.staged([one], 5.0)
    sent(found)
    found.failed(one, UNKNOWN, "no answer", 60.0)
    found.tick(61.0)
    assert sent(found) == ["t1"]
    assert one.again == ("new-1", 10.0)


def test_a_repeating_timer_whose_row_is_gone_is_looked_for() -> None:
    """An attempt of a former home may have let it go on, under an id that is not known here."""
    found, one = machine(), timer("t1", 5.0, every=FREQUENT)
    found.staged([one], 5.0)
    sent(found)
    assert not found.room_to_read(6.0)
    found.gone(one, 6.0)
    assert found.room_to_read(6.0)


def test_a_repeating_timer_far_ahead_leaves_the_memory() -> None:
    found, one = machine(), timer("t1", 5.0, every=HOURLY)
    found.staged([one], 5.0)
    sent(found)
    found.done(one, 6.0)
    assert found.messages == {}
    assert found.wake_at == 3605.0 - LEAD_SECONDS


def test_a_missed_time_that_is_skipped_moves_the_row_on_without_a_firing() -> None:
    found, one = machine(complete=False), timer("t1", 5.0, every=SKIPPING)
    found.read_begins()
    found.page([one], more=False, next_due=None, now=18.0)
    (effect,) = found.out
    assert isinstance(effect, MoveOn)
    assert one.again == ("new-1", 20.0)
    found.out = []
    found.hurry("t1", 18.1)
    assert found.out == [], "its row is being changed"
    found.moved_on(one, 18.5)
    found.tick(20.0)
    assert sent(found) == ["new-1"]


def test_a_rejected_firing_of_a_repeating_timer_ends_this_firing_alone() -> None:
    found, one = machine(), timer("t1", 5.0, every=FREQUENT)
    found.staged([one], 5.0)
    sent(found)
    found.failed(one, REJECTED, "not today", 6.0)
    assert isinstance(found.out[0], MoveOn)


def test_a_repeating_timer_that_has_failed_too_often_is_parked() -> None:
    found, one = machine(), timer("t1", 5.0, every=FREQUENT)
    found.staged([one], 5.0)
    one.failures = 2
    found.failed(one, FAILED, "no", 6.0)
    assert isinstance(found.out[-1], Park)


def test_a_timer_whose_spec_cannot_be_read_here_fails_and_holds_up_no_other() -> None:
    found = machine()
    nowhere = Recurrence(day_at="07:00", tz="No/Where").encode()
    unread = timer("t1", 1.0, every=nowhere)
    found.staged([unread, message("m1", 2)], 0.5)
    found.tick(1.0)
    (aside, sends) = sorted(found.out, key=lambda each: each.message.id == "m1")
    assert isinstance(aside, SetAside)
    assert aside.failures == 1
    assert isinstance(sends, Send)
    found.out.clear()
    for failures in (1, 2):
        found.set_aside(unread, failures, 1.0, 2.0 * failures)
        found.tick(2.0 * failures + 1.0)
    assert [type(each) for each in found.out] == [SetAside, Park]


def test_a_timer_whose_zone_cannot_be_opened_now_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a zone is opened at its first use, and a process may have too many open."""

    def opened(name: str) -> ZoneInfo:
        raise OSError(errno.EMFILE, "Too many open files", name)

    found = machine()
    one = timer("t1", 1.0, every=Recurrence(day_at="07:00", tz="Europe/Berlin").encode())
    found.staged([one, message("m1", 2)], 0.5)
    with monkeypatch.context() as here:
        here.setattr(recurrence, "ZoneInfo", opened)
        found.tick(1.0)
    (aside,) = (each for each in found.out if isinstance(each, SetAside))
    found.out.clear()
    found.set_aside(one, aside.failures, aside.pause, 1.0)
    found.tick(1.0 + aside.pause)
    assert sent(found) == ["t1"]


def test_a_page_that_was_read_while_a_first_message_was_set_aside_has_none_of_those_behind_it() -> None:
    """It was in memory when the page was read, so the page left those behind it in."""
    found = machine()
    first, second = message("m1"), message("m2", 2)
    found.staged([first], 1.0)
    found.look()
    assert sent(found) == ["m1"]
    assert found.read_begins() == ["m1"]
    found.failed(first, FAILED, None, 1.0)
    found.set_aside(first, 1, 60.0, 1.0)
    found.page([second], more=False, next_due=None, now=1.0)
    assert sent(found) == [] == [*found.messages], "it waits for the first one"
    found.tick(60.5)
    found.read_begins()
    found.page([message("m1", due=61.0)], more=True, next_due=None, now=61.0)
    assert sent(found) == ["m1"]
    found.read_begins()
    found.page([second], more=False, next_due=None, now=61.0)
    found.done(found.messages["m1"], 61.0)
    assert sent(found) == ["m2"]


def test_a_new_home_sends_nothing_past_a_message_that_a_former_one_set_aside() -> None:
    found = machine(complete=False)
    found.read_begins()
    found.page([], more=False, next_due=300.0, aside=[PAIR], now=1.0)
    found.staged([message("m3", 3), message("elsewhere", 4, target="c")], 1.0)
    assert sent(found) == ["elsewhere"], "m3 is read behind the one that was set aside"
    assert found.room_to_read(1.0) == 0


def test_messages_staged_while_a_page_is_read_of_their_pair_come_behind_its_rows() -> None:
    """The page may have been read before them: one staged later still went out first."""
    found = machine(complete=False)
    found.read_begins()
    found.page([message("m1", 1)], more=True, next_due=None, aside=[PAIR], now=1.0)
    assert sent(found) == ["m1"]
    found.read_begins()
    found.staged([message("m3", 3)], 1.0)
    found.page([message("m2", 2)], more=False, next_due=None, now=1.0)
    found.staged([message("m4", 4)], 1.0)
    assert [*found.messages] == ["m1", "m2", "m3", "m4"]
    assert not found.room_to_read(1.0)
    for name, behind in (("m1", ["m2"]), ("m2", ["m3"]), ("m3", ["m4"])):
        found.done(found.messages[name], 1.0)
        assert sent(found) == behind


def test_an_earlier_message_that_an_operator_retries_lets_none_pass_one_that_was_set_aside() -> None:
    found, second = machine(), message("m2", 2)
    found.staged([second], 1.0)
    found.failed(second, FAILED, None, 1.0)
    found.set_aside(second, 1, 60.0, 1.0)
    sent(found)
    found.look()
    found.read_begins()
    found.page([message("m1", 1)], more=False, next_due=61.0, aside=[PAIR], now=1.0)
    assert sent(found) == ["m1"]
    found.done(found.messages["m1"], 1.0)
    found.staged([message("m3", 3)], 1.0)
    assert sent(found) == []


def test_a_pair_whose_message_is_gone_from_the_journal_waits_no_more() -> None:
    """An operator has discarded it, or its owner was erased."""
    found = machine(complete=False)
    found.read_begins()
    found.page([], more=False, next_due=300.0, aside=[PAIR], now=1.0)
    found.look()
    found.read_begins()
    found.page([], more=False, next_due=None, aside=[], now=1.0)
    found.staged([message("m3", 3)], 1.0)
    assert sent(found) == ["m3"]


def test_where_too_many_pairs_wait_to_be_told_all_messages_are_read() -> None:
    found = machine(complete=False)
    found.read_begins()
    found.page([], more=False, next_due=300.0, aside=None, now=1.0)
    found.staged([message("m1")], 1.0)
    assert sent(found) == []
    assert found.room_to_read(1.0) > 0
    found.read_begins()
    found.page([message("m1")], more=False, next_due=300.0, aside=None, now=1.0)
    assert sent(found) == ["m1"]


@pytest.mark.parametrize(("missed", "next_one"), [("all", 1_100.0), ("once", 2_000.0), ("skip", 2_000.0)])
def test_a_firing_that_has_failed_counts_as_of_its_time(missed: Missed, next_one: float) -> None:
    """Its row was set aside, and is read again: at another home, or after a long pause."""
    found = machine(complete=False)
    every = Recurrence(seconds=100.0, missed=missed).encode()
    one = timer("t1", 1_950.0, every=every)
    one.occasion = 1_000.0
    found.read_begins()
    found.page([one], more=False, next_due=None, now=1_950.0)
    assert sent(found) == ["t1"], "it was not missed: it has failed"
    assert one.again == ("new-1", next_one)
    found.done(one, 1_950.0)
    assert [(each.id, each.occasion) for each in found.messages.values()] == (
        [("new-1", None)] if missed == "all" else []
    )


def test_those_behind_a_message_without_an_answer_leave_room_for_others() -> None:
    """Else they kept all others of the shard out, timers too, for as long as it gets none."""
    memory = Memory(max_rows=8)
    found = machine(memory=memory)
    rows = [message(f"m{each}", each) for each in range(1, 5)]
    found.staged(rows, 1.0)
    assert sent(found) == ["m1"]
    found.staged([message("other", 9, target="c")], 1.0)
    assert found.room_to_read(1.0) == 0, "there is no room"
    found.failed(rows[0], UNKNOWN, "no answer", 1.0)
    assert found.out == [KeepAlone(rows[0], "no answer")]
    found.out.clear()
    found.kept_alone(rows[0], 1.0)
    assert ([*found.messages], found.alone, memory.rows) == (["m1"], ["m1"], 1)
    assert found.room_to_read(1.0) == 3
    assert found.read_begins() == ["m1"]
    found.staged([message("m5", 5)], 1.0)
    found.page([message("other", 9, target="c")], more=False, next_due=None, now=1.0)
    assert sent(found) == ["other"]
    found.read_begins()
    found.page([], more=False, next_due=None, now=1.0)
    found.staged([message("m6", 6)], 1.1)
    assert sent(found) == ["m1"], "it goes out again; those behind it are read behind it"
    found.failed(rows[0], UNKNOWN, "no answer", 1.2)
    assert found.out == [], "the journal knows"
    found.done(rows[0], 1.3)
    assert found.room_to_read(1.3) > 0
    assert (found.read_begins(), found.alone) == (["other"], [])


def test_those_behind_a_message_without_an_answer_do_so_while_half_of_the_room_is_free() -> None:
    """No page is read either then, if they take more than the other half."""
    found = machine(memory=Memory(max_rows=16))
    rows = [message(f"m{each}", each) for each in range(1, 6)]
    found.staged(rows, 1.0)
    found.failed(rows[0], UNKNOWN, "no answer", 1.0)
    assert not any(isinstance(each, KeepAlone) for each in found.out), "no other one waits for a page"
    found.look()
    assert found.room_to_read(1.0) == 0
    found.tick(2.0)
    found.failed(rows[0], UNKNOWN, "no answer", 2.0)
    assert found.out[-1] == KeepAlone(rows[0], "no answer")
    found.kept_alone(rows[0], 2.0)
    assert found.room_to_read(2.0) == 7


def test_targets_that_do_not_answer_keep_no_page_away() -> None:
    """Each has a message alone, so none can leave. The room that is free is for the others."""
    found = machine(memory=Memory(max_rows=16))
    rows = [message(f"m{each}", each, target=f"b{each}") for each in range(1, 7)]
    found.staged(rows, 1.0)
    found.look()
    assert found.room_to_read(1.0) == 0, "these are on their way, and make room soon"
    for each in rows:
        found.failed(each, UNKNOWN, "no answer", 1.0)
    assert found.room_to_read(1.0) == 2
    found.tick(2.0)
    found.done(rows[0], 2.0)
    found.out.clear()
    assert found.room_to_read(2.0) == 3
    found.read_begins()
    more = [message(f"n{each}", 10 + each, target=f"c{each}") for each in range(3)]
    found.page(more, more=True, next_due=None, now=2.0)
    assert sent(found) == ["n0", "n1", "n2"]
    assert found.room_to_read(2.0) == 0
    found.done(more[0], 2.0)
    assert found.room_to_read(2.0) == 0
    found.done(more[1], 2.0)
    assert found.room_to_read(2.0) == 2, "half of those that are on their way are over"


def test_one_that_may_have_taken_effect_is_parked_and_not_given_back() -> None:
    """The asking side gave it up, and no home of its target has looked for a mark."""
    found, one, two = (
        machine(),
        message("m1", on_failure="lost"),
        message("m2", target="c", on_failure="lost"),
    )
    found.staged([one, two], 1.0)
    one.failures = two.failures = 2
    found.out.clear()
    found.failed(one, UNJUDGED, "two nodes died", 1.0)
    found.failed(two, FAILED, "no", 1.0)
    assert found.out == [Park(one, "two nodes died"), Turn(two, "new-1", "no")]


def test_two_homes_that_die_with_a_message_are_one_failure() -> None:
    found, one = machine(), message("m1")
    found.staged([one], 1.0)
    found.out.clear()
    for failures in (1, 2):
        found.failed(one, DIED, "died", 1.0)
        assert found.out == [], "it goes out once more"
        found.tick(1.1)
        assert sent(found) == ["m1"]
        found.failed(one, DIED, "died", 1.1)
        assert [(type(each), each.failures) for each in found.out if isinstance(each, SetAside)] == [
            (SetAside, failures)
        ]
        found.out.clear()
        found.set_aside(one, failures, 0.0, 1.1)
        found.tick(1.1)
        assert sent(found) == ["m1"]
    found.failed(one, DIED, "died", 1.2)
    found.tick(1.4)
    assert sent(found) == ["m1"]
    found.failed(one, DIED, "died", 1.4)
    assert found.out == [Park(one, "died")]


def test_messages_from_outside_do_not_wait_for_those_that_their_target_sends_to_itself() -> None:
    """One that goes on by messages to itself would keep them waiting for ever."""
    found, own = machine(), message("own", 1)
    found.staged([own, message("own too", 2)], 1.0)
    outside = [message("outside", 10**15), message("outside too", 10**15 + 1)]
    for each in outside:
        each.outside = True
    found.look()
    found.read_begins()
    found.page(outside, more=False, next_due=None, now=1.0)
    assert sent(found) == ["own", "outside"]
    found.done(outside[0], 1.0)
    assert sent(found) == ["outside too"]


def test_one_message_without_an_answer_needs_no_room() -> None:
    found = machine(memory=Memory(max_rows=2))
    one = message("m1")
    found.staged([one], 1.0)
    sent(found)
    found.failed(one, UNKNOWN, "no answer", 1.0)
    assert found.out == []


def test_a_page_that_cannot_be_read_now_wakes_nothing_up() -> None:
    found = machine()
    found.staged([timer("t1", 500.0)], 1.0)
    found.tick(499.5)
    assert found.room_to_read(499.5), "a page is wanted: the shell reads it as soon as it may"
    assert found.wake_at is None, "until then the node would wake up again and again"


def test_a_frequent_timer_makes_room_for_what_is_due() -> None:
    found = machine(memory=Memory(max_rows=1))
    late, often = timer("late", 106.0, key="late"), timer("often", 101.0, key="often", every=FREQUENT)
    found.staged([late, often], 95.0)
    found.tick(101.0)
    found.done(often, 101.0)
    found.tick(105.5)
    assert not found.room_to_read(105.5), "the frequent one has its place again already"
    (often,) = found.messages.values()
    found.tick(106.0)
    found.done(often, 106.0)
    assert found.messages == {}
    assert found.room_to_read(106.0) == 1


def test_a_new_message_does_not_take_the_room_of_a_timer_that_is_due() -> None:
    found = machine(memory=Memory(max_rows=6))
    found.staged([message("m1"), message("m2", 2), timer("t1", 500.0)], 1.0)
    found.tick(499.5)
    assert not found.room_to_read(499.5)
    found.staged([message("m3", 3)], 499.5)
    assert [*found.messages] == ["m1", "m2"], "it is read after the timer"


def test_a_timer_that_is_not_due_yet_by_the_servers_clock_waits_for_the_rest() -> None:
    found, one = machine(), timer("t1", 5.0)
    found.staged([one], 5.0)
    sent(found)
    found.early(one, 0.25, 5.1)
    assert one.state is QUEUED
    found.tick(5.3)
    assert sent(found) == []
    found.tick(5.35)
    assert sent(found) == ["t1"]


# -- Pages and memory ------------------------------------------------------------------------------


def test_a_shard_with_a_past_wants_a_page_first_and_takes_in_nothing_before_it() -> None:
    found = machine(complete=False)
    found.staged([message("m2", 2)], 1.0)
    assert sent(found) == []
    assert found.room_to_read(1.0)
    found.read_begins()
    assert not found.room_to_read(1.0)
    found.page([message("m1", 1), message("m2", 2)], more=False, next_due=None, now=1.0)
    assert sent(found) == ["m1"]
    assert not found.room_to_read(1.0)


def test_what_is_staged_while_a_page_is_read_is_not_read_again() -> None:
    """Under a steady stream of messages a shard would read all of them, page after page."""
    found = machine(complete=False)
    found.read_begins()
    found.staged([message("m2", 2), message("m3", 3), message("elsewhere", 4, target="c")], 1.0)
    assert sent(found) == []
    found.page([message("m1", 1), message("m2", 2)], more=False, next_due=None, now=1.0)
    assert sent(found) == ["m1", "elsewhere"]
    assert [*found.messages] == ["m1", "m2", "m3", "elsewhere"]
    assert not found.room_to_read(1.0)


@pytest.mark.parametrize("why", ["more", "told", "full", "unread"])
def test_what_is_staged_while_a_page_is_read_that_leaves_something_out_is_read_again(why: str) -> None:
    memory = Memory(max_rows=4)
    found = machine(complete=False, memory=memory)
    found.read_begins()
    if why == "full":
        found.staged([message("m1", 1), message("m2", 2)], 1.0)
    found.staged([message("m3", 3)], 1.0)
    if why == "told":
        found.look()
    if why == "unread":
        found.unread()
    else:
        found.page([message("m1", 1)], more=why == "more", next_due=None, now=1.0)
    assert "m3" not in found.messages
    assert memory.rows == len(found.messages)
    for each in list(found.messages.values()):
        found.gone(each, 1.0)
    assert found.room_to_read(1.0)


def test_what_is_staged_while_a_page_is_read_waits_behind_a_message_that_the_page_shows_set_aside() -> None:
    found = machine(complete=False)
    found.read_begins()
    found.staged([message("m2", 2), message("elsewhere", 3, target="c")], 1.0)
    found.page([], more=False, next_due=300.0, aside=[PAIR], now=1.0)
    assert sent(found) == ["elsewhere"]
    assert [*found.messages] == ["elsewhere"]


def test_a_message_that_a_page_has_shown_before_its_commit_was_known_is_there_once() -> None:
    found, shown = machine(complete=False), message("m1")
    found.read_begins()
    found.page([shown], more=False, next_due=None, now=1.0)
    found.staged([message("m1")], 1.0)
    assert sent(found) == ["m1"]
    found.done(shown, 1.0)
    assert sent(found) == []
    assert found.messages == {}


def test_a_page_that_could_not_be_read_is_wanted_still() -> None:
    found = machine(complete=False)
    found.read_begins()
    found.unread()
    assert found.room_to_read(1.0)


def test_a_page_may_show_what_is_in_memory_already() -> None:
    found = machine()
    found.staged([message("m1")], 1.0)
    found.look()
    found.read_begins()
    found.page([message("m1")], more=False, next_due=None, now=1.0)
    assert sent(found) == ["m1"]
    assert len(found.messages) == 1


def test_a_full_memory_takes_in_no_more_and_reads_the_rest_when_half_is_gone() -> None:
    memory = Memory(max_rows=8)
    found = machine(memory=memory)
    rows = [message(f"m{number}", number, target=f"b{number}") for number in range(10)]
    found.staged(rows, 1.0)
    held = list(found.messages)
    assert len(held) == 4
    assert not found.room_to_read(1.0)
    for each in held[:2]:
        found.done(found.messages[each], 2.0)
    assert found.room_to_read(2.0) == 2


def test_each_shard_has_its_share_however_much_the_others_hold() -> None:
    memory = Memory(max_rows=16)
    greedy, modest = machine(memory=memory), machine(memory=memory)
    greedy.staged([message(f"g{number}", number, target=f"b{number}") for number in range(20)], 1.0)
    modest.staged([message(f"m{number}", number, target=f"b{number}") for number in range(20)], 1.0)
    assert len(greedy.messages) == 8
    assert len(modest.messages) == 4


def test_large_messages_count_by_their_bytes_and_one_alone_always_fits() -> None:
    memory = Memory(max_bytes=1000)
    found = machine(memory=memory)
    large = message("m1")
    large.args = b"x" * 5000
    found.staged([large, message("m2", 2, target="c")], 1.0)
    assert list(found.messages) == ["m1"]
    assert memory.bytes == 5000 + OVERHEAD_BYTES


def test_a_shard_that_leaves_gives_its_memory_back() -> None:
    memory = Memory()
    found = machine(memory=memory)
    found.staged([message("m1"), timer("t1", 5.0)], 1.0)
    assert (memory.rows, memory.shards) == (2, 1)
    found.close()
    assert (memory.rows, memory.bytes, memory.shards) == (0, 0, 0)


def test_an_erased_entity_sends_nothing_more() -> None:
    found = machine()
    found.staged([message("m1"), message("m2", 2), timer("t1", 5.0), message("m3", owner="z")], 1.0)
    sent(found)
    found.erased("a")
    assert list(found.messages) == ["m3"]
    found.tick(100.0)
    assert sent(found) == []


@pytest.mark.parametrize("why", [UNKNOWN, FAILED])
def test_an_operator_can_cut_a_pause_short(why: Failure) -> None:
    of = machine()
    of.staged([message("m"), message("behind", 2)], 0.0)
    assert sent(of) == ["m"]
    of.failed(of.messages["m"], why, None, 0.0)
    if why is FAILED:
        of.set_aside(of.messages["m"], 1, 5.0, 0.0)
    of.hurry("behind", 0.01)
    of.hurry("not there", 0.01)
    assert sent(of) == []
    of.hurry("m", 0.01)
    of.hurry("m", 0.01)
    assert sent(of) == ["m"]
    assert of.messages["m"].failures == 0
    of.tick(10.0)
    assert sent(of) == [], "the end of the pause finds it under way"
    of.done(of.messages["m"], 10.0)
    assert sent(of) == ["behind"]


def test_outdated_times_do_not_gather() -> None:
    found = machine()
    for number in range(1000):
        found.staged([timer(f"t{number}", 5.0)], 1.0)
    assert len(found.messages) == 1
    assert len(found._times) < 200
    times = found._times
    found.tick(1.0)
    assert found._times is times, "they are made anew once many are outdated"


def test_a_state_that_cannot_follow_is_a_bug() -> None:
    one = message("m1")
    one.become(OVER)
    with pytest.raises(IllegalTransition):
        one.become(SENT)


def test_the_pauses_double_up_to_a_limit() -> None:
    back_off = BackOff(first_seconds=1.0, most_seconds=10.0, again_seconds=0.5, again_most_seconds=4.0)
    assert [back_off.pause(number) for number in (1, 2, 3, 4, 5, 500)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert [back_off.again(number) for number in (1, 2, 3, 4, 5, 500)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_nothing_of_a_pair_stays_when_its_messages_are_through() -> None:
    """A pair that still waits stays, and one that is used again begins anew."""
    memory = Memory()
    found = machine(memory=memory)
    first, waits = message("m1"), message("m2", target="c")
    found.staged([first, waits], 1.0)
    assert sent(found) == ["m1", "m2"]
    found.done(first, 2.0)
    assert list(found.messages) == ["m2"]
    found.done(waits, 3.0)
    kept = {name: each for name, each in vars(found).items() if isinstance(each, dict | list | set) and each}
    assert kept == {}
    assert (memory.rows, memory.bytes) == (0, 0)
    assert found.rests
    found.staged([message("m3", 3)], 4.0)
    assert sent(found) == ["m3"]


# -- Targets whose rows lie in another journal -----------------------------------------------------


def test_the_next_one_waits_until_the_row_of_a_message_that_took_effect_elsewhere_is_deleted() -> None:
    found = machine()
    first, second = message("m1", 1), message("m2", 2)
    found.staged([first, second], 1.0)
    assert sent(found) == ["m1"]
    found.taken(first)
    assert found.out == [End(first)]
    assert first.state is WRITING
    assert sent(found) == []
    found.done(first, 3.0)
    assert sent(found) == ["m2"]
    assert first.state is OVER


def test_a_message_that_took_effect_partly_elsewhere_is_parked_and_not_turned() -> None:
    found = machine()
    first, second = message("m1", 1, on_failure="refused"), message("m2", 2)
    found.staged([first, second], 1.0)
    found.out = []
    found.failed(first, PARTLY, "an error", 2.0)
    assert found.out == [Park(first, "an error")]
    assert sent(found) == []
    found.over(first, 3.0)
    assert sent(found) == ["m2"]


def test_the_answer_of_a_message_that_was_forgotten_changes_nothing() -> None:
    found, one = machine(), message("m1")
    found.staged([one], 1.0)
    found.erased("a")
    found.out = []
    found.taken(one)
    found.failed(one, PARTLY, "an error", 2.0)
    found.done(one, 3.0)
    assert found.out == []
