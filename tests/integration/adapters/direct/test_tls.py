"""TLS between machines: certificates of one authority on both sides, and a bound for what strangers
cost.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from sharding_app.adapters.direct import transport
from sharding_app.adapters.direct.tls import Tls, tls_of
from sharding_app.adapters.direct.transport import DirectTransport
from sharding_app.ports.transport import PeerUnreachable
from tests.integration.adapters.direct.certificates import Authority
from tests.integration.adapters.direct.ends import (
    OTHER,
    TCP,
    Book,
    a_channel,
    opened,
    received,
    stranger_to,
    until,
)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    """TLS is the loop's own work, and nodes may run on either."""
    make: Callable[[], asyncio.AbstractEventLoop] = request.param
    return asyncio.Runner(loop_factory=make)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def tls(ours: Authority) -> Tls:
    return tls_of(**ours.files())


async def said_by(peer: DirectTransport, name: str) -> str:
    """Return why a frame to that process is refused."""
    with pytest.raises(PeerUnreachable) as refused:
        await peer.send(name, b"x")
    return str(refused.value)


def test_frames_travel_over_tls_both_ways(runner: asyncio.Runner, tls: Tls) -> None:
    async def main() -> None:
        book, name, other = Book(), a_channel(), a_channel()
        async with (
            opened(book, name, listen=TCP, tls=tls) as here,
            opened(book, other, listen=None, tls=tls) as there,
        ):
            assert here.addresses()[0].startswith("tls:")
            for size in (0, 1, 100_000, 1024 * 1024):
                await there.send(name, bytes(size))
                assert await received(here) == bytes(size)
                await here.send(other, bytes(size))
                assert await received(there) == bytes(size)
            [connection] = there._connections
            cipher = connection._transport.get_extra_info("ssl_object").version()
            assert cipher == "TLSv1.3"

    with runner:
        runner.run(main())


def test_a_certificate_is_needed_on_both_sides(
    runner: asyncio.Runner, tls: Tls, ours: Authority, tmp_path: Path
) -> None:
    async def main() -> None:
        book, name, plain = Book(), a_channel(), a_channel()
        foreign = tls_of(**Authority(tmp_path, "theirs").files())
        late = tls_of(**ours.files("late", ended=True))
        async with (
            opened(book, name, listen=TCP, tls=tls) as here,
            opened(book, plain, listen=TCP) as bare,
            opened(book, tls=foreign, listen=None) as stranger,
            opened(book, tls=late, listen=None) as ended,
            opened(book, tls=tls, listen=None) as friend,
        ):
            assert "certificate verify failed" in await said_by(stranger, name)
            assert await said_by(ended, name)
            assert "one side has certificates" in await said_by(bare, name)
            assert "one side has certificates" in await said_by(friend, plain)
            assert here.statistics()["frames_received"] == 0
            assert here.statistics()["connections"] == 0
            await friend.send(name, b"x")
            assert await received(here) == b"x"

    with runner:
        runner.run(main())


def test_a_client_without_a_certificate_is_no_peer(runner: asyncio.Runner, tls: Tls, ours: Authority) -> None:
    """With TLS 1.3 its own handshake ends well: it learns of the refusal when it reads."""

    async def main() -> None:
        context = ssl.create_default_context(cafile=str(ours.file))
        context.check_hostname = False
        async with opened(Book(), listen=TCP, tls=tls) as here:
            host, port = here.addresses()[0].removeprefix("tls:").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            with suppress(OSError):  # an alert of TLS, or a reset
                assert await reader.read() == b""
            await until(lambda: here.statistics().get("tls_failed") == 1)
            writer.transport.abort()

    with runner:
        runner.run(main())


def test_a_certificate_does_not_stand_for_a_key(runner: asyncio.Runner, tls: Tls) -> None:
    async def main() -> None:
        book, name = Book(), a_channel()
        async with (
            opened(book, name, listen=TCP, tls=tls),
            opened(book, keys=(OTHER,), tls=tls, listen=None) as there,
        ):
            assert "its key is none" in await said_by(there, name)

    with runner:
        runner.run(main())


def test_strangers_at_the_handshake_of_tls_are_bounded(
    runner: asyncio.Runner, tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_places", lambda: 20)  # a fourth of them

    async def main() -> None:
        book, name = Book(), a_channel()
        async with (
            opened(book, name, listen=TCP, tls=tls) as here,
            opened(book, listen=None, tls=tls) as friend,
        ):
            host, port = here.addresses()[0].removeprefix("tls:").split(":")
            strangers = [socket.create_connection((host, int(port))) for _ in range(20)]
            await until(lambda: here.statistics().get("unproven_dropped", 0) >= 15)
            [server] = here._servers
            assert len(server._under_way) <= 5  # type: ignore[union-attr]
            await friend.send(name, b"hello")
            assert await received(here) == b"hello"
            strangers[0].setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(strangers[0], 1) == b"", "it was cut off"
            for each in strangers:
                each.close()

    with runner:
        runner.run(main())


@pytest.mark.parametrize("error", [OSError, MemoryError])
def test_an_accept_that_fails_is_not_the_last(
    error: type[Exception], tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop, book, name = asyncio.get_running_loop(), Book(), a_channel()
        accept, failed = loop.sock_accept, False

        async def fails_once(listening: socket.socket) -> tuple[socket.socket, object]:
            nonlocal failed
            if not failed:
                failed = True
                raise error
            return await accept(listening)

        monkeypatch.setattr(loop, "sock_accept", fails_once)
        async with (
            opened(book, name, listen=TCP, tls=tls) as here,
            opened(book, listen=None, tls=tls) as friend,
        ):
            await friend.send(name, b"hello")
            assert await received(here) == b"hello"
            assert here.statistics()["accepts_failed"] == 1

    asyncio.run(main())


def test_a_handshake_of_tls_that_does_not_end_is_ended(
    runner: asyncio.Runner, tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "HANDSHAKE_SECONDS", 0.2)

    async def main() -> None:
        async with opened(Book(), listen=TCP, tls=tls) as here, stranger_to(here) as peer:
            peer.say(b"\x16\x03\x01")
            assert await peer.is_cut_off()
            await until(lambda: here.statistics().get("tls_failed") == 1)

    with runner:
        runner.run(main())


def test_a_closed_server_leaves_nothing_behind(runner: asyncio.Runner, tls: Tls) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with opened(Book(), listen=TCP, tls=tls) as here, stranger_to(here) as peer:
            [server] = here._servers
            await until(lambda: bool(server._under_way))  # type: ignore[union-attr]
            await here.close()
            assert await peer.is_cut_off()
        await until(lambda: asyncio.all_tasks() == before)

    with runner:
        runner.run(main())
