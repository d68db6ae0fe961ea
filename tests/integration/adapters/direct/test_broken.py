"""Connections that break in the middle of a frame: nothing of it is taken, and links lose and
repeat nothing.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import cycle
from uuid import uuid4

import pytest

from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.direct.transport import DirectTransport, Listen
from sharding_app.protocol.direct.framing import FRAME, framed
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import LinkLimits
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.links.links import Links
from tests.integration.adapters.direct.ends import (
    KEY,
    UNIX,
    Book,
    a_channel,
    opened,
    prove,
    received,
    stranger_to,
    until,
)
from tests.unit.protocol.link.harness import answer, command

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("part", [0.0, 0.1, 0.9])
async def test_half_a_frame_is_no_frame(listen: Listen, part: float) -> None:
    """The peer ends after a head, or within the body; the next connection begins with a clean
    slate.
    """
    book, name, other = Book(), a_channel(), a_channel()
    frame = framed(FRAME, Sealer([KEY]).seal(b"half" * 25_000))
    async with opened(book, name, listen=listen) as here:
        async with stranger_to(here) as peer:
            await prove(peer, other, name)
            peer.say(frame[: 4 + int(part * len(frame))])
            await until(lambda: here.statistics()["connections"] == 1)
            [connection] = here._connections
            await until(partial(_holds, connection, int(part * len(frame))))
        await until(lambda: here.statistics()["connections"] == 0)
        assert here.statistics()["frames_received"] == 0
        assert here.statistics()["connections_lost"] == 1
        async with opened(book, other, listen=listen) as there:
            await there.send(name, b"whole")
            assert await received(here) == b"whole"
        assert "seals_broken" not in here.statistics()


def _holds(connection: object, size: int) -> bool:
    return connection._reader.held >= size  # type: ignore[attr-defined, no-any-return]


async def test_a_frame_that_never_ends_holds_no_more_than_the_limit() -> None:
    name = a_channel()
    async with opened(Book(), name, max_frame_bytes=100_000) as here, stranger_to(here) as peer:
        await prove(peer, a_channel(), name)
        peer.say(struct.pack("<I", FRAME << 24 | 100_000) + bytes(99_999))
        [connection] = here._connections
        await until(partial(_holds, connection, 100_003))
        assert connection._reader.held == 100_003
        peer.say(b"\0" + struct.pack("<I", FRAME << 24 | 200_000))
        assert await peer.is_cut_off()
        assert here.statistics()["connections"] == 0


class Cutter:
    """A way between two processes that breaks after some bytes, each time another number of
    them.
    """

    def __init__(self, target: str, sizes: Iterable[int], *, reset: bool) -> None:
        self.cuts = 0
        self.whole = False
        self._target = target.removeprefix("unix:")
        self._sizes: Iterator[int] = cycle(sizes)
        self._reset = reset
        self._server: asyncio.Server

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        try:
            yield f"tcp:127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        finally:
            self._server.close()

    async def _forward(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, forth = await asyncio.open_unix_connection(self._target)
        left = [next(self._sizes)]
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(near, forth, left))
                both.create_task(self._pass_on(far, back, left))
        except* ConnectionError:
            pass
        for writer in (back, forth):
            if self._reset:
                writer.transport.abort()
            else:
                writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]
    ) -> None:
        while data := await reader.read(700):
            if not self.whole:
                data = data[: left[0]]
                left[0] -= len(data)
            writer.write(data)
            await writer.drain()
            if not self.whole and not left[0]:
                self.cuts += 1
                raise ConnectionResetError("cut")
        raise ConnectionResetError("ended")


class Peer:
    """A process that answers each command, and remembers in which order all came."""

    def __init__(self, transport: DirectTransport, suspects: Callable[[Incarnation], None]) -> None:
        self.name = f"n-{uuid4().hex}"
        self.channel = f"sharding.test.{self.name}"
        self.transport = transport
        self.commands: list[int] = []
        self.answers: list[int] = []
        self.links = Links(
            self.name, transport, BootClock(), LinkLimits(), self._deliver, lambda each: f"sharding.test.{each}",
            suspects, lambda: True,
        )  # fmt: skip

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, Deliver):
                self.commands.append(message.request)
                assert self.links.put(source, answer(message.request))
            elif isinstance(message, Answer):
                self.answers.append(message.request)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Peer"]:
        await self.transport.open(self.channel)
        loop = asyncio.ensure_future(self.links.receive_loop())
        try:
            yield self
        finally:
            loop.cancel()
            await self.links.close()
            await self.transport.close()


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize("caller", ["node", "client"])
async def test_links_over_a_way_that_breaks_at_any_byte(reset: bool, caller: str) -> None:
    """Bytes break off within handshakes, heads and bodies, in both directions; every answer comes,
    once.
    """
    book = Book()
    sizes = [900, 3_001, 64, 20_000, 257, 1_333, 7_919, 151, 50_000]
    async with AsyncExitStack() as stack:
        node = Peer(DirectTransport(book, keys=[KEY], sealer=Sealer([KEY]), listen=UNIX), lambda _: None)
        await stack.enter_async_context(node.running())
        cutter = Cutter(node.transport.addresses()[0], sizes, reset=reset)
        book.rows[node.channel] = (await stack.enter_async_context(cutter.opened()),)
        listen = UNIX if caller == "node" else None
        here = Peer(DirectTransport(book, keys=[KEY], sealer=Sealer([KEY]), listen=listen), lambda _: None)
        await stack.enter_async_context(here.running())
        number = 0
        while cutter.cuts < 40:
            for _ in range(20):
                number += here.links.put(node.name, command(number, number % 500))
            await asyncio.sleep(0.01)
        cutter.whole = True
        await until(lambda: len(here.answers) >= number, 60.0)
        assert node.commands == here.answers == list(range(number))
