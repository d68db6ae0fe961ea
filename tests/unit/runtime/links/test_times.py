"""How long a command has been on its way: told by each process's own clock, and by what it has
heard of the other's.
"""

import asyncio

import pytest

from sharding_app.protocol.codec import decode_frame
from sharding_app.protocol.link.link import Link, LinkLimits
from sharding_app.protocol.messages import AnyMessage, Deliver, OperatorRequest
from sharding_app.runtime.links import table
from tests.unit.protocol.link.harness import answer, command, lanes
from tests.unit.runtime.links.test_links import World, run

LIMITS = LinkLimits()


class End:
    """One end of a link, on a machine with a clock of its own."""

    def __init__(self, name: str, peer: str, clock: float) -> None:
        self.link = Link(name, peer, LIMITS, 1)
        self.clock = clock
        self.got: list[AnyMessage] = []

    def flush(self) -> list[bytes]:
        return self.link.flush(self.clock)

    def take(self, frames: list[bytes]) -> None:
        for data in frames:
            self.got += self.link.receive(decode_frame(data), self.clock, len(data))


class Pair:
    """Two machines: one booted long ago, one just now."""

    def __init__(self) -> None:
        self.a, self.b = End("a", "b", 500_000.0), End("b", "a", 10.0)

    def wait(self, seconds: float) -> None:
        self.a.clock += seconds
        self.b.clock += seconds

    def opened(self) -> "Pair":
        self.a.link.put(answer(0))
        self.exchange()
        self.b.got.clear()
        return self

    def exchange(self) -> None:
        for _ in range(6):
            self.b.take(self.a.flush())
            self.a.take(self.b.flush())
            self.wait(0.02)

    def call(self, timeout: float = 5.0) -> None:
        now = int(self.a.clock * 1000)
        message = command(1)
        message.born_ms, message.deadline_ms = now, now + int(timeout * 1000)
        assert self.a.link.put(message)

    def arrived(self) -> tuple[float, float]:
        """The age of the one command that has arrived, and what is left of its caller's
        patience.
        """
        [message] = self.b.got
        assert isinstance(message, Deliver)
        now = self.b.clock * 1000
        return (now - message.born_ms) / 1000, (message.deadline_ms - now) / 1000


def test_the_time_in_the_queue_counts() -> None:
    pair = Pair().opened()
    pair.call()
    pair.wait(700.0)
    pair.b.take(pair.a.flush())
    pair.exchange()
    age, left = pair.arrived()
    assert 700.0 <= age <= 701.0
    assert -696.0 <= left <= -695.0


def test_the_time_in_flight_counts() -> None:
    pair = Pair().opened()
    pair.call()
    frames = pair.a.flush()
    pair.wait(20.0)
    pair.b.take(frames)
    age, left = pair.arrived()
    assert 20.0 <= age <= 20.5
    assert -15.5 <= left <= -15.0


def test_what_was_in_flight_for_too_long_is_repeated_with_its_age() -> None:
    """A process is frozen between its flush and its send, or Redis with a frame in its hands."""
    pair = Pair().opened()
    pair.call()
    frames = pair.a.flush()
    pair.wait(700.0)
    pair.b.take(frames)
    assert pair.b.got == []
    assert pair.b.link.statistics().frames_late == 1
    pair.exchange()
    age, _ = pair.arrived()
    assert 700.0 <= age <= 701.0


def test_the_time_before_its_turn_counts() -> None:
    pair = Pair().opened()
    pair.a.link.put(answer(1))
    first = pair.a.flush()
    pair.call()
    second = pair.a.flush()
    pair.b.take(second)
    pair.wait(10.0)
    pair.b.take(first)
    pair.b.got = pair.b.got[1:]
    age, _ = pair.arrived()
    assert 10.0 <= age <= 10.5


def test_a_clock_that_runs_apart_misleads_for_as_long_as_nothing_is_heard() -> None:
    pair = Pair().opened()
    pair.a.clock += 3600.0
    pair.b.clock += 3600.0 * 1.0005
    pair.call()
    pair.b.take(pair.a.flush())
    pair.exchange()
    age, _ = pair.arrived()
    assert 0.0 <= age <= 3600.0 * 0.002


@pytest.mark.parametrize(
    "message", [command(1), OperatorRequest(1, "erase", "t", 1, "e")], ids=["command", "request"]
)
def test_no_command_goes_to_a_peer_that_was_never_heard(message: AnyMessage) -> None:
    """Its first frame can be held back without a limit, or recorded: its reader knows nothing of
    its age.
    """
    pair = Pair()
    pair.a.link.put(message)
    pair.a.link.put(answer(2))
    frames = pair.a.flush()
    assert decode_frame(frames[0]).body == [answer(2)]
    pair.b.take(frames)
    pair.a.take(pair.b.flush())
    assert len(decode_frame(pair.a.flush()[0]).body) == 1, "one round trip later"


def test_a_command_alone_asks_for_a_word_first() -> None:
    pair = Pair()
    pair.call()
    [opening] = pair.a.flush()
    assert decode_frame(opening).body == []
    pair.b.take([opening])
    pair.a.take(pair.b.flush())
    pair.b.take(pair.a.flush())
    age, _ = pair.arrived()
    assert age <= 0.5


def test_recorded_frames_are_refused_when_their_stream_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """After that number of other clients nothing is known of this one's stream: the frames' own
    times tell.
    """
    monkeypatch.setattr(table, "MAX_REMEMBERED", 3)

    async def main(world: World) -> None:
        one, home = await world.peer("p-one"), await world.peer("home")
        recorded: list[bytes] = []
        take = home.links.take

        async def record(data: bytes) -> int:
            recorded.append(data)
            return await take(data)

        home.links.take = record  # type: ignore[method-assign]
        for number in range(5):
            one.links.put("home", command(number))
            await asyncio.sleep(0.1)
        home.links.take = take  # type: ignore[method-assign]
        await one.stop()
        world.peers.remove(one)
        assert lanes(home.got["p-one"])[0] == [command(number) for number in range(5)]
        for number in range(4):
            other = await world.peer(f"p-{number}")
            other.links.put("home", command(0))
            await asyncio.sleep(0.1)
        await asyncio.sleep(3 * world.limits.idle_after_seconds)
        assert home.links.peers() == []
        for data in recorded:
            await take(data)
        assert lanes(home.got["p-one"])[0] == [command(number) for number in range(5)]

    run(main)
