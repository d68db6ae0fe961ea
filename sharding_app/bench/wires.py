"""What carries batches between the two processes of the floor: Redis, or bare sockets."""

import asyncio
import os
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

LENGTH = struct.Struct("<I")
Open = Callable[[], Awaitable["Wire"]]


class Wire(Protocol):
    """One process's end: sends whole batches to an address, and waits for those to its own."""

    @property
    def address(self) -> str: ...

    async def send(self, address: str, body: bytes) -> None: ...

    async def receive(self) -> bytes: ...


class LayerWire:
    """Batches go over the channel layer, as messages of one key."""

    def __init__(self, layer: Any, address: str) -> None:
        self._layer = layer
        self.address = address

    @classmethod
    async def open(cls) -> Wire:
        # Not needed where all goes over sockets, and then perhaps not installed.
        from channels_redis.pubsub import RedisPubSubChannelLayer

        layer = RedisPubSubChannelLayer(hosts=[os.environ["REDIS_URL"]])
        return cls(layer, await layer.new_channel("floor"))

    async def send(self, address: str, body: bytes) -> None:
        await self._layer.send(address, {"type": "floor", "batch": body})

    async def receive(self) -> bytes:
        message: dict[str, bytes] = await self._layer.receive(self.address)
        return message["batch"]


class SocketWire:
    """Batches go over a Unix socket of the receiver, each behind its length.

    A connection is opened with the first batch, and carries batches in one direction. There is no
    key, no limit and no check: it is what the kernel and asyncio cost.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._out: dict[str, asyncio.WriteTransport] = {}
        self._server: asyncio.Server | None = None
        self._arrived: deque[bytes] = deque()
        self._wake = asyncio.Event()

    @classmethod
    async def open(cls) -> Wire:
        wire = cls(f"{os.environ[FOLDER]}/{os.getpid()}")
        loop = asyncio.get_running_loop()
        wire._server = await loop.create_unix_server(lambda: _Incoming(wire._take), wire.address)
        return wire

    async def send(self, address: str, body: bytes) -> None:
        out = self._out.get(address)
        if out is None:
            loop = asyncio.get_running_loop()
            out, _ = await loop.create_unix_connection(asyncio.Protocol, address)
            self._out[address] = out
        out.write(LENGTH.pack(len(body)) + body)

    async def receive(self) -> bytes:
        while not self._arrived:
            self._wake.clear()
            await self._wake.wait()
        return self._arrived.popleft()

    def _take(self, body: bytes) -> None:
        self._arrived.append(body)
        self._wake.set()


class _Incoming(asyncio.Protocol):
    """Cuts a stream into batches."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._held = bytearray()

    def data_received(self, data: bytes) -> None:
        held, at = self._held, 0
        held += data
        while len(held) - at >= LENGTH.size:
            end = at + LENGTH.size + LENGTH.unpack_from(held, at)[0]
            if len(held) < end:
                break
            self._take(bytes(held[at + LENGTH.size : end]))
            at = end
        del held[:at]


FOLDER = "SHARDING_FLOOR_FOLDER"
"""Environment variable: the folder of the sockets, made by the process that measures."""
OPENERS: dict[str, Open] = {"redis": LayerWire.open, "sockets": SocketWire.open}
