"""What waits here lowers its sender's credit, and stops doing so when it is taken."""

from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.hosting.parked import OVERHEAD_BYTES, Backlog


def envelope(size: int) -> Deliver:
    return Deliver("t", 0, 1, "e", 1, "c", b"x" * size)


def test_bytes_are_counted_by_sender_until_they_are_taken() -> None:
    backlog = Backlog()
    backlog.waits("a", envelope(10))
    backlog.waits("a", envelope(20))
    backlog.waits("b", envelope(5))
    assert (backlog.of("a"), backlog.of("b"), backlog.of("c")) == (
        30 + 2 * OVERHEAD_BYTES,
        5 + OVERHEAD_BYTES,
        0,
    )
    backlog.taken("a", envelope(10))
    assert backlog.of("a") == 20 + OVERHEAD_BYTES
    backlog.all_taken([("a", envelope(20)), ("b", envelope(5))])
    assert (backlog.of("a"), backlog.of("b")) == (0, 0)


def test_what_was_never_counted_counts_for_nothing() -> None:
    backlog = Backlog()
    backlog.taken("", envelope(10))
    assert backlog.of("") == 0
