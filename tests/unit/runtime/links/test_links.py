"""The links of processes on virtual time, over a virtual layer that can fail."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from sharding_app.adapters.memory.transport import MemoryNetwork, MemoryTransport
from sharding_app.ports.transport import PeerNotYetReached, PeerUnreachable
from sharding_app.protocol.codec import FrameWriter, encode_frame, encode_message
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import LinkLimits, MessageTooLarge
from sharding_app.protocol.messages import Answer, AnyMessage, Done, Echo, Frame, NodeGone
from sharding_app.runtime.links import table
from sharding_app.runtime.links.links import Links
from tests.unit.protocol.link.harness import answer, command, lanes, timeless
from tests.unit.runtime.virtual_time import VirtualLoop

LIMITS = LinkLimits()


class LoopClock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time


class Faults:
    """Every message is as late as said; those of muted clients are lost; refusing clients and
    senders to full channels are told.
    """

    def __init__(self) -> None:
        self.delay = 0.001
        self.muted: set[str] = set()
        self.refused: set[str] = set()
        self.full: dict[str, PeerUnreachable] = {}
        self.drop_every = 0
        self.count = 0

    def refuses(self, client: str) -> bool:
        return client in self.refused

    def route(self, client: str, channel: str) -> Sequence[float] | None:
        self.count += 1
        if channel in self.full:
            raise self.full[channel]
        if client in self.muted or (self.drop_every and self.count % self.drop_every == 0):
            return ()
        return (self.delay,)


class Peer:
    """One process: its links, and what they gave."""

    def __init__(self, world: "World", name: str) -> None:
        self.name = name
        self.valid = True
        self.waiting = 0
        self.got: dict[Incarnation, list[AnyMessage]] = defaultdict(list)
        self.suspected: list[Incarnation] = []
        self.transport = MemoryTransport(world.network, name)
        self.links = Links(
            name,
            self.transport,
            LoopClock(world.loop),
            world.limits,
            self._deliver,
            lambda incarnation: f"c.{incarnation}",
            self.suspected.append,
            lambda: self.valid,
            lambda _: self.waiting,
        )
        self.bad: AnyMessage | None = None

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        self.got[source] += timeless(messages)
        if self.bad in messages:
            raise RuntimeError("this consumer breaks")

    async def start(self) -> "Peer":
        await self.transport.open(f"c.{self.name}")
        self.task = asyncio.ensure_future(self.links.receive_loop())
        return self

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self.links.close()
        await self.transport.close()

    def counter(self, name: str) -> int:
        return self.links.statistics().counters.get(name, 0)


class World:
    def __init__(self, limits: LinkLimits = LIMITS) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.faults = Faults()
        self.network = MemoryNetwork(faults=self.faults)
        self.peers: list[Peer] = []

    async def peer(self, name: str) -> Peer:
        self.peers.append(Peer(self, name))
        return await self.peers[-1].start()


Main = Callable[[World], Coroutine[Any, Any, None]]


def run(main: Main, limits: LinkLimits = LIMITS) -> None:
    async def whole() -> None:
        world = World(limits)
        try:
            await main(world)
        finally:
            for peer in world.peers:
                await peer.stop()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, "closed links leave no task behind"

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(whole())


def test_what_gathers_while_a_frame_is_sent_goes_out_together() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.links.put("two", answer(0))
        await asyncio.sleep(0.1)
        for number in range(1, 100):
            assert one.links.put("two", answer(number))
        await asyncio.sleep(0.1)
        assert two.got["one"] == [answer(number) for number in range(100)]
        assert one.links.statistics().links["two"].frames_sent == 2
        assert one.links.outstanding() == 0
        assert await one.links.drain(0.0)

    run(main)


def frame_of(count: int) -> bytes:
    return encode_frame(Frame(1, "a", "one", 1, 1, 0, 0, 0, [answer(number) for number in range(count)]))


def test_others_have_their_turn_in_the_middle_of_a_large_frame() -> None:
    """Two that only answer each other would else take turns, one of them idle at any time."""

    async def main(world: World) -> None:
        one = await world.peer("one")
        seen: list[int] = []
        asyncio.get_running_loop().call_soon(lambda: seen.append(len(one.got["a"])))
        large = world.limits.halve_messages
        assert await one.links.take(frame_of(large)) == large
        assert seen == [large // 2]
        assert one.got["a"] == [answer(number) for number in range(large)]

    run(main)


def test_the_second_half_of_a_frame_goes_with_its_sender() -> None:
    async def main(world: World) -> None:
        one = await world.peer("one")
        asyncio.get_running_loop().call_soon(one.links.end, "a", 1)
        await one.links.take(frame_of(world.limits.halve_messages))
        assert len(one.got["a"]) == world.limits.halve_messages // 2

    run(main)


def test_loss_is_delay() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        world.faults.drop_every = 3
        sent: list[AnyMessage] = []
        for number in range(300):
            message = command(number) if number % 2 else answer(number)
            assert one.links.put("two", message)
            sent.append(message)
            two.links.put("one", answer(number))
            await asyncio.sleep(0.005)
        assert await one.links.drain(10.0)
        assert lanes(two.got["one"]) == lanes(sent)
        assert one.got["two"] == [answer(number) for number in range(300)]
        assert one.links.statistics().links["two"].frames_resent > 0

    run(main)


def test_to_ourselves_in_order_in_batches_and_within_bounds() -> None:
    async def main(world: World) -> None:
        one = await world.peer("one")
        message = answer(1)
        assert one.links.put("one", message)
        assert one.got["one"] == []
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert one.got["one"] == [message]
        assert one.got["one"][0] is message
        for number in range(world.limits.max_queue_messages):
            assert one.links.put("one", answer(number))
        assert not one.links.put("one", answer(0))
        assert one.links.outstanding() == world.limits.max_queue_messages
        await asyncio.sleep(0.1)
        assert one.got["one"][1:] == [answer(number) for number in range(world.limits.max_queue_messages)]
        with pytest.raises(MessageTooLarge):
            one.links.put("one", answer(1, world.limits.max_message_bytes))
        assert one.links.statistics().links == {}

    run(main)


def test_a_node_that_may_not_speak_says_nothing_not_even_to_itself() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        two.links.put("one", answer(0))
        await asyncio.sleep(0.1)
        one.valid = False
        count = world.faults.count
        one.links.put("two", answer(1))
        one.links.put("one", answer(2))
        await asyncio.sleep(5.0)
        assert world.faults.count == count
        two.links.put("one", answer(3))
        await asyncio.sleep(1.0)
        assert one.got["two"] == [answer(0), answer(3)], "what comes is handed on: its receiver decides"
        assert two.got["one"] == one.got["one"] == []
        assert two.suspected
        assert not one.suspected
        one.valid = True
        one.links.resume()
        await asyncio.sleep(0.05)
        assert two.got["one"] == [answer(1)]
        assert one.got["one"] == [answer(2)]
        assert two.links.outstanding() == 0
        assert not one.suspected, "our own silence is not the peer's"

    run(main)


def test_a_silent_peer_is_suspected_soon_and_then_once_a_second() -> None:
    async def main(world: World) -> None:
        one, _ = await world.peer("one"), await world.peer("two")
        one.links.put("two", answer(0))
        await asyncio.sleep(1.0)
        assert one.suspected == []
        world.faults.muted.add("two")
        one.links.put("two", answer(1))
        await asyncio.sleep(world.limits.suspect_after_seconds - 0.001)
        assert one.suspected == []
        assert not one.links.is_silent("two")
        await asyncio.sleep(0.003)
        assert one.suspected == ["two"]
        assert one.links.is_silent("two")
        await asyncio.sleep(4.9)
        assert len(one.suspected) == 5
        assert one.counter("suspected") == 5

    run(main)


def test_a_peer_whose_channel_is_full_is_suspected_as_a_silent_one() -> None:
    """The channel may be full because its reader has ended."""

    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        world.faults.full["c.two"] = PeerUnreachable("the channel is full")
        assert one.links.put("two", answer(0))
        await asyncio.sleep(0.2)
        assert one.suspected == ["two"]
        assert one.links.is_silent("two")
        await asyncio.sleep(5.0)
        assert len(one.suspected) == 6, "once a second"
        assert one.counter("peer_unreachable") > 5
        world.faults.full.clear()
        await asyncio.sleep(0.3)
        assert two.got["one"] == [answer(0)]
        assert not one.links.is_silent("two")

    run(main)


@pytest.mark.parametrize(
    ("error", "is_said"), [(PeerNotYetReached("it is being made"), False), (PeerUnreachable("refused"), True)]
)
def test_a_way_that_is_being_made_is_not_said_to_be_closed(
    error: PeerUnreachable, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        one, _ = await world.peer("one"), await world.peer("two")
        world.faults.full["c.two"] = error
        assert one.links.put("two", answer(0))
        await asyncio.sleep(0.2)
        assert one.counter("peer_unreachable") > 0
        assert one.suspected == ["two"]

    run(main)
    assert ("takes no frames" in caplog.text) is is_said


def test_a_message_does_not_wait_for_the_pause_of_a_peer_that_was_not_reached() -> None:
    """Otherwise a process that was idle would notice the end of that peer late."""

    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.links.put("two", command(1))
        await asyncio.sleep(0.1)
        two.links.put("one", command(1))
        world.faults.full["c.two"] = PeerUnreachable("the channel is full")
        await asyncio.sleep(5.0)
        assert one.counter("peer_unreachable") > 5, "its acknowledgement does not go"
        assert one.suspected == []
        one.links.put("two", command(2))
        await asyncio.sleep(0.1)
        assert one.suspected == ["two"]

    run(main)


def test_a_layer_that_refuses_is_tried_again_and_again() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.links.put("two", answer(0))
        await asyncio.sleep(0.1)
        world.faults.refused |= {"one", "two"}
        for number in range(1, 50):
            one.links.put("two", answer(number))
            two.links.put("one", answer(number))
            await asyncio.sleep(0.5)
        assert one.counter("send_errors") > 50
        assert one.suspected == [], "the silence is the layer's"
        world.faults.refused.clear()
        await asyncio.sleep(0.3)
        assert two.got["one"] == [answer(number) for number in range(50)]
        assert one.got["two"] == [answer(number) for number in range(1, 50)]

    run(main)


def test_a_peer_that_is_gone_is_dropped_and_its_late_frames_are_refused() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        two.links.put("one", answer(0))
        await asyncio.sleep(0.1)
        one.links.put("two", answer(1))
        one.links.end("two", 1)
        await asyncio.sleep(0.1)
        assert one.links.statistics().links == {}
        assert one.links.outstanding() == 0
        assert not one.links.put("two", answer(2))
        two.links.put("one", answer(3))
        await asyncio.sleep(0.5)
        assert one.got["two"] == [answer(0)]
        assert two.got["one"] == []
        assert one.counter("frames_from_gone") > 0

    run(main)


def test_only_a_peer_that_goes_on_sending_after_its_end_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Frames that were on the way when their sender left in order are no news to an operator."""

    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        two.links.put("one", answer(0))
        await asyncio.sleep(0.1)
        one.links.end("two", 1)
        two.links.put("one", answer(1))
        await asyncio.sleep(0.5)
        refused = one.counter("frames_from_gone")
        assert refused > 0
        assert caplog.messages == []
        one.links.end("two", 2)  # told again: the time of the first word counts
        await asyncio.sleep(5)
        two.links.put("one", answer(2))
        await asyncio.sleep(0.5)
        assert one.counter("frames_from_gone") > refused
        (said,) = [each for each in caplog.messages if "from gone" in each]
        assert said.startswith("refused: frames from gone (two, whose end was told 5 s ago")

    run(main)


def test_a_word_for_the_buried_overtakes_what_waits_for_the_stream_to_open() -> None:
    """One that is taken for dead and lives hears so, though nothing else of the link is waited
    for.
    """

    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.links.put("two", answer(0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        word = NodeGone(1, "two")
        one.links.put("two", word)
        one.links.say_now("two", word)
        await asyncio.sleep(0)
        one.links.end("two", 1)
        await asyncio.sleep(0.1)
        assert two.got["one"] == [answer(0), word]

    run(main)


def test_idle_links_are_dropped_and_late_repetitions_still_known() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        recorded: list[bytes] = []
        take = two.links.take

        async def record(data: bytes) -> int:
            recorded.append(data)
            return await take(data)

        two.links.take = record  # type: ignore[method-assign]
        for number in range(3):
            one.links.put("two", answer(number))
            await asyncio.sleep(0.1)
        await asyncio.sleep(2 * world.limits.idle_after_seconds)
        assert one.links.statistics().links == two.links.statistics().links == {}
        for data in recorded:
            await take(data)
        assert two.got["one"] == [answer(number) for number in range(3)]
        one.links.put("two", answer(3))
        two.links.put("one", answer(4))
        await asyncio.sleep(0.1)
        assert two.got["one"] == [answer(number) for number in range(4)]
        assert one.got["two"] == [answer(4)]
        assert one.links.statistics().links["two"].streams_restarted == 0

    run(main)


def test_garbage_misdirected_and_unknown_messages_are_counted_and_stop_nothing() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        await two.transport.send("c.one", b"garbage")
        await two.transport.send("c.one", encode_frame(Frame(1, "two", "three", 1, 1, 0, 0, 0, [answer(9)])))
        good, later_release = encode_message(answer(0)), b"\x92\x7f\x01"
        frame = FrameWriter("two", "one").write(1, 1, 0, 0, 0, 2, [later_release, good])
        await two.transport.send("c.one", frame)
        await asyncio.sleep(0.1)
        assert one.got["two"] == [answer(0)]
        assert one.counter("frames_unreadable") == 1
        assert one.counter("frames_misdirected") == 1
        assert one.counter("messages_unreadable") == 1

    run(main)


def test_a_consumer_that_breaks_does_not_stop_the_links() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.bad = answer(0)
        for number in range(3):
            two.links.put("one", answer(number))
            await asyncio.sleep(0.1)
        assert one.got["two"] == [answer(0), answer(1), answer(2)]
        assert one.counter("deliver_errors") == 1
        assert two.links.outstanding() == 0

    run(main)


def test_we_hear_our_own_word() -> None:
    async def main(world: World) -> None:
        one = await world.peer("one")
        await one.links.echo(7)
        await asyncio.sleep(0.01)
        assert one.got["one"] == [Echo(7)]
        forged = Frame(1, "one", "one", 0, 0, 0, 0, 0, [Answer(1, b""), Done([1]), Echo(8)])
        await one.transport.send("c.one", encode_frame(forged))
        await asyncio.sleep(0.01)
        assert one.got["one"] == [Echo(7), Echo(8)]

    run(main)


def test_a_flood_is_held_back_where_it_comes_from() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        two.waiting = 10**9
        one.links.put("two", answer(0))
        await asyncio.sleep(0.1)
        put = 0
        while one.links.put("two", command(put, 1000)):
            put += 1
        assert one.counter("puts_refused") == 1
        await asyncio.sleep(3.0)
        assert lanes(two.got["one"]) == ([], [answer(0)])
        assert one.links.put("two", answer(1)) is False
        two.waiting = 0
        assert await one.links.drain(3.0)
        assert len(two.got["one"]) == put + 1

    run(main, LinkLimits(max_queue_messages=500))


def test_a_full_window_goes_on_with_the_acknowledgement_and_not_with_a_timer() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        for number in range(1000):
            assert one.links.put("two", answer(number, 1000))
        started = world.loop.time()
        assert await one.links.drain(10.0)
        assert len(two.got["one"]) == 1000
        assert world.loop.time() - started < 0.2

    run(main, LinkLimits(max_frame_bytes=10_000, max_message_bytes=10_000, window_bytes=40_000))


def test_a_lease_that_ends_between_two_frames_is_seen() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.links.put("two", answer(0))
        await asyncio.sleep(0.1)
        send = one.transport.send

        async def send_and_lose_the_lease(channel: str, data: bytes) -> None:
            await send(channel, data)
            one.valid = False

        one.transport.send = send_and_lose_the_lease  # type: ignore[method-assign]
        for number in range(1, 2001):
            one.links.put("two", answer(number))
        await asyncio.sleep(1.0)
        assert len(two.got["one"]) == 1 + world.limits.max_frame_messages
        one.transport.send = send  # type: ignore[method-assign]
        one.valid = True
        one.links.resume()
        await asyncio.sleep(0.1)
        assert two.got["one"] == [answer(number) for number in range(2001)]

    run(main)


def test_a_link_made_again_has_a_later_stream_than_any_before() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        for number in range(3):
            one.links.put("two", answer(number))
            await asyncio.sleep(0.1)
            stream = one.links._tasks["two"].link.stream
            forgot = Frame(1, "two", "one", 0, 0, stream, 0, 0, [])
            await one.links.take(encode_frame(forgot))
        assert one.links.statistics().links["two"].streams_restarted == 3
        one.links.put("two", answer(3))
        await asyncio.sleep(2 * world.limits.idle_after_seconds)
        assert one.links.statistics().links == {}
        one.links.put("two", answer(4))
        await asyncio.sleep(0.1)
        assert two.got["one"] == [answer(number) for number in range(5)]

    run(main)


def test_what_we_say_to_ourselves_is_bounded_in_bytes() -> None:
    async def main(world: World) -> None:
        one = await world.peer("one")
        fits = world.limits.max_queue_bytes // 100_032
        for _ in range(3):
            assert sum(one.links.put("one", answer(number, 100_000)) for number in range(fits + 5)) == fits
            await asyncio.sleep(0.1)
        assert len(one.got["one"]) == 3 * fits

    run(main)


def test_too_many_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_LINKS", 2)
    monkeypatch.setattr(table, "MAX_REMEMBERED", 2)

    async def main(world: World) -> None:
        one = await world.peer("one")
        for name in "abcd":
            await one.links.take(encode_frame(Frame(1, name, "one", 1, 1, 0, 0, 0, [answer(0)])))
        assert set(one.got) == {"a", "b"}
        assert one.counter("links_refused") == 2
        for name in "abcd":
            one.links.end(name, 1)
        assert await one.links.take(encode_frame(Frame(1, "d", "one", 1, 1, 0, 0, 0, [answer(0)]))) == 0

    run(main)


def test_a_sleeping_process_does_not_suspect_the_others_when_it_wakes() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("two")
        one.links.put("two", answer(0))
        await asyncio.sleep(0.1)
        two.links.put("one", answer(1))
        one.links.put("two", answer(2))
        await asyncio.sleep(0)
        assert isinstance(world.loop, VirtualLoop)
        one.valid = False
        world.loop.freeze(30.0)
        await asyncio.sleep(0.01)
        one.valid = True
        one.links.resume()
        await asyncio.sleep(1.0)
        assert one.suspected == []
        assert two.got["one"] == [answer(0), answer(2)]

    run(main)
