"""Directly where that is possible, over the layer else, and neither holds the other up."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from sharding_app.adapters.direct import either
from sharding_app.adapters.direct.either import EitherTransport
from sharding_app.adapters.direct.transport import DirectTransport, Listen
from sharding_app.ports.transport import PeerUnreachable, TransportError
from sharding_app.protocol.direct.company import Company, Others
from tests.integration.adapters.direct.ends import KEY, UNIX, Book, a_channel, received, until
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


class Layer:
    """A channel layer that does what a test says, shared by the transports of one test."""

    def __init__(self, channels: dict[str, "Layer"]) -> None:
        self.down = False
        self.hangs = asyncio.Event()
        self.opened = 0
        self.sent = 0
        self.away_seconds = 0
        self.broken = False
        self._channels = channels
        self._frames: deque[bytes] = deque()
        self._arrived = asyncio.Event()

    async def open(self, channel: str) -> None:
        self.opened += 1
        if self.down:
            raise TransportError("no Redis there")
        self._channels[channel] = self

    async def send(self, channel: str, data: bytes) -> None:
        if self.down:
            raise TransportError("no Redis there")
        self.sent += 1
        if (to := self._channels.get(channel)) is not None:
            to.bring(data)

    def bring(self, data: bytes) -> None:
        self._frames.append(data)
        self._arrived.set()

    async def receive(self) -> bytes:
        while not self._frames:
            if self.broken:
                self.broken = False
                raise TransportError("frames may have been lost")
            self._arrived.clear()
            await self._arrived.wait()
        return self._frames.popleft()

    async def close(self) -> None: ...

    def addresses(self) -> tuple[str, ...]:
        return ()

    def statistics(self) -> Mapping[str, int]:
        return {"frames_sent": self.sent, "layer_away_seconds": self.away_seconds}


class World:
    def __init__(self) -> None:
        self.book = Book()
        self.channels: dict[str, Layer] = {}

    @asynccontextmanager
    async def opened(
        self, channel: str, listen: Listen | None = UNIX, *, down: bool = False
    ) -> AsyncIterator[tuple[EitherTransport, Layer]]:
        layer = Layer(self.channels)
        layer.down = down
        direct = DirectTransport(self.book, keys=[KEY], listen=listen)
        transport = EitherTransport(direct, layer)
        await transport.open(channel)
        if transport.addresses():
            self.book.rows[channel] = transport.addresses()
        try:
            yield transport, layer
        finally:
            await transport.close()


async def test_what_can_go_directly_never_sees_the_layer() -> None:
    world, one, two = World(), a_channel(), a_channel()
    async with world.opened(one) as (here, layer), world.opened(two, None) as (there, _):
        await there.send(one, b"x")
        assert await received_either(here) == b"x"
        await here.send(two, b"y")
        assert await received_either(there) == b"y"
        assert layer.sent == 0
        assert here.statistics()["peers_by_layer"] == 0
        assert "frames_by_layer" not in here.statistics()


async def test_the_layer_carries_what_cannot_and_it_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(either, "LASTING_SECONDS", 0.0)
    caplog.set_level("INFO", "sharding.transport")
    world, one, two = World(), a_channel(), a_channel()
    async with world.opened(one) as (here, layer), world.opened(two, None) as (there, other):
        await until(lambda: bool(layer.opened and other.opened))
        for number in range(3):
            await here.send(two, bytes((number,)))
            assert await received_either(there) == bytes((number,))
        found = here.statistics()
        assert found["frames_by_layer"] == found["frames_sent"] == 3
        layer.bring(b"an acknowledgement, say")
        await received_either(here)
        assert here.statistics()["peers_by_layer"] == 1
        assert sum("the channel layer carries" in each.message for each in caplog.records) == 1
        await there.send(one, b"now there is a connection")
        assert await received_either(here) == b"now there is a connection"
        await here.send(two, b"direct")
        assert await received_either(there) == b"direct"
        assert here.statistics()["peers_by_layer"] == 0
        assert layer.sent == 3


async def test_a_connection_that_is_lost_is_replaced_by_the_layer_at_once() -> None:
    world, one, two = World(), a_channel(), a_channel()
    async with world.opened(one) as (here, layer), world.opened(two) as (there, other):
        await until(lambda: bool(layer.opened and other.opened))
        await here.send(two, b"x")
        assert await received_either(there) == b"x"
        world.book.rows[two] = ()
        await there._direct._stop_listening()
        [connection] = here._direct._connections
        connection.abort("cut")
        await connection.ended.wait()
        await here.send(two, b"y")
        assert await received_either(there) == b"y"
        assert layer.sent == 1


async def test_a_layer_that_is_down_delays_nothing_and_is_opened_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(either, "AGAIN_SECONDS", 0.01)
    world, one, two = World(), a_channel(), a_channel()
    async with (
        world.opened(one, down=True) as (here, layer),
        world.opened(two, None, down=True) as (there, other),
    ):
        await there.send(one, b"x")
        assert await received_either(here) == b"x"
        with pytest.raises(PeerUnreachable):
            await here.send(a_channel(), b"to a stranger")
        await until(lambda: layer.opened >= 3)
        layer.down = other.down = False
        await until(lambda: {one, two} <= set(world.channels))
        unknown = a_channel()
        await here.send(unknown, b"over the layer, as it would without direct links")
        layer.down = True
        with pytest.raises(PeerUnreachable, match="nor over the channel layer"):
            await here.send(unknown, b"x")


async def test_what_the_layer_loses_stops_nothing() -> None:
    world, one, two = World(), a_channel(), a_channel()
    async with world.opened(one) as (here, layer), world.opened(two, None) as (there, other):
        await until(lambda: bool(layer.opened and other.opened))
        other.broken = True
        other._arrived.set()
        await here.send(two, b"x")
        assert await received_either(there) == b"x"


async def test_a_node_that_no_other_answers_hears_itself_over_the_layer() -> None:
    """Its echo shows that the layer reaches it, so it need not give its shards up."""
    world, name = World(), a_channel()
    layer = Layer(world.channels)
    direct = DirectTransport(world.book, keys=[KEY], listen=UNIX, company=Company(0.0))
    world.book.hear[name] = Others((a_channel(),), older=True)
    here = EitherTransport(direct, layer)
    await here.open(name)
    await until(lambda: name in world.channels)
    async with asyncio.timeout(20 * SLACK):
        while not layer.sent:
            await here.send(name, b"echo")
            assert await received_either(here) == b"echo"
    layer.down = True
    with pytest.raises(PeerUnreachable, match="no other node answers; nor over the channel layer"):
        await here.send(name, b"echo")
    await here.close()


async def test_a_peer_that_has_ended_is_not_said_to_be_reached_by_the_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layer takes frames for it, and brings none of it."""
    monkeypatch.setattr(either, "LASTING_SECONDS", 60.0)
    monkeypatch.setattr(either, "LATELY_SECONDS", 60.0)
    world, one, two = World(), a_channel(), a_channel()
    async with world.opened(one) as (here, layer):
        await until(lambda: bool(layer.opened))
        await here.send(two, b"to a process that has ended")
        assert here.statistics()["frames_by_layer"] == 1
        assert here.statistics()["peers_by_layer"] == 0
        layer.bring(b"of a process that lives")
        await received_either(here)
        assert here.statistics()["peers_by_layer"] == 0, "its end may not be known yet"
        monkeypatch.setattr(either, "LASTING_SECONDS", 0.0)
        assert here.statistics()["peers_by_layer"] == 1
        monkeypatch.setattr(either, "LATELY_SECONDS", 0.0)
        await asyncio.sleep(0)
        assert here.statistics()["peers_by_layer"] == 0
        assert here.statistics()["frames_by_layer"] == 1


async def test_it_says_for_how_long_the_layer_has_been_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(either, "AGAIN_SECONDS", 0.01)
    world, now = World(), 1000.0
    monkeypatch.setattr(either, "time", SimpleNamespace(monotonic=lambda: now))
    async with world.opened(a_channel(), down=True) as (here, layer):
        assert here.statistics()["layer_away_seconds"] == 0
        now += 7.5
        assert here.statistics()["layer_away_seconds"] == 7
        opened = layer.opened
        layer.down = False
        await until(lambda: layer.opened > opened and here.statistics()["layer_away_seconds"] == 0)
        layer.away_seconds = 3
        assert here.statistics()["layer_away_seconds"] == 3, "since then the layer says it itself"


@pytest.mark.parametrize("error", [TransportError("no Redis there"), ValueError("a wrong configuration")])
async def test_a_layer_that_fails_each_call_costs_little_and_stops_nothing(error: Exception) -> None:
    world, one, two = World(), a_channel(), a_channel()

    failed: list[Exception] = []

    async def fails() -> bytes:
        failed.append(error)
        raise error

    async with world.opened(one) as (here, layer), world.opened(two, None) as (there, _):
        layer.receive = fails  # type: ignore[method-assign]
        for number in range(100):
            await there.send(one, bytes((number,)))
            assert await received_either(here) == bytes((number,))
        await until(lambda: len(failed) > 1)
        assert len(failed) < 20
        assert here.statistics()["layer_errors"] == len(failed)


async def test_a_layer_that_cannot_even_be_made_stops_nothing() -> None:
    world, one, two = World(), a_channel(), a_channel()

    async def fails(channel: str) -> None:
        raise ValueError("CHANNEL_LAYERS has no such alias")

    layer = Layer(world.channels)
    layer.open = fails  # type: ignore[method-assign]
    here = EitherTransport(DirectTransport(world.book, keys=[KEY], listen=UNIX), layer)
    await here.open(one)
    world.book.rows[one] = here.addresses()
    async with world.opened(two, None) as (there, _):
        await there.send(one, b"x")
        assert await received_either(here) == b"x"
        await until(lambda: here.statistics().get("layer_errors", 0) > 1)
    await here.close()


async def received_either(transport: EitherTransport) -> bytes:
    return await received(transport._direct)
