"""The link, rule by rule."""

from random import Random

import msgspec
import pytest

from sharding_app.protocol.codec import WIRE_MIN, EncodeError, decode_frame, encode_frame, encode_message
from sharding_app.protocol.link.link import Link, LinkLimits, MessageTooLarge
from sharding_app.protocol.link.sender import LinkSender
from sharding_app.protocol.messages import WIRE_VERSION, AnyMessage, Deliver, Frame, Left
from tests.unit.protocol.link.harness import SMALL, Side, Wire, answer, command, lanes


def opened(limits: LinkLimits = SMALL) -> Wire:
    """Both streams are open, and nothing is under way."""
    wire = Wire(limits)
    wire.a.say(answer(0))
    wire.b.say(answer(0))
    wire.run(0.05)
    assert wire.a.got == wire.b.put
    assert wire.b.got == wire.a.put
    assert not any(wire.to.values())
    return wire


def test_what_is_put_arrives_in_order_and_as_one_frame() -> None:
    wire = opened()
    for number in range(8):
        assert wire.a.say(answer(number))
    assert wire.flush(wire.a) == 1
    wire.arrive(wire.b)
    assert wire.b.got == wire.a.put
    assert wire.a.link.outstanding() == 8
    wire.run(0.05)
    assert wire.a.link.outstanding() == 0


def test_a_stream_opens_with_its_first_frame_alone() -> None:
    wire = Wire()
    for number in range(20):
        wire.a.say(answer(number))
    assert wire.flush(wire.a) == 1
    assert wire.flush(wire.a) == 0
    wire.arrive(wire.b)
    assert wire.flush(wire.b) == 1, "the first frame is acknowledged at once"
    wire.arrive(wire.a)
    assert wire.flush(wire.a) == 2


def test_an_acknowledgement_rides_on_data_or_goes_alone_after_the_delay() -> None:
    wire = opened()
    acks = wire.b.link.statistics().acks_sent
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.arrive(wire.b)
    assert wire.flush(wire.b) == 0
    wire.b.say(answer(2))
    assert wire.flush(wire.b) == 1
    wire.arrive(wire.a)
    assert wire.a.link.outstanding() == 0
    assert wire.b.link.statistics().acks_sent == acks

    wire.run(0.05)
    acks = wire.b.link.statistics().acks_sent
    wire.a.say(answer(3))
    wire.flush(wire.a)
    wire.arrive(wire.b)
    assert wire.b.link.deadline() == pytest.approx(wire.now + SMALL.ack_delay_seconds)
    wire.now += SMALL.ack_delay_seconds
    assert wire.flush(wire.b) == 1
    assert wire.b.link.statistics().acks_sent == acks + 1


def test_a_repetition_is_dropped_and_acknowledged_at_once() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.arrive(wire.b, keep=True)
    got = list(wire.b.got)
    wire.arrive(wire.b)
    assert wire.b.got == got
    assert wire.b.link.statistics().duplicates_dropped == 1
    assert wire.flush(wire.b) == 1


def test_a_frame_before_its_turn_is_held() -> None:
    wire = opened()
    for number in (1, 2, 3):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    wire.arrive(wire.b, 2)
    wire.arrive(wire.b, 1)
    assert wire.b.got == wire.a.put[:1]
    assert wire.b.link.statistics().held_frames == 2
    wire.arrive(wire.b, 0)
    assert wire.b.got == wire.a.put
    assert wire.b.link.statistics().held_frames == 0
    assert wire.b.link.statistics().held_bytes == 0


def test_silence_repeats_the_oldest_frame_alone_and_less_and_less_often() -> None:
    wire = opened()
    for number in (1, 2, 3):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    wire.to[wire.b.name].clear()
    waits = []
    for _ in range(8):
        deadline = wire.a.link.deadline()
        assert deadline is not None
        waits.append(round(deadline - wire.now, 3))
        wire.now = deadline
        assert wire.flush(wire.a) == 1
        assert decode_frame(wire.to[wire.b.name].pop()).seq == 2
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


@pytest.mark.parametrize("lost", [2, 5])
def test_when_the_peer_answers_again_all_that_was_lost_follows_at_once(lost: int) -> None:
    wire = opened()
    for number in range(1, lost + 1):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    wire.to[wire.b.name].clear()
    wire.now += 0.1
    assert wire.flush(wire.a) == 1
    wire.arrive(wire.b)
    wire.run(0.021)
    assert wire.b.got == wire.a.put
    assert wire.a.link.statistics().frames_resent == lost


def test_what_follows_at_once_follows_once() -> None:
    """Each acknowledgement of what was repeated says again that the peer is there, and repeats
    nothing more.
    """
    wire = opened()
    for number in range(1, 6):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    wire.to[wire.b.name].clear()
    wire.now += 0.1
    wire.flush(wire.a)
    while wire.to[wire.b.name]:
        wire.arrive(wire.b)
        wire.now += SMALL.ack_delay_seconds
        assert wire.flush(wire.b) == 1, "an acknowledgement of its own"
        wire.arrive(wire.a)
        wire.flush(wire.a)
    assert wire.b.got == wire.a.put
    assert wire.a.link.statistics().frames_resent == 5


def test_a_word_from_a_silent_peer_makes_the_next_repetition_due() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.to[wire.b.name].clear()
    for _ in range(6):
        deadline = wire.a.link.deadline()
        assert deadline is not None
        wire.now = deadline
        wire.flush(wire.a)
    wire.to[wire.b.name].clear()
    wire.b.say(answer(9))
    wire.now += 0.01
    wire.flush(wire.b)
    wire.arrive(wire.a)
    assert wire.a.link.presses(wire.now)
    assert wire.flush(wire.a) == 1


def test_a_word_from_a_peer_that_was_not_silent_leaves_the_next_repetition_as_late_as_it_was() -> None:
    """It speaks and takes nothing: to repeat at each of its words would double its load."""
    sender = LinkSender(SMALL, 1)
    sender.heard(100.0, 0.0)
    assert sender.put(answer(1))
    sender.due(100.0)
    now = 101.0
    assert len(sender.due(now)) == 1
    due = sender.deadline()
    sender.heard(now + 0.01, SMALL.resend_after_seconds)
    assert sender.deadline() == due
    sender.heard(now + 0.02, SMALL.resend_after_seconds * 1.01)
    assert sender.deadline() == now + 0.02


def test_what_follows_at_once_is_due_at_once() -> None:
    """Else it would wait for the next turn of the link, which nothing else may cause."""
    sender = LinkSender(SMALL, 1)
    sender.heard(100.0, 0.0)
    for number in range(3):
        assert sender.put(answer(number))
        sender.due(100.0)
        if number == 0:
            sender.answered(1, 1, 1000, 100.0, 0)
    assert len(sender.due(101.0)) == 1, "the oldest one asks"
    sender.answered(1, 2, 1000, 101.1, 0)
    deadline = sender.deadline()
    assert deadline is not None
    assert deadline <= 101.1
    assert len(sender.due(101.1)) == 1


def test_a_round_trip_is_measured_by_frames_that_were_sent_once() -> None:
    """An acknowledgement does not say which of two sendings it belongs to."""
    sender = LinkSender(SMALL, 1)
    sender.heard(100.0, 0.0)
    assert sender.put(answer(1))
    sender.due(100.0)
    deadline = sender.deadline()
    assert deadline is not None
    sender.due(deadline)
    sender.answered(1, 1, 1000, deadline + 0.04, 0)
    assert sender.round_trip == 0.0
    assert sender.put(answer(2))
    sender.due(101.0)
    sender.answered(1, 2, 1000, 101.25, 0)
    assert sender.round_trip == 0.25


def test_the_patience_grows_with_the_round_trips_and_shrinks_while_they_are_equal() -> None:
    sender = LinkSender(SMALL, 1)
    sender.heard(100.0, 0.0)
    waits = []
    for number, took in enumerate((0.25, 0.25, 0.25, 0.5, 0.5)):
        now = 100.0 + number
        assert sender.put(answer(number))
        sender.due(now)
        deadline = sender.deadline()
        assert deadline is not None
        waits.append(deadline - now)
        sender.answered(1, number + 1, 1000, now + took, 0)
    assert waits[1] > waits[2] > waits[3], "one measurement says little, and equal ones say more"
    assert waits[4] > waits[3]
    assert waits[0] == pytest.approx(SMALL.resend_after_seconds), "nothing is known yet"


def test_a_stream_opens_with_a_command_that_no_credit_has_been_given_for() -> None:
    sender = LinkSender(SMALL, 1)
    sender.heard(100.0, 0.0)
    assert sender.put(command(1))
    assert [sent.count for sent in sender.due(100.0)] == [1]


def test_a_rest_of_credit_lets_a_frame_through_that_is_larger() -> None:
    sender = LinkSender(SMALL, 1)
    sender.heard(100.0, 0.0)
    assert sender.put(command(1))
    sender.due(100.0)
    sender.answered(1, 1, 3, 100.01, 0)
    assert sender.put(command(2, 100))
    assert sender.put(command(3, 100))
    assert [sent.count for sent in sender.due(100.02)] == [2]
    sender.answered(1, 2, 0, 100.03, 0)
    assert sender.put(command(4))
    assert sender.due(100.04) == [], "without any it waits"


def test_retry_sends_at_once_and_counts_silence_from_now() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.to[wire.b.name].clear()
    wire.now += 0.05
    assert wire.a.link.silent_since() == pytest.approx(wire.now - 0.05)
    wire.a.link.retry(wire.now)
    assert wire.a.link.silent_since() == wire.now
    assert wire.flush(wire.a) == 1
    wire.arrive(wire.b)
    assert wire.b.got == wire.a.put


def test_a_link_counts_what_it_has_done_and_what_it_holds() -> None:
    wire = opened()
    before, received = wire.a.link.statistics(), wire.b.link.statistics()
    sizes = 0
    for number in range(4):
        wire.a.say(answer(2 * number))
        wire.a.say(answer(2 * number + 1))
        assert wire.flush(wire.a) == 1
        sizes += len(wire.to[wire.b.name][-1])
    under_way = wire.a.link.statistics()
    assert (under_way.in_flight_frames, under_way.queued_messages, under_way.queued_bytes) == (4, 0, 0)
    assert under_way.messages_sent - before.messages_sent == 8
    assert under_way.frames_sent - before.frames_sent == 4
    assert under_way.bytes_sent - before.bytes_sent == sizes
    wire.arrive(wire.b, 0, keep=True)
    wire.lose(wire.b, 1)
    wire.run(5.0)
    after, got = wire.a.link.statistics(), wire.b.link.statistics()
    assert (after.messages_sent, after.frames_sent) == (under_way.messages_sent, under_way.frames_sent)
    assert (after.frames_resent, after.in_flight_frames, after.in_flight_bytes) == (1, 0, 0)
    assert got.messages_received - received.messages_received == 8
    assert got.frames_received - received.frames_received == 4
    assert (got.duplicates_dropped, got.out_of_order, got.held_frames, got.held_bytes) == (1, 2, 0, 0)


def test_the_queue_is_bounded_in_count_and_bytes() -> None:
    wire = Wire()
    put = 0
    while wire.a.say(answer(put, 1)):
        put += 1
    assert put == SMALL.max_queue_messages
    wire = Wire()
    while wire.a.say(answer(put, 900)):
        put += 1
    statistics = wire.a.link.statistics()
    assert statistics.queued_messages == 4
    assert statistics.queued_bytes <= SMALL.max_queue_bytes
    assert statistics.put_refused == 1


def test_the_queue_takes_as_many_bytes_as_it_may() -> None:
    size = len(encode_message(answer(1, 900)))
    limits = msgspec.structs.replace(SMALL, max_queue_bytes=3 * size)
    wire = Wire(limits)
    assert [wire.a.say(answer(1, 900)) for _ in range(4)] == [True, True, True, False]
    assert wire.a.link.statistics().queued_bytes == limits.max_queue_bytes


def test_too_large_and_unencodable_messages_fail_alone() -> None:
    wire = Wire()
    with pytest.raises(MessageTooLarge) as caught:
        wire.a.link.put(answer(1, 1001))
    assert caught.value.limit == 1000
    assert caught.value.size > 1000
    bad = command(1)
    bad.entity = "\ud800"
    with pytest.raises(EncodeError, match="Deliver cannot be encoded"):
        wire.a.link.put(bad)
    bad = command(1 << 64)
    with pytest.raises(EncodeError):
        wire.a.link.put(bad)
    assert wire.a.link.outstanding() == 0
    wire.a.say(answer(2))
    wire.run(0.1)
    assert wire.b.got == wire.a.put


def test_a_large_message_goes_in_a_frame_of_its_own() -> None:
    wire = opened()
    for size in (10, 900, 10, 950, 10):
        wire.a.say(answer(1, size))
        wire.a.say(command(1, size))
    wire.run(0.2)
    assert lanes(wire.b.got) == lanes(wire.a.put)


def test_at_most_a_window_is_under_way() -> None:
    wire = opened()
    for _ in range(30):
        wire.a.say(answer(1, 100))
    assert wire.flush(wire.a) <= SMALL.window_frames
    statistics = wire.a.link.statistics()
    assert 0 < statistics.in_flight_bytes <= SMALL.window_bytes
    assert statistics.in_flight_frames <= SMALL.window_frames
    for number in range(20):
        wire.a.say(answer(number, 1))
        wire.flush(wire.a)
    statistics = wire.a.link.statistics()
    assert statistics.in_flight_frames <= SMALL.window_frames
    assert statistics.in_flight_bytes <= SMALL.window_bytes


def test_without_credit_commands_wait_and_answers_do_not() -> None:
    wire = opened()
    wire.b.link.waiting(SMALL.window_bytes)
    wire.a.say(answer(1))
    wire.run(0.05)
    assert wire.a.link.statistics().credit_bytes == 0
    first, second = command(2), answer(3)
    wire.a.say(first)
    wire.run(0.05)
    wire.a.say(second)
    wire.run(1.0)
    assert second in wire.b.got
    assert first not in wire.b.got
    wire.b.link.waiting(0)
    wire.run(0.05)
    assert first in wire.b.got, "credit that is back is told without being asked"


def test_half_of_the_credit_is_much_and_is_told_once() -> None:
    wire = opened()
    wire.b.link.waiting(SMALL.window_bytes // 2)
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.arrive(wire.b)
    wire.now += SMALL.ack_delay_seconds
    assert wire.flush(wire.b) == 1
    wire.arrive(wire.a)
    assert wire.a.link.statistics().credit_bytes == SMALL.window_bytes // 2
    assert wire.flush(wire.b) == 0


def test_a_lost_word_about_credit_is_asked_for() -> None:
    wire = opened()
    wire.b.link.waiting(SMALL.window_bytes)
    wire.a.say(answer(1))
    wire.run(0.05)
    wire.a.say(command(2))
    wire.flush(wire.a)
    wire.b.link.waiting(0)
    wire.now += 0.03
    assert wire.flush(wire.b) == 1
    wire.lose(wire.a)
    wire.run(0.4)
    assert wire.b.got[-1] == command(2)


def handled(seed: int, *, answers: bool) -> int:
    """Lose every word about credit, and three frames of ten besides, and let no sender ask for
    credit. Return how many of forty commands are handled by a peer whose credit three of them use
    up.
    """
    random = Random(seed)
    wire = opened()
    a, b = wire.a, wire.b
    sender = a.link._sender
    said = taken = done = 0

    def between(side: Side, other: Side) -> None:
        wire.flush(side)
        while wire.to[other.name]:
            about_credit = side is b and not sender.in_flight and not decode_frame(wire.to[a.name][0]).seq
            if about_credit or random.random() < 0.3:
                wire.lose(other)
            else:
                wire.arrive(other)

    for _ in range(3000):
        wire.now += 0.02
        while said < 40 and a.say(command(said, 300)):
            said += 1
        sender._probe_at = None  # as if it asked, and the question was lost
        between(a, b)
        taken = sum(isinstance(each, Deliver) for each in b.got)
        if done < taken and random.random() < 0.2 and (not answers or b.say(answer(done))):
            done += 1
        b.link.waiting((taken - done) * SMALL.window_bytes // 3)
        between(b, a)
    return done


@pytest.mark.parametrize("seed", range(5))
def test_what_a_peer_answers_brings_the_credit_that_nothing_asks_for(seed: int) -> None:
    """A node answers each command, so it needs no question; that is for a peer that handles without
    a word.
    """
    assert handled(seed, answers=True) == 40
    assert handled(seed, answers=False) < 40


def test_frames_of_an_earlier_stream_and_of_other_wire_versions_are_refused() -> None:
    link = Link("a", "b", SMALL, 1)
    frame = Frame(WIRE_VERSION, "b", "a", 2, 1, 0, 0, 0, [answer(1)])
    assert link.receive(frame, 1.0) == [answer(1)]
    for stale in (
        Frame(WIRE_VERSION, "b", "a", 1, 1, 0, 0, 0, [answer(2)]),
        Frame(WIRE_VERSION + 1, "b", "a", 2, 2, 0, 0, 0, [answer(2)]),
        Frame(WIRE_MIN - 1, "b", "a", 2, 2, 0, 0, 0, [answer(2)]),
        Frame(WIRE_VERSION, "c", "a", 2, 2, 0, 0, 0, [answer(2)]),
        Frame(WIRE_VERSION, "b", "c", 2, 2, 0, 0, 0, [answer(2)]),
    ):
        assert link.receive(stale, 1.0) == []
    assert link.statistics().frames_refused == 5


def test_a_receiver_that_forgot_the_stream_delivers_nothing_and_the_sender_starts_anew() -> None:
    wire = opened()
    for number in (1, 2, 3):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    before = list(wire.b.got)
    wire.b.link = Link(wire.b.name, wire.b.peer, SMALL, 7)
    wire.arrive(wire.b, 1)
    assert wire.b.got == before
    wire.run(0.2)
    assert wire.b.got == before + wire.a.put[1:]
    assert wire.a.link.stream == 2
    assert wire.a.link.statistics().streams_restarted == 1


def test_a_receiver_that_begins_a_stream_again_with_a_late_first_frame_is_sent_a_new_one() -> None:
    """That frame bears no command and no time: the peer was never heard before it."""
    wire = Wire()
    wire.a.say(command(1))
    wire.flush(wire.a)
    late = wire.to[wire.b.name][0]
    wire.run(0.2)
    wire.a.say(answer(2))
    wire.run(0.2)
    before = list(wire.b.got)
    assert before == wire.a.put
    wire.b.link = Link(wire.b.name, wire.b.peer, SMALL, 7)
    wire.now += 60.0
    wire.to[wire.b.name].append(late)
    wire.arrive(wire.b)
    wire.a.say(answer(3))
    wire.a.say(answer(4))
    wire.run(1.0)
    assert wire.b.got == before + wire.a.put[2:]
    assert wire.a.link.statistics().streams_restarted == 1


def test_an_older_acknowledgement_that_comes_late_changes_nothing() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.arrive(wire.b)
    wire.now += SMALL.ack_delay_seconds
    wire.flush(wire.b)
    late = wire.to[wire.a.name].pop()
    wire.now += 0.5
    wire.a.say(answer(2))
    wire.run(0.2)
    wire.to[wire.a.name].append(late)
    wire.a.say(answer(3))
    wire.run(0.2)
    assert wire.b.got == wire.a.put
    assert wire.a.link.statistics().streams_restarted == 0


def test_a_link_made_again_knows_what_it_has_taken_in() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.arrive(wire.b, keep=True)
    got = list(wire.b.got)
    wire.b.sleep_and_return()
    wire.arrive(wire.b)
    assert wire.b.got == got
    wire.a.say(answer(2))
    wire.b.say(answer(3))
    wire.run(0.2)
    assert wire.b.got == wire.a.put
    assert wire.a.got == wire.b.put
    assert wire.a.link.statistics().streams_restarted == 0


def test_stale_and_senseless_acknowledgements_change_nothing() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    for numbers in ((1, 1, 0), (1, 99, 9), (5, 0, 9), (0, 0, 9)):
        frame = Frame(WIRE_VERSION, wire.b.name, wire.a.name, 0, 0, *numbers, [])
        assert wire.a.link.receive(decode_frame(encode_frame(frame)), wire.now) == []
    assert wire.a.link.outstanding() == 1
    assert wire.a.link.stream == 1
    wire.run(0.2)
    assert wire.b.got == wire.a.put


def test_idle_is_a_link_on_which_nothing_waits_and_nothing_has_moved() -> None:
    wire = opened()
    assert not wire.a.link.idle(wire.now)
    assert wire.a.link.deadline() is None
    wire.now += SMALL.idle_after_seconds
    assert wire.a.link.idle(wire.now)
    wire.a.say(answer(1))
    assert not wire.a.link.idle(wire.now)
    wire.flush(wire.a)
    wire.now += SMALL.idle_after_seconds
    assert not wire.a.link.idle(wire.now), "it is under way"
    wire.arrive(wire.b)
    wire.now += SMALL.idle_after_seconds
    assert not wire.b.link.idle(wire.now), "it owes an acknowledgement"
    assert wire.flush(wire.b) == 1
    assert not wire.b.link.idle(wire.now), "it has just sent it"


def test_after_its_farewell_a_link_owes_nothing() -> None:
    wire = opened()
    wire.a.say(answer(1))
    wire.flush(wire.a)
    wire.arrive(wire.b)
    assert wire.b.link.deadline() is not None
    acks = wire.b.link.statistics().acks_sent
    wire.b.link.farewell(wire.now, Left(wire.b.name))
    assert wire.b.link.deadline() is None
    assert wire.b.link.statistics().acks_sent == acks + 1, "it carries what was owed"


def test_what_was_under_way_for_too_long_is_not_taken_in() -> None:
    wire = opened()
    late = command(1)
    wire.a.say(late)
    wire.flush(wire.a)
    wire.now += SMALL.max_flight_seconds + 1.0
    wire.arrive(wire.b)
    assert late not in wire.b.got
    assert wire.b.link.statistics().frames_late == 1


@pytest.mark.parametrize("late_ms", [0, 1])
def test_a_frame_may_be_under_way_for_the_limit_and_no_longer(late_ms: int) -> None:
    wire = opened()
    wire.a.say(command(1))
    wire.flush(wire.a)
    frame = decode_frame(wire.to[wire.b.name][0])
    arrives = frame.yours / 1000 + SMALL.max_flight_seconds + late_ms / 1000
    assert (wire.b.link.receive(frame, arrives) == []) == bool(late_ms)


def test_a_slow_frame_takes_back_nothing_of_what_is_known_of_the_peers_clock() -> None:
    wire = opened()
    wire.b.say(answer(1))
    wire.flush(wire.b)
    wire.now += 0.5
    wire.arrive(wire.a)
    wire.a.say(answer(2))
    wire.flush(wire.a)
    bound = decode_frame(wire.to[wire.b.name][-1]).yours / 1000
    assert wire.now - 0.01 < bound <= wire.now


def test_limits_that_cannot_work_are_refused() -> None:
    for bad in (
        {"max_frame_bytes": 0},
        {"max_message_bytes": 1024 * 1024},
        {"window_bytes": 1000},
        {"ack_delay_seconds": 1.0},
        {"max_frame_messages": 1_000_000},
    ):
        with pytest.raises(ValueError, match="must"):
            LinkLimits(**bad)


def test_a_frame_of_an_unknown_stream_does_not_disturb_the_known_one() -> None:
    wire = opened()
    stray = Frame(WIRE_VERSION, wire.b.name, wire.a.name, 9, 5, 0, 0, 0, [answer(7)])
    got = list(wire.a.got)
    assert wire.a.link.receive(stray, wire.now) == []
    assert wire.flush(wire.a) == 1
    told = decode_frame(wire.to[wire.b.name][0])
    assert (told.seq, told.ack_stream, told.ack) == (0, 9, 0)
    wire.a.say(answer(2))
    assert wire.flush(wire.a) == 1, "it was told of that, once"
    wire.b.say(answer(1))
    wire.run(0.1)
    assert wire.a.got == [*got, answer(1)]


def test_what_was_held_of_an_earlier_stream_is_forgotten_with_it() -> None:
    link = Link("a", "b", SMALL, 1)

    def arrives(stream: int, seq: int, number: int) -> list[AnyMessage]:
        return link.receive(Frame(WIRE_VERSION, "b", "a", stream, seq, 0, 0, 0, [answer(number)]), 1.0, 50)

    assert arrives(1, 1, 0) == [answer(0)]
    assert arrives(1, 3, 99) == []
    assert link.statistics().held_bytes == 50
    assert arrives(2, 1, 1) == [answer(1)]
    assert link.statistics().held_bytes == 0
    assert arrives(2, 2, 2) == [answer(2)]
    assert arrives(2, 3, 3) == [answer(3)]


def test_a_frame_far_beyond_the_window_is_not_held() -> None:
    wire = opened()
    far = Frame(WIRE_VERSION, wire.b.name, wire.a.name, 1, 2 + SMALL.window_frames, 0, 0, 0, [answer(7)])
    assert wire.a.link.receive(far, wire.now, 10) == []
    assert wire.a.link.statistics().held_frames == 0
    assert wire.a.link.statistics().frames_refused == 1
    near = Frame(WIRE_VERSION, wire.b.name, wire.a.name, 1, 3, 0, 0, 0, [answer(7)])
    assert wire.a.link.receive(near, wire.now, SMALL.window_bytes + 1) == []
    assert wire.a.link.statistics().held_frames == 0


def test_a_stream_that_is_forgotten_twice_keeps_its_order() -> None:
    wire = opened()
    for number in range(1, 5):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    before = list(wire.b.got)
    wire.b.link = Link(wire.b.name, wire.b.peer, SMALL, 7)
    wire.arrive(wire.b, 2)
    wire.flush(wire.b)
    wire.arrive(wire.a)
    wire.to[wire.b.name].clear()
    assert wire.flush(wire.a) == 1, "the new stream opens with its first frame alone"
    wire.arrive(wire.b)
    wire.flush(wire.b)
    wire.arrive(wire.a)
    assert wire.flush(wire.a) == 3
    wire.b.link = Link(wire.b.name, wire.b.peer, SMALL, 8)
    wire.arrive(wire.b, 1)
    wire.run(0.5)
    assert wire.b.got == before + wire.a.put[1:]
    assert wire.a.link.statistics().streams_restarted == 2


def test_a_frame_is_closed_at_its_bounds() -> None:
    wire = opened()
    for number in range(11):
        wire.a.say(answer(number, 150))
        wire.a.say(command(number, 150))
    while len(wire.b.got) < len(wire.a.put):
        wire.flush(wire.a)
        for data in wire.to[wire.b.name]:
            assert len(data) < SMALL.max_frame_bytes + 200
            assert len(decode_frame(data).body) <= SMALL.max_frame_messages
        wire.run(0.001)
    assert lanes(wire.b.got) == lanes(wire.a.put)


def test_a_question_for_credit_is_answered_at_once() -> None:
    wire = opened()
    empty = Frame(WIRE_VERSION, wire.b.name, wire.a.name, 1, 2, 0, 0, 0, [])
    assert wire.a.link.receive(empty, wire.now) == []
    assert wire.flush(wire.a) == 1


def test_two_acknowledgements_in_one_turn_leave_no_deadline_behind() -> None:
    """The first says that frames of the silence are still under way, the second that none is:
    nothing is due.
    """
    wire = opened()
    for number in range(3):
        wire.a.say(answer(number))
        wire.flush(wire.a)
    lost = wire.to[wire.b.name].pop(0)
    wire.now += 0.2
    assert wire.flush(wire.a) == 1, "the patience is over: the oldest frame goes out again, alone"
    wire.arrive(wire.b, index=2)
    wire.now += 0.02
    wire.flush(wire.b)
    wire.arrive(wire.b)
    wire.arrive(wire.b)
    wire.now += 0.02
    wire.flush(wire.b)
    assert len(wire.to[wire.a.name]) == 2
    wire.arrive(wire.a)
    wire.arrive(wire.a)
    assert lost
    assert wire.a.link.outstanding() == 0
    assert wire.a.link.deadline() is None
    assert wire.a.link.flush(wire.now) == []
    wire.now += 10
    assert wire.a.link.deadline() is None
