"""A node's frames to itself come back while it hears another node, or there is none."""

import asyncio
from collections.abc import Callable

import pytest

from sharding_app.adapters.direct import transport
from sharding_app.adapters.direct.transport import DirectTransport
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import PeerUnreachable
from sharding_app.processes.proxy import Proxy
from sharding_app.protocol.direct.company import Company, Others
from sharding_app.protocol.ids import PROXY_PREFIX
from tests.integration.adapters.direct.ends import TCP, Book, a_channel, opened, received

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "LATELY_SECONDS", 0.05)
    monkeypatch.setattr(transport, "LOOK_SECONDS", 0.2)


def name_of(channel: str) -> str:
    return channel.rpartition(".")[2]


async def is_alone(node: DirectTransport, name: str) -> bool:
    """Say an echo, and take it where it comes back."""
    try:
        await node.send(name, b"echo")
    except PeerUnreachable:
        return True
    assert await received(node) == b"echo"
    return False


async def echoes_until(node: DirectTransport, name: str, condition: Callable[[bool], bool]) -> None:
    """Say echoes until the condition holds of whether it is alone."""
    for _ in range(1000):
        if condition(await is_alone(node, name)):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come to be in time")


async def becomes(node: DirectTransport, name: str, *, alone: bool) -> None:
    await echoes_until(node, name, lambda found: found == alone)


async def test_the_only_node_is_not_alone() -> None:
    book, name = Book(), a_channel()
    async with opened(book, name, company=Company(0.0)) as here:
        for _ in range(10):
            assert not await is_alone(here, name)


async def test_a_node_that_another_answers_is_not_alone_and_needs_no_frame_for_it() -> None:
    book, name, other = Book(), a_channel(), a_channel()
    async with opened(book, name, company=Company(60.0)) as here, opened(book, other):
        book.hear[name] = Others((name_of(other),), older=True)
        await echoes_until(here, name, lambda _: here.is_connected(other))
        [connection] = here._connections
        heard = connection.heard_at
        await echoes_until(here, name, lambda _: connection.heard_at > heard)
        assert here.statistics()["frames_sent"] == 0


async def test_a_node_whose_cable_is_cut_is_alone_until_it_is_mended() -> None:
    """It reaches PostgreSQL, which says that another node is there and hears."""
    book, name, other = Book(), a_channel(), a_channel()
    async with opened(book, name, company=Company(0.3)) as here, opened(book, other, listen=TCP) as there:
        host, port = there.addresses()[0].removeprefix("tcp:").split(":")
        with Proxy(int(port), host) as cable:
            book.rows[other] = (f"tcp:127.0.0.1:{cable.port}",)
            book.hear[name] = Others((name_of(other),), older=True)
            await echoes_until(here, name, lambda _: here.is_connected(other))
            cable.hang()
            await becomes(here, name, alone=True)
            book.hear[name] = Others()
            assert not await is_alone(here, name), "the other one was frozen, and has lost its locks"
            book.hear[name] = Others((name_of(other),), older=True)
            await becomes(here, name, alone=True)
            cable.forward()
            await becomes(here, name, alone=False)


async def test_a_process_that_only_asks_is_no_company() -> None:
    book, name, other = Book(), a_channel(), a_channel()
    asker = name.replace(".n-", f".{PROXY_PREFIX}")
    async with opened(book, name, company=Company(0.1)) as here, opened(book, asker, listen=None) as there:
        book.hear[name] = Others((name_of(other),), older=True)
        await there.send(name, b"question")
        assert await received(here) == b"question"
        await becomes(here, name, alone=True)


async def test_without_postgresql_it_is_the_lease_that_ends() -> None:
    class Away(Book):
        async def others(self, channel: str) -> Others:
            raise StoreUnavailable("away")

    name = a_channel()
    async with opened(Away(), name, company=Company(0.0)) as here:
        for _ in range(3):
            assert not await is_alone(here, name)
