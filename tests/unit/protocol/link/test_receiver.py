"""The receiving half of a link by itself: what it takes, what it holds, and when it owes the peer a
word.
"""

import pytest

from sharding_app.protocol.link.limits import LinkLimits
from sharding_app.protocol.link.receiver import LinkReceiver
from sharding_app.protocol.messages import WIRE_VERSION, AnyMessage, Frame
from tests.unit.protocol.link.harness import answer

LIMITS = LinkLimits(
    max_frame_bytes=400,
    max_frame_messages=8,
    max_message_bytes=400,
    max_queue_messages=50,
    max_queue_bytes=4000,
    window_bytes=1600,
    window_frames=8,
)
STREAM = 5


def frame(seq: int, *body: AnyMessage, stream: int = STREAM) -> Frame:
    return Frame(
        source="a", target="b", wire=WIRE_VERSION, stream=stream, seq=seq, ack_stream=0, ack=0, credit=0,
        body=list(body), clock=0, yours=0,
    )  # fmt: skip


def owed(receiver: LinkReceiver) -> float | None:
    """When the peer has to have its word."""
    return receiver.ack_at


def begun() -> LinkReceiver:
    """A receiver that has taken the first frame of the stream in, and said so."""
    receiver = LinkReceiver(LIMITS)
    assert receiver.take(frame(1, answer(1)), 10, 1.0) == [answer(1)]
    assert owed(receiver) == 1.0, "the first one at once: its sender waits"
    receiver.told(receiver.credit(), 1.0)
    assert owed(receiver) is None
    return receiver


def test_frames_are_taken_in_order_and_once() -> None:
    receiver = begun()
    assert receiver.take(frame(2, answer(2), answer(3)), 10, 1.1) == [answer(2), answer(3)]
    assert receiver.take(frame(2, answer(2), answer(3)), 10, 1.2) == []
    assert owed(receiver) == 1.2, "a repetition is answered at once"
    assert (receiver.frames, receiver.messages, receiver.duplicates, receiver.taken_in) == (2, 3, 1, 2)


def test_what_comes_before_its_turn_is_held_and_taken_with_what_was_missing() -> None:
    receiver = begun()
    assert receiver.take(frame(4, answer(4)), 30, 1.1) == []
    assert receiver.take(frame(3, answer(3)), 20, 1.2) == []
    assert receiver.take(frame(3, answer(3)), 20, 1.2) == [], "it is held already"
    assert (len(receiver.held), receiver.held_bytes, receiver.out_of_order, receiver.duplicates) == (
        2,
        50,
        2,
        1,
    )
    assert receiver.take(frame(2, answer(2)), 10, 1.3) == [answer(2), answer(3), answer(4)]
    assert (receiver.held, receiver.held_bytes) == ({}, 0)
    assert (receiver.taken_in, receiver.frames, receiver.messages) == (4, 4, 4)


def test_no_more_is_held_than_the_window_has() -> None:
    receiver = begun()
    receiver.take(frame(9, answer(9)), 10, 1.1)
    receiver.take(frame(10, answer(10)), 10, 1.1)
    assert (list(receiver.held), receiver.refused) == ([9], 1), (
        "8 frames behind what was taken in, and none more"
    )
    receiver.take(frame(3, answer(3)), 1590, 1.1)
    assert list(receiver.held) == [9, 3], "the window is full to the last byte"
    receiver.take(frame(4, answer(4)), 1, 1.1)
    assert (list(receiver.held), receiver.held_bytes, receiver.refused) == ([9, 3], 1600, 2)


def test_no_more_frames_are_held_than_the_window_has() -> None:
    receiver = begun()
    for seq in range(3, 10):
        receiver.take(frame(seq, answer(seq)), 1, 1.1)
    assert (len(receiver.held), receiver.refused) == (7, 0)
    assert len(receiver.take(frame(2, answer(2)), 1, 1.2)) == 8


def test_a_later_stream_begins_anew_and_an_earlier_one_is_refused() -> None:
    receiver = begun()
    receiver.take(frame(3, answer(3)), 10, 1.1)
    for earlier in (0, STREAM - 1):
        assert receiver.take(frame(1, answer(7), stream=earlier), 10, 1.2) == []
    assert receiver.refused == 2
    assert receiver.take(frame(1, answer(8), stream=STREAM + 1), 10, 1.3) == [answer(8)]
    assert (receiver.stream, receiver.taken_in, receiver.held, receiver.held_bytes) == (STREAM + 1, 1, {}, 0)
    assert owed(receiver) == 1.3


def test_the_middle_of_a_stream_that_nothing_is_known_of_is_told_to_begin_again() -> None:
    receiver = LinkReceiver(LIMITS)
    assert receiver.take(frame(4, answer(4)), 10, 1.0) == []
    assert (receiver.unknown_stream, receiver.refused, owed(receiver)) == (STREAM, 1, 1.0)
    assert receiver.stream == 0
    receiver.take(frame(1, answer(1), stream=STREAM + 1), 10, 1.1)
    assert receiver.unknown_stream == 0


@pytest.mark.parametrize(
    ("frames", "size", "at_once"), [(1, 10, False), (2, 10, True), (1, 399, False), (1, 400, True)]
)
def test_a_quarter_of_the_window_is_acknowledged_at_once(frames: int, size: int, at_once: bool) -> None:
    receiver = begun()
    for seq in range(2, 2 + frames):
        receiver.take(frame(seq, answer(seq)), size, 2.0)
    assert owed(receiver) == (2.0 if at_once else 2.0 + LIMITS.ack_delay_seconds)
    assert receiver.deadline() == owed(receiver)
    receiver.told(receiver.credit(), 2.0)
    receiver.take(frame(8, answer(8)), 10, 3.0)
    receiver.told(receiver.credit(), 3.0)
    receiver.take(frame(2 + frames, answer(1)), 10, 4.0)
    assert owed(receiver) == 4.0 + LIMITS.ack_delay_seconds, "what was told of before does not count"


def test_the_delay_counts_from_the_first_that_is_owed() -> None:
    receiver = begun()
    receiver.take(frame(2, answer(2)), 1, 2.0)
    first = owed(receiver)
    receiver.limits = LinkLimits(window_frames=1000, window_bytes=10**6, max_frame_bytes=10**5)
    receiver.take(frame(3, answer(3)), 1, 2.001)
    assert owed(receiver) == first


def test_a_question_for_credit_is_answered_at_once() -> None:
    receiver = begun()
    assert receiver.take(frame(2), 10, 2.0) == []
    assert owed(receiver) == 2.0


def test_before_the_peer_has_said_anything_no_word_about_credit_is_due() -> None:
    receiver = LinkReceiver(LIMITS)
    receiver.told(0, 1.0)
    assert receiver.deadline() is None
    receiver.look(5.0)
    assert owed(receiver) is None


def test_credit_is_what_the_consumer_has_room_for() -> None:
    receiver = begun()
    assert receiver.credit() == 1600
    receiver.backlog = 1000
    assert receiver.credit() == 600
    receiver.backlog = 5000
    assert receiver.credit() == 0


def test_a_peer_that_was_told_little_hears_when_there_is_much_again() -> None:
    receiver = begun()
    receiver.backlog = 801
    receiver.look(1.5)
    assert owed(receiver) is None, "it was told of much"
    receiver.told(receiver.credit(), 2.0)
    assert receiver.deadline() == 2.0 + LIMITS.ack_delay_seconds, "it is looked at again"
    receiver.look(2.5)
    assert owed(receiver) is None, "there is no more yet"
    assert receiver.deadline() == 2.5 + LIMITS.ack_delay_seconds
    receiver.backlog = 800
    receiver.look(3.0)
    assert owed(receiver) == 3.0
    receiver.told(receiver.credit(), 3.0)
    assert receiver.deadline() is None
