"""The sending half of a link by itself: when it sends what."""

from sharding_app.protocol.link.sender import LinkSender
from tests.unit.protocol.link.harness import SMALL, answer, command


def without_credit() -> LinkSender:
    """A sender whose peer has taken its first frame in, and has room for nothing."""
    sender = LinkSender(SMALL, 1)
    sender.heard(1.0, 0.0)
    sender.put(answer(1))
    assert [each.seq for each in sender.due(1.0)] == [1]
    sender.answered(1, 1, 0, 1.1, 0)
    return sender


def test_a_retry_asks_for_credit_at_once() -> None:
    sender = without_credit()
    sender.put(command(2))
    assert sender.due(1.2) == []
    due = sender.deadline()
    assert due is not None
    assert due > 1.3
    sender.retry(1.3)
    assert sender.deadline() == 1.3
    assert [each.count for each in sender.due(1.3)] == [0]


def test_a_retry_with_nothing_to_say_asks_nothing() -> None:
    sender = without_credit()
    sender.retry(1.3)
    assert sender.deadline() is None
