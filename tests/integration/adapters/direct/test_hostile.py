"""Peers that know no key, or behave as no process of ours does: they get nothing, hold little, and
disturb no other.
"""

import asyncio
import resource
import socket
from contextlib import suppress
from functools import partial
from typing import cast
from uuid import uuid4

import pytest

from sharding_app.adapters.direct import connection as connection_module
from sharding_app.adapters.direct import transport
from sharding_app.ports.transport import PeerUnreachable
from sharding_app.protocol.direct.framing import FRAME, HANDSHAKE, PING, PONG, REFUSED, framed
from sharding_app.protocol.direct.handshake import Why
from sharding_app.protocol.ids import PROXY_PREFIX
from tests.integration.adapters.direct.ends import (
    KEY,
    OTHER,
    Book,
    a_channel,
    a_dialing,
    opened,
    prove,
    received,
    stranger_to,
    until,
)
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


async def test_one_that_knows_the_key_is_heard(listen: transport.Listen) -> None:
    book, name = Book(), a_channel()
    async with opened(book, name, listen=listen) as here, stranger_to(here) as peer:
        await prove(peer, a_channel(), name)
        peer.say(framed(PING))
        assert await peer.hears() == (PONG, b"")
        assert here.statistics()["accepted"] == 1


async def test_the_wrong_key_is_refused_and_told_so(listen: transport.Listen) -> None:
    name = a_channel()
    async with opened(Book(), name, listen=listen) as here, stranger_to(here) as peer:
        peer.say(framed(HANDSHAKE, a_dialing(OTHER, a_channel(), name).hello))
        assert await peer.hears() == (REFUSED, bytes((Why.KEY,)))
        assert await peer.is_cut_off()
        await until(lambda: here.statistics().get("handshakes_failed") == 1)


async def test_a_false_proof_is_refused() -> None:
    name = a_channel()
    async with opened(Book(), name) as here, stranger_to(here) as peer:
        peer.say(framed(HANDSHAKE, a_dialing(KEY, a_channel(), name).hello))
        assert (await peer.hears() or (0,))[0] == HANDSHAKE
        peer.say(framed(HANDSHAKE, bytes(32)))
        assert await peer.hears() == (REFUSED, bytes((Why.PROOF,)))
        assert await peer.is_cut_off()


async def test_a_replayed_handshake_gets_no_connection() -> None:
    name, me = a_channel(), a_channel()
    async with opened(Book(), name) as here:
        async with stranger_to(here) as true_peer:
            side = a_dialing(KEY, me, name)
            true_peer.say(framed(HANDSHAKE, side.hello))
            heard = await true_peer.hears()
            assert heard is not None
            proof = side.receive(heard[1])
            true_peer.say(framed(HANDSHAKE, proof))
            assert await true_peer.hears() is not None
        async with stranger_to(here) as replaying:
            replaying.say(framed(HANDSHAKE, side.hello) + framed(HANDSHAKE, proof) + framed(FRAME, b"x"))
            assert (await replaying.hears() or (0,))[0] == HANDSHAKE
            assert await replaying.hears() == (REFUSED, bytes((Why.PROOF,)))
            assert await replaying.is_cut_off()
        assert here.statistics()["accepted"] == 1
        assert here.statistics()["frames_received"] == 0


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\xff" * 5000,
        framed(HANDSHAKE, b"x" * 5000),
        framed(FRAME, b"a frame before the proof"),
        framed(PING),
        framed(HANDSHAKE, b""),
        framed(HANDSHAKE, bytes(200)),
    ],
)
async def test_garbage_is_cut_off_and_nothing_of_it_is_a_frame(said: bytes) -> None:
    async with opened(Book()) as here, stranger_to(here) as peer:
        peer.say(said)
        assert await peer.is_cut_off()
        await until(lambda: here.statistics().get("handshakes_failed") == 1)
        assert here.statistics()["frames_received"] == 0


@pytest.mark.parametrize("way", ["silent", "half a hello", "a byte now and then"])
async def test_a_handshake_that_does_not_end_is_ended(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "HANDSHAKE_SECONDS", 0.3)
    name = a_channel()
    async with opened(Book(), name) as here, stranger_to(here) as peer:
        hello = framed(HANDSHAKE, a_dialing(KEY, a_channel(), name).hello)
        if way == "half a hello":
            peer.say(hello[:40])
        ended = asyncio.ensure_future(peer.is_cut_off())
        for byte in hello[:-1] if way == "a byte now and then" else b"":
            peer.say(bytes((byte,)))
            await asyncio.wait([ended], timeout=0.05)
            if ended.done():
                break
        assert await ended
        await until(lambda: here.statistics()["connections_unproven"] == 0)


async def test_many_that_prove_nothing_keep_no_place_from_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_places", lambda: 20)  # a fourth of them
    book, name = Book(), a_channel()
    async with opened(book, name) as here, opened(book, listen=None) as friend:
        strangers = [
            await asyncio.open_unix_connection(here.addresses()[0].partition(":")[2]) for _ in range(20)
        ]
        await until(lambda: here.statistics().get("unproven_dropped", 0) >= 15)
        assert here.statistics()["connections_unproven"] <= 5
        await friend.send(name, b"hello")
        assert await received(here) == b"hello"
        for _, writer in strangers:
            writer.transport.abort()


async def test_many_that_come_in_one_turn_of_the_loop_are_no_more_than_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loop accepts up to a hundred in one turn, and tells of the end of one only in the next."""
    monkeypatch.setattr(transport, "_places", lambda: 20)
    name, most = a_channel(), 0
    async with opened(Book(), name) as here:
        strangers = [socket.socket(socket.AF_UNIX) for _ in range(80)]
        for each in strangers:
            each.setblocking(False)
            each.connect(here.addresses()[0].partition(":")[2])
        while here.statistics().get("unproven_dropped", 0) < 75:
            await asyncio.sleep(0)
            most = max(most, here.statistics()["connections_unproven"])
        assert most <= 5
        assert here.statistics()["unproven_dropped"] == 75
        await until(lambda: sum(is_open(each) for each in strangers) == 5)
        for each in strangers:
            each.close()


def is_open(end: socket.socket) -> bool:
    with suppress(BlockingIOError):
        return end.recv(1) != b""
    return True


def counts_more(here: transport.DirectTransport, counter: str, than: int) -> bool:
    return here.statistics().get(counter, 0) > than


async def test_a_peer_that_asks_and_never_reads_is_not_answered_without_end() -> None:
    name = a_channel()
    async with opened(Book(), name) as here, stranger_to(here) as peer:
        await prove(peer, a_channel(), name)
        [connection] = here._connections
        cast(asyncio.Transport, peer.writer.transport).pause_reading()
        for _ in range(300):
            peer.say(framed(PING) * 10_000)
            await peer.writer.drain()
        await until(lambda: connection.full)
        assert connection.buffered < 2 * connection_module.WRITE_BUFFER_BYTES


async def test_more_peers_than_there_is_room_for_are_refused_before_they_are_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes a file descriptor: those of the database and of the journal are left alone."""
    book, name = Book(), a_channel()
    async with (
        opened(book, name) as here,
        opened(book, a_caller(), listen=None) as first,
        opened(book, a_caller(), listen=None) as late,
    ):
        monkeypatch.setattr(here, "_places", 1)
        await first.send(name, b"x")
        assert await received(here) == b"x"
        with pytest.raises(PeerUnreachable, match="as many connections as it takes"):
            await late.send(name, b"y")
        assert late.statistics()["connections"] == 0
        assert here.statistics()["connections_refused"] == 1
        assert "file descriptors" in caplog.text
        assert "has not proven" not in caplog.text
        await first.close()
        await until(lambda: here.statistics()["connections"] == 0)
        await until(lambda: not late._peers[name].dial)
        async with asyncio.timeout(20 * SLACK):
            while not late.is_connected(name):
                with suppress(PeerUnreachable):
                    await late.send(name, b"z")
        assert await received(here) == b"z"


def a_caller() -> str:
    return f"sharding.test.{PROXY_PREFIX}{uuid4().hex}"


async def test_callers_keep_no_place_from_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes whose callers have all places would refuse each other, and be deaf."""
    book, name = Book(), a_channel()
    async with (
        opened(book, name) as here,
        opened(book, a_caller(), listen=None) as caller,
        opened(book) as node,
    ):
        monkeypatch.setattr(here, "_places", 1)
        await caller.send(name, b"x")
        await node.send(name, b"y")
        assert {await received(here), await received(here)} == {b"x", b"y"}
        assert "connections_refused" not in here.statistics()


async def test_half_of_the_file_descriptors_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, places in (
        (1024, 512),
        (1_000_000, transport.MAX_CONNECTIONS),
        (-1, transport.MAX_CONNECTIONS),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, -1))
        assert transport._places() == places


async def test_a_process_of_another_cluster_is_refused_whatever_it_knows() -> None:
    name = "sharding.one.n-1"
    async with opened(Book(), name) as here, stranger_to(here) as peer:
        peer.say(framed(HANDSHAKE, a_dialing(KEY, "sharding.two.n-2", name).hello))
        assert await peer.hears() == (REFUSED, bytes((Why.CLUSTER,)))
        assert await peer.is_cut_off()
        assert here.statistics()["connections"] == 0


async def test_a_proven_peer_that_breaks_a_seal_or_the_size_is_cut_off() -> None:
    name = a_channel()
    async with opened(Book(), name) as here:
        for said, counter in (
            (framed(FRAME, b"not sealed"), "seals_broken"),
            (framed(FRAME, bytes(2 * 1024 * 1024)), "connections_lost"),
            (framed(HANDSHAKE, b"again"), "connections_lost"),
        ):
            async with stranger_to(here) as peer:
                await prove(peer, a_channel(), name)
                before = here.statistics().get(counter, 0)
                peer.say(said)
                assert await peer.is_cut_off()
                await until(partial(counts_more, here, counter, before))
        assert here.statistics()["frames_received"] == 0


async def test_a_server_in_a_peers_place_learns_nothing_and_gets_no_frame() -> None:
    """It greets as the peer would, and cannot prove it."""
    book, name, heard = Book(), a_channel(), []

    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(4096))
        writer.write(framed(HANDSHAKE, b"\1" + bytes(32) + heard[0][42:46]))
        heard.append(await reader.read(4096))
        writer.write(framed(HANDSHAKE, heard[1][4:]))  # the dialer's own proof, reflected
        heard.append(await reader.read(4096))
        writer.close()

    server = await asyncio.start_server(greets, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    book.rows[name] = (f"tcp:{host}:{port}",)
    async with opened(book) as here:
        with pytest.raises(PeerUnreachable):
            await here.send(name, b"a secret")
        await until(lambda: len(heard) == 3)
        assert not any(b"secret" in each for each in heard)
        assert here.statistics()["frames_sent"] == 0
    server.close()
