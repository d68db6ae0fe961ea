"""Transports that find each other, and peers that behave as no transport does."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.direct.addresses import Address, parse_all
from sharding_app.adapters.direct.transport import DirectTransport, Listen
from sharding_app.protocol.direct.company import Others
from sharding_app.protocol.direct.framing import HANDSHAKE, FrameReader, framed
from sharding_app.protocol.direct.handshake import NONCE_BYTES, Dialing, HandshakeKeys
from tests.support.slack import SLACK

KEY, OTHER = b"k" * 32, b"o" * 32
UNIX = Listen()
TCP = Listen(unix=False, bind=("127.0.0.1", 0))


class Book:
    """Where the transports of a test listen, as the rows would say it."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, ...]] = {}
        self.hear: dict[str, Others] = {}

    async def find(self, channel: str) -> list[Address]:
        return parse_all(self.rows.get(channel, ()))

    async def others(self, channel: str) -> Others:
        return self.hear.get(channel, Others())


def a_channel() -> str:
    return f"sharding.test.n-{uuid4().hex}"


@asynccontextmanager
async def opened(
    book: Book, channel: str = "", *, keys: tuple[bytes, ...] = (KEY,), **options: Any
) -> AsyncIterator[DirectTransport]:
    options.setdefault("listen", UNIX)
    sealer = Sealer(keys) if keys else None
    transport = DirectTransport(book, keys=keys, sealer=sealer, **options)
    channel = channel or a_channel()
    await transport.open(channel)
    if transport.addresses():
        book.rows[channel] = transport.addresses()
    try:
        yield transport
    finally:
        await transport.close()


async def received(transport: DirectTransport, seconds: float = 20.0) -> bytes:
    async with asyncio.timeout(seconds * SLACK):
        return await transport.receive()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to be in time")


class Stranger:
    """A raw connection to a transport's first address: says what a test wants, and hears what comes
    back.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = FrameReader(1 << 20)
        self._held: list[tuple[int, bytes]] = []

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hears(self) -> tuple[int, bytes] | None:
        """Return the next frame; None: the connection is over."""
        while not self._held:
            try:
                async with asyncio.timeout(20 * SLACK):
                    data = await self.reader.read(65_536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._held += self._frames.feed(data)
        return self._held.pop(0)

    async def is_cut_off(self) -> bool:
        while await self.hears() is not None:
            pass
        return True


@asynccontextmanager
async def stranger_to(transport: DirectTransport) -> AsyncIterator[Stranger]:
    [address] = parse_all(transport.addresses())[:1]
    if address.way == "unix":
        stream = await asyncio.open_unix_connection(address.host)
    else:
        stream = await asyncio.open_connection(address.host, address.port)
    stranger = Stranger(*stream)
    try:
        yield stranger
    finally:
        stranger.writer.transport.abort()


def a_dialing(key: bytes, me: str, peer: str) -> Dialing:
    return Dialing(HandshakeKeys((key,) if key else ()), me, peer, os.urandom(NONCE_BYTES))


async def prove(stranger: Stranger, me: str, peer: str) -> None:
    """Do the whole handshake, with the key of these tests."""
    side = a_dialing(KEY, me, peer)
    stranger.say(framed(HANDSHAKE, side.hello))
    while not side.proven:
        heard = await stranger.hears()
        assert heard is not None
        assert heard[0] == HANDSHAKE
        if answer := side.receive(heard[1]):
            stranger.say(framed(HANDSHAKE, answer))
