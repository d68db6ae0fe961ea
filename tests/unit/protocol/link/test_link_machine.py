"""The link under everything a layer may do: what comes out is what was put in, in order, once."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.protocol.link.harness import SMALL, Side, Wire, answer, command, lanes

sides = st.sampled_from(["a", "b"])


class LossyLayer(RuleBasedStateMachine):
    """Loss, repetition, reordering, delay, slow consumers, links dropped as idle and made again."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.number = 0

    def side(self, name: str) -> Side:
        return self.wire.a if name == "a" else self.wire.b

    @rule(name=sides, sizes=st.lists(st.integers(0, 950), min_size=1, max_size=12), commands=st.booleans())
    def say(self, name: str, sizes: list[int], commands: bool) -> None:
        for size in sizes:
            self.number += 1
            self.side(name).say(command(self.number, size) if commands else answer(self.number, size))

    @rule(name=sides)
    def flush(self, name: str) -> None:
        side = self.side(name)
        self.wire.flush(side)
        # A deadline that has come is over: else its timer would wake the sender at once, again and
        # again.
        deadline = side.link.deadline()
        assert deadline is None or deadline > self.wire.now

    @rule(name=sides, index=st.integers(0, 100), keep=st.booleans())
    def arrive(self, name: str, index: int, keep: bool) -> None:
        under_way = self.wire.to[self.side(name).name]
        if under_way:
            self.wire.arrive(self.side(name), index % len(under_way), keep=keep)

    @rule(name=sides, index=st.integers(0, 100))
    def lose(self, name: str, index: int) -> None:
        under_way = self.wire.to[self.side(name).name]
        if under_way:
            self.wire.lose(self.side(name), index % len(under_way))

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.1, 1.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.wire.now += seconds

    @rule(name=sides, size=st.integers(0, 3000))
    def consume(self, name: str, size: int) -> None:
        self.side(name).link.waiting(size)

    @rule(name=sides)
    def retry(self, name: str) -> None:
        self.side(name).link.retry(self.wire.now)

    @precondition(lambda self: self.wire.a.link.idle(self.wire.now) or self.wire.b.link.idle(self.wire.now))
    @rule()
    def drop_idle(self) -> None:
        for side in (self.wire.a, self.wire.b):
            if side.link.idle(self.wire.now):
                side.sleep_and_return()

    @invariant()
    def in_order_and_once(self) -> None:
        for side in (self.wire.a, self.wire.b):
            for put, got in zip(lanes(side.put), lanes(self.wire.other(side).got), strict=True):
                assert got == put[: len(got)]

    @invariant()
    def bounded(self) -> None:
        for side in (self.wire.a, self.wire.b):
            statistics = side.link.statistics()
            assert statistics.queued_messages <= SMALL.max_queue_messages
            assert statistics.queued_bytes <= SMALL.max_queue_bytes
            assert statistics.in_flight_bytes <= SMALL.window_bytes
            assert statistics.in_flight_frames <= SMALL.window_frames
            assert statistics.held_bytes <= SMALL.window_bytes
            assert statistics.held_frames <= SMALL.window_frames

    def teardown(self) -> None:
        for side in (self.wire.a, self.wire.b):
            side.link.waiting(0)
        self.wire.run(30.0)
        for side in (self.wire.a, self.wire.b):
            assert lanes(self.wire.other(side).got) == lanes(side.put)
            assert side.link.outstanding() == 0
            assert side.link.deadline() is None
            assert side.link.silent_since() is None
            statistics = side.link.statistics()
            assert (statistics.queued_bytes, statistics.in_flight_bytes, statistics.held_bytes) == (0, 0, 0)


TestLossyLayer = LossyLayer.TestCase
TestLossyLayer.settings = settings(max_examples=150, stateful_step_count=60)
