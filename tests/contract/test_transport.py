"""What carries frames holds to one contract, whatever it is: and links over it lose, repeat and
reorder nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import uuid4

import pytest
import pytest_asyncio
from django.test import override_settings

from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.channels.transport import ChannelsTransport
from sharding_app.adapters.direct.either import EitherTransport
from sharding_app.adapters.direct.transport import DirectTransport, Listen
from sharding_app.adapters.memory.transport import MemoryNetwork, MemoryTransport
from sharding_app.embedded import Servers
from sharding_app.ports.transport import Transport, TransportError
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import LinkLimits
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.links.links import Links
from tests.integration.adapters.channels.layers import memory_layer, redis_layer
from tests.integration.adapters.direct.ends import TCP, UNIX, Book, until
from tests.support.slack import SLACK
from tests.unit.protocol.link.harness import answer, command

pytestmark = pytest.mark.asyncio
ALIAS = "carried"
KEY = b"k" * 32
WAYS = ["core", "direct-tcp", "direct-unix", "either", "either-by-layer", "memory", "memory-layer", "pubsub"]


class Carriers:
    """Makes transports of one kind that reach each other."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.book = Book()
        self.network = MemoryNetwork()

    def make(self) -> Transport:
        match self.way:
            case "memory":
                return MemoryTransport(self.network)
            case "direct-unix":
                return self._direct(UNIX)
            case "direct-tcp":
                return self._direct(TCP)
            case "either":
                return EitherTransport(self._direct(UNIX), ChannelsTransport(ALIAS, Sealer([KEY])))
            case "either-by-layer":  # the book has no addresses
                return EitherTransport(self._direct(None), ChannelsTransport(ALIAS, Sealer([KEY])))
            case _:
                return ChannelsTransport(ALIAS, Sealer([KEY]))

    def _direct(self, listen: Listen | None) -> DirectTransport:
        return DirectTransport(self.book, keys=[KEY], sealer=Sealer([KEY]), listen=listen)

    @asynccontextmanager
    async def opened(self, channel: str) -> AsyncIterator[Transport]:
        transport = self.make()
        await transport.open(channel)
        self.book.rows[channel] = transport.addresses()
        try:
            yield transport
        finally:
            await transport.close()


@pytest_asyncio.fixture(params=WAYS)
async def carriers(request: pytest.FixtureRequest) -> AsyncIterator[Carriers]:
    way = str(request.param)
    if way in ("core", "pubsub"):
        servers: Servers = request.getfixturevalue("servers")
        layer = redis_layer(way, servers.redis_url, prefix=uuid4().hex)
    else:
        layer = memory_layer(capacity=1000)
    with override_settings(CHANNEL_LAYERS={ALIAS: layer}):
        yield Carriers(way)


def a_channel() -> str:
    return f"sharding.test.n-{uuid4().hex}"


async def sent(transport: Transport, channel: str, data: bytes) -> None:
    """Send it as links do: until it is taken."""
    async with asyncio.timeout(20 * SLACK):
        while True:
            try:
                await transport.send(channel, data)
                return
            except TransportError:
                await asyncio.sleep(0.01)


async def received(transport: Transport) -> bytes:
    async with asyncio.timeout(20 * SLACK):
        return await transport.receive()


async def test_frames_arrive_whole_in_order_and_both_ways(carriers: Carriers) -> None:
    here, there = a_channel(), a_channel()
    async with carriers.opened(here) as one, carriers.opened(there) as two:
        frames = [bytes([number]) * size for number, size in enumerate([0, 1, 255, 100_000, 900_000, 3])]
        for data in frames:
            await sent(one, there, data)
        assert [await received(two) for _ in frames] == frames
        await sent(two, here, b"back")
        assert await received(one) == b"back"


async def test_closed_is_closed_and_may_be_opened_again(carriers: Carriers) -> None:
    channel = a_channel()
    transport = carriers.make()
    for _ in range(2):
        await transport.open(channel)
        waiting = asyncio.ensure_future(transport.receive())
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(TransportError):
            await waiting
        with pytest.raises(TransportError):
            await transport.receive()


async def test_a_frame_to_a_channel_without_a_reader_disturbs_no_other(carriers: Carriers) -> None:
    here, there = a_channel(), a_channel()
    async with carriers.opened(here) as one, carriers.opened(there) as two:
        for _ in range(3):
            try:
                await one.send(a_channel(), b"into the void")
            except TransportError:
                continue
        await sent(one, there, b"x")
        assert await received(two) == b"x"
        assert all(isinstance(count, int) for count in one.statistics().values())


class Peer:
    """A process that answers each command, and remembers in which order all came."""

    def __init__(self, transport: Transport) -> None:
        self.name = f"n-{uuid4().hex}"
        self.commands: list[int] = []
        self.answers: list[int] = []
        self.links = Links(
            self.name, transport, BootClock(), LinkLimits(), self._deliver, lambda each: f"sharding.test.{each}",
            lambda _: None, lambda: True,
        )  # fmt: skip

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, Deliver):
                self.commands.append(message.request)
                assert self.links.put(source, answer(message.request))
            elif isinstance(message, Answer):
                self.answers.append(message.request)


async def test_links_over_it_keep_their_promises(carriers: Carriers) -> None:
    async with AsyncExitStack() as stack:
        peers = []
        for _ in range(2):
            transport = carriers.make()
            peer = Peer(transport)
            channel = f"sharding.test.{peer.name}"
            await transport.open(channel)
            stack.push_async_callback(transport.close)
            carriers.book.rows[channel] = transport.addresses()
            stack.push_async_callback(peer.links.close)
            loop = asyncio.ensure_future(peer.links.receive_loop())
            stack.callback(loop.cancel)
            peers.append(peer)
        here, there = peers
        for number in range(2000):
            assert here.links.put(there.name, command(number, number % 500))
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(here.answers) == 2000, 60.0)
        assert there.commands == here.answers == list(range(2000))
