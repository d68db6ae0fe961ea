"""Frames straight from process to process: how connections are made, shared, lost and remade."""

import asyncio
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sharding_app.adapters.direct import folder, transport
from sharding_app.adapters.direct.transport import DirectTransport, Listen
from sharding_app.embedded.ports import free_port
from sharding_app.ports.transport import PeerNotYetReached, PeerUnreachable, TransportError
from sharding_app.processes.proxy import Proxy
from tests.integration.adapters.direct.ends import (
    KEY,
    OTHER,
    TCP,
    UNIX,
    Book,
    a_channel,
    opened,
    received,
    stranger_to,
    until,
)
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


async def delivered(sender: DirectTransport, channel: str, data: bytes, receiver: DirectTransport) -> bytes:
    """Send until it arrives, as links do: a frame may be lost with its connection.

    What came before it is left out.
    """
    async with asyncio.timeout(20 * SLACK):
        while True:
            with suppress(PeerUnreachable, TimeoutError):
                await sender.send(channel, data)
                while (found := await received(receiver, 0.5)) != data:
                    pass
                return found
            await asyncio.sleep(0.02)


async def test_frames_of_every_size_arrive_whole_and_in_order(listen: Listen) -> None:
    book, name, other = Book(), a_channel(), a_channel()
    async with opened(book, name, listen=listen) as here, opened(book, other, listen=listen) as there:
        sent = [bytes([number]) * size for number, size in enumerate([0, 1, 255, 100_000, 1024 * 1024, 3])]
        for data in sent:
            await there.send(name, data)
        assert [await received(here) for _ in sent] == sent
        await here.send(other, b"back")
        assert await received(there) == b"back"
        for each in (here, there):
            assert each.statistics()["connections"] == 1, "one for both directions"


async def test_a_reply_goes_over_the_connection_that_the_caller_has_made(listen: Listen) -> None:
    book, name, caller = Book(), a_channel(), a_channel()
    async with opened(book, name, listen=listen) as here, opened(book, caller, listen=None) as there:
        assert there.addresses() == ()
        with pytest.raises(PeerUnreachable, match="listens nowhere"):
            await here.send(caller, b"too early")
        await there.send(name, b"question")
        assert await received(here) == b"question"
        await here.send(caller, b"answer")
        assert await received(there) == b"answer"


async def test_one_that_cannot_be_found_comes_back_by_itself() -> None:
    """Its peer has an answer for it, and no way to bring it."""
    book, name, caller = Book(), a_channel(), a_channel()
    async with opened(book, name) as here, opened(book, caller, listen=None) as there:
        await there.send(name, b"question")
        assert await received(here) == b"question"
        for _ in range(3):
            [victim] = here._connections
            victim.abort("cut")
            await victim.ended.wait()
            assert await delivered(here, caller, b"answer", there) == b"answer"


async def test_a_node_comes_back_to_one_that_has_no_way_to_it() -> None:
    """Behind NAT, or with an address that is wrong, only one of two nodes connects to the other."""
    book, name, behind = Book(), a_channel(), a_channel()
    async with opened(book, name) as here, opened(book, behind) as there:
        book.rows[behind] = ("tcp:127.0.0.1:1",)
        await there.send(name, b"question")
        assert await received(here) == b"question"
        [victim] = here._connections
        victim.abort("cut")
        await victim.ended.wait()
        assert await delivered(here, behind, b"answer", there) == b"answer"


async def test_it_does_not_look_for_a_process_whose_row_is_gone() -> None:
    book, name = Book(), a_channel()
    async with opened(book, listen=None) as there:
        async with opened(book, name) as here:
            await there.send(name, b"question")
            assert await received(here) == b"question"
            del book.rows[name]
            next(iter(here._connections)).abort("killed")
            await until(lambda: bool(there.statistics().get("dials_failed")))
        await until(lambda: not there._tasks)


async def test_a_frame_does_not_wait_for_a_connection_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "DIAL_WAIT_SECONDS", 0.05)
    book, slow = Book(), a_channel()

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(says_nothing, "127.0.0.1", 0)
    book.rows[slow] = (f"tcp:127.0.0.1:{server.sockets[0].getsockname()[1]}",)
    async with opened(book, listen=None) as here:
        with pytest.raises(PeerNotYetReached):
            await here.send(slow, b"x")
    server.close()


async def test_a_process_reaches_itself_over_its_own_socket(listen: Listen) -> None:
    name = a_channel()
    async with opened(Book(), name, listen=listen) as here:
        await here.send(name, b"echo")
        assert await received(here) == b"echo"
        assert here.statistics()["dialed"] == here.statistics()["accepted"] == 1


def have_one_each(*transports: DirectTransport) -> bool:
    return all(len(each._connections) == 1 for each in transports)


async def test_two_that_dial_each_other_at_a_time_keep_one_connection() -> None:
    book = Book()
    for _ in range(10):
        one, two = a_channel(), a_channel()
        async with opened(book, one) as here, opened(book, two) as there:
            await asyncio.gather(
                *(each.send(to, b"x") for _ in range(3) for each, to in ((here, two), (there, one)))
            )
            await until(partial(have_one_each, here, there))
            for _ in range(3):
                assert await received(here) == await received(there) == b"x"
            [ours], [theirs] = here._connections, there._connections
            assert here._peers[two].connection is ours
            assert there._peers[one].connection is theirs
            assert "connections_lost" not in {**here.statistics(), **there.statistics()}


async def test_a_connection_that_only_one_side_has_lost_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives over a new connection is answered over it, whichever of the two has dialed the
    former.
    """
    monkeypatch.setattr(transport, "AT_A_TIME_SECONDS", 0.0)
    book = Book()
    one, two = sorted((a_channel(), a_channel()))
    for first, second in ((one, two), (two, one)):
        async with opened(book, first) as here, opened(book, second) as there:
            await here.send(second, b"x")
            assert await received(there) == b"x"
            [ours], [theirs] = here._connections, there._connections
            theirs.pause()
            there._peers[first].connection = None  # as after a reset that the other side has not seen
            await there.send(first, b"y")
            assert await received(here) == b"y"
            assert here._peers[second].connection not in (None, ours)
            await here.send(second, b"z")
            assert await received(there) == b"z"


@pytest.mark.parametrize("way", ["tcp:" + "a" * 70 + ".example:7400", "tcp:a..b:7400", "unix:/\0.sock"])
async def test_an_address_that_is_none_costs_one_attempt_at_a_time(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "AGAIN_SECONDS", 60.0)  # longer than all these frames take
    book, name = Book(), a_channel()
    book.rows[name] = (way,)
    async with opened(book, listen=None) as here:
        for _ in range(50):
            with pytest.raises(PeerUnreachable, match=r"label|no socket"):
                await here.send(name, b"x")
        assert here.statistics()["dials_failed"] <= 5


@pytest.mark.parametrize("first", ["leads nowhere", "is another process"])
async def test_a_name_whose_first_ip_leads_elsewhere_is_tried_on(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "DIAL_SECONDS", 0.3)
    book, name, loop = Book(), a_channel(), asyncio.get_running_loop()
    find = loop.getaddrinfo

    async def two_of_them(host: str, port: int, **options: int) -> list[Any]:
        if host != "node.example":
            return await find(host, port, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(loop, "getaddrinfo", two_of_them)
    seen = Listen(unix=False, bind=("127.0.0.1", 0), seen_as="node.example")
    async with opened(book, name, listen=seen) as here, opened(book, listen=None) as there:
        port = int(here.addresses()[0].rpartition(":")[2])
        async with AsyncExitStack() as stack:
            if first == "is another process":
                await stack.enter_async_context(
                    opened(Book(), listen=Listen(unix=False, bind=("127.0.0.2", port)))
                )
            else:  # what listens there takes no more connections, so the kernel answers none
                full = stack.enter_context(socket.socket())
                full.bind(("127.0.0.2", port))
                full.listen(0)
                for _ in range(3):
                    taken = stack.enter_context(socket.socket())
                    taken.setblocking(False)
                    taken.connect_ex(("127.0.0.2", port))
            assert await delivered(there, name, b"x", here) == b"x"


async def test_keys_are_rotated_without_a_break() -> None:
    book, name = Book(), a_channel()
    async with opened(book, name, keys=(KEY, OTHER)) as here, opened(book, keys=(OTHER, KEY)) as there:
        await there.send(name, b"x")
        assert await received(here) == b"x"


async def test_a_stranger_to_the_key_is_said_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    book, name = Book(), a_channel()
    async with (
        opened(book, name) as here,
        opened(book, keys=(OTHER,)) as there,
        opened(book, keys=()) as bare,
    ):
        for each, text in ((there, "none of those"), (bare, "one of the two has keys")):
            with pytest.raises(PeerUnreachable, match=text):
                await each.send(name, b"x")
            assert each.statistics()["dials_refused"] == 1
        await until(lambda: here.statistics().get("handshakes_failed") == 2)
        assert "has not proven" in caplog.text


async def test_without_keys_processes_meet_in_a_folder_that_no_other_user_enters() -> None:
    book, name = Book(), a_channel()
    async with opened(book, name, keys=()) as here, opened(book, keys=()) as there:
        await there.send(name, b"x")
        assert await received(here) == b"x"
        path = Path(here.addresses()[0].removeprefix("unix:"))
        found = path.parent.stat()
        assert stat.S_IMODE(found.st_mode) == 0o700
        assert found.st_uid == os.geteuid()
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert not folder.is_ours(str(path))


# -- Faults ----------------------------------------------------------------------------------------


async def test_peers_that_were_never_reached_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of other machines, say, to which the channel layer carries frames: many come."""
    monkeypatch.setattr(transport, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(transport, "FORGET_AFTER_SECONDS", 0.1)
    async with opened(Book()) as here:
        for _ in range(20):
            with pytest.raises(PeerUnreachable, match="listens nowhere"):
                await here.send(a_channel(), b"x")
        await until(lambda: not here._peers)


async def test_a_reset_connection_is_made_again(listen: Listen) -> None:
    book, name, other = Book(), a_channel(), a_channel()
    async with opened(book, name, listen=listen) as here, opened(book, other, listen=listen) as there:
        for number in range(5):
            data = bytes((number,))
            assert await delivered(there, name, data, here) == data
            assert await delivered(here, other, data, there) == data
            victim = next(iter((here, there)[number % 2]._connections))
            victim.abort("cut")
            await victim.ended.wait()
        assert here.statistics()["connections_lost"] + there.statistics()["connections_lost"] >= 5


async def test_a_peer_that_ended_is_unreachable_and_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "AGAIN_SECONDS", 60.0)  # longer than all these frames take
    book, name = Book(), a_channel()
    async with opened(book) as there:
        async with opened(book, name) as here:
            await there.send(name, b"x")
            assert await received(here) == b"x"
        await until(lambda: there.statistics()["connections"] == 0)
        assert there.statistics()["connections_ended"] == 1, "it has said goodbye"
        for _ in range(100):
            with pytest.raises(PeerUnreachable):
                await there.send(name, b"x")
        assert there.statistics()["dials_failed"] <= 5, "it is not dialed for each frame"


async def test_an_address_that_another_process_has_now_is_not_taken_for_the_former() -> None:
    """A node that is started again on its host and port is another process."""
    book, former, later = Book(), a_channel(), a_channel()
    fixed = Listen(unix=False, bind=("127.0.0.1", free_port()))
    async with opened(book) as there:
        async with opened(book, former, listen=fixed) as here:
            assert await delivered(there, former, b"1", here) == b"1"
        async with opened(book, later, listen=fixed) as again:
            with pytest.raises(PeerUnreachable, match=r"another process listens there now|goodbye"):
                await there.send(former, b"for the former")
            assert await delivered(there, later, b"2", again) == b"2"
            assert again.statistics()["frames_received"] == 1
            assert "dials_refused" not in there.statistics(), "no reason for a warning"


async def test_a_cable_that_is_cut_and_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes back, and no reset: the peer is sent nothing more, given up, found again."""
    monkeypatch.setattr(transport, "LOOK_SECONDS", 0.05)
    book, name = Book(), a_channel()
    async with opened(book, name, listen=TCP) as here, opened(book, listen=None) as there:
        host, port = here.addresses()[0].removeprefix("tcp:").split(":")
        with Proxy(int(port), host) as cable:
            book.rows[name] = (f"tcp:127.0.0.1:{cable.port}",)
            assert await delivered(there, name, b"before", here) == b"before"
            cable.hang()
            await there.send(name, b"on its way")
            [ours] = there._connections
            await until(lambda: ours.silent >= 3)
            with pytest.raises(PeerUnreachable, match="answers nothing"):
                await there.send(name, b"not sent")
            await until(lambda: bool(there.statistics().get("connections_silent")))
            cable.forward()
            assert await delivered(there, name, b"after", here) == b"after"


async def test_a_connection_at_rest_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ping after the last frame, its pong, and then silence."""
    monkeypatch.setattr(transport, "LOOK_SECONDS", 0.01)
    book, name = Book(), a_channel()
    async with opened(book, name) as here, opened(book) as there:
        await there.send(name, b"x")
        assert await received(here) == b"x"
        [ours], [theirs] = there._connections, here._connections
        pings: list[str] = []
        for end in (ours, theirs):
            monkeypatch.setattr(end, "ping", partial(_counted, pings, end.ping))
        await until(lambda: bool(pings) and not ours.wrote)
        looks: list[str] = []
        monkeypatch.setattr(here, "_look", partial(_counted, looks, here._look))
        await until(lambda: len(looks) > 20)
        assert len(pings) == 1


def _counted(seen: list[str], does: Callable[[], None]) -> None:
    seen.append("")
    does()


async def test_a_peer_that_stands_still_is_not_sent_more_than_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "ROOM_SECONDS", 0.05)
    book, name = Book(), a_channel()
    async with opened(book, name) as here, opened(book) as there:
        await there.send(name, b"x")
        assert await received(here) == b"x"
        [theirs] = here._connections
        theirs.pause()
        sent = 0
        why = ""
        while not why:
            try:
                await there.send(name, bytes(500_000))
                sent += 1
            except PeerUnreachable as error:
                why = str(error)
        assert "does not read" in why
        [ours] = there._connections
        assert ours.buffered <= 2 * 1024 * 1024
        theirs.resume()
        for _ in range(sent):
            assert len(await received(here)) == 500_000


async def test_what_is_not_asked_for_holds_up_its_writers_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_WAITING_FRAMES", 10)
    book, name = Book(), a_channel()
    async with opened(book, name) as here, opened(book) as there:
        sent = [os.urandom(4) + bytes(100_000) for _ in range(100)]

        async def send_all() -> None:
            for data in sent:
                while True:
                    try:
                        await there.send(name, data)
                        break
                    except PeerUnreachable:
                        await asyncio.sleep(0.01)

        sending = asyncio.ensure_future(send_all())
        await until(lambda: bool(here.statistics().get("held_up")))
        assert not sending.done()
        assert [await received(here) for _ in sent] == sent
        await sending


# -- Opening and closing ---------------------------------------------------------------------------


async def test_what_was_written_before_the_end_arrives() -> None:
    book = Book()
    for _ in range(5):
        name = a_channel()
        async with opened(book, name) as here:
            async with opened(book, listen=None) as there:
                for number in range(50):
                    await there.send(name, bytes((number,)) * 10_000)
            for number in range(50):
                assert await received(here) == bytes((number,)) * 10_000


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_it_may_be_closed_in_the_middle_of_handshakes() -> None:
    """Its own and those of others: none is waited for, and nothing of them stays."""
    book, name, dumb = Book(), a_channel(), a_channel()
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    book.rows[dumb] = (f"tcp:127.0.0.1:{silent.sockets[0].getsockname()[1]}",)
    before, files = asyncio.all_tasks(), open_files()
    async with opened(book, name) as here, stranger_to(here):
        dialing = asyncio.ensure_future(here.send(dumb, b"x"))
        await until(lambda: len(here._connections) == 2)
        await here.close()
        with pytest.raises(TransportError):
            await dialing
        assert not here._connections
    silent.close()
    for each in accepted:
        each.transport.abort()
    await until(lambda: asyncio.all_tasks() == before)
    await until(lambda: open_files() < files)


async def test_closed_is_closed_and_may_be_opened_again() -> None:
    book, name = Book(), a_channel()
    here = DirectTransport(book, listen=UNIX)
    with pytest.raises(TransportError, match="not open"):
        await here.send(name, b"x")
    for _ in range(2):
        await here.open(name)
        with pytest.raises(TransportError, match="already open"):
            await here.open(name)
        await here.send(name, b"x")
        assert await received(here) == b"x"
        waiting = asyncio.ensure_future(here.receive())
        await asyncio.sleep(0)
        await here.close()
        with pytest.raises(TransportError, match="not open"):
            await waiting
        assert not here._connections


async def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        here = DirectTransport(Book(), listen=Listen(bind=taken.getsockname()[:2]))
        with pytest.raises(TransportError, match="cannot listen"):
            await here.open(a_channel())
        assert here.addresses() == ()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A private folder whose name leaves room for that of a Unix socket."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


async def test_sockets_of_killed_processes_are_swept_away_and_live_ones_stay(short_path: Path) -> None:
    place = short_path
    dead, new, foreign = place / "n-dead.sock", place / "n-new.sock", place / "other.sock"
    for path in (dead, new, foreign):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        if path is not new:
            os.utime(path, (time.time() - 100, time.time() - 100))
    book, name, kept = Book(), a_channel(), Listen(folder=str(place))
    async with opened(book, name, listen=kept) as here:
        assert not dead.exists()
        assert new.exists(), "another process is about to listen there"
        assert foreign.exists(), "no process of ours has made it"
        async with opened(book, listen=kept) as there:
            await there.send(name, b"x")
            assert await received(here) == b"x"
            assert len(list(place.iterdir())) == 4
        assert "handshakes_failed" not in here.statistics(), "who only looks is no stranger"
    assert sorted(place.iterdir()) == [new, foreign]


async def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    with pytest.raises(folder.NoFolder, match="0700"):
        folder.socket_path(str(open_to_all))
    here = DirectTransport(Book(), listen=Listen(folder=str(open_to_all)))
    with pytest.raises(TransportError, match="0700"):
        await here.open(a_channel())


async def test_a_folder_of_our_name_that_is_not_ours_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    squatted = tmp_path / f"sharding-{os.geteuid()}"
    squatted.symlink_to(tmp_path)
    path = folder._own_folder()
    assert path.parent == tmp_path
    assert path != squatted
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("with_folder", [False, True])
async def test_a_socket_that_was_removed_is_made_again(
    with_folder: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A host tidies its folder for temporary files. The node's row goes on to name that path."""
    book, name = Book(), a_channel()
    with tempfile.TemporaryDirectory() as parent:
        async with opened(book, name, listen=Listen(folder=f"{parent}/s")) as here:
            path = here.addresses()[0].removeprefix("unix:")
            remove(path, with_folder=with_folder)
            async with opened(book, listen=None) as caller, asyncio.timeout(20 * SLACK):
                while not await is_sent(caller, name):  # noqa: ASYNC110 (the file has no event)
                    await asyncio.sleep(0.05)
                assert await received(here) == b"found"
            assert here.addresses() == (f"unix:{path}",)
        assert not folder.is_ours(path)
    assert [each.__dict__["action"] for each in caplog.records if each.levelname == "WARNING"] == [
        "transport.socket_made"
    ]


def remove(path: str, *, with_folder: bool) -> None:
    Path(path).unlink()
    if with_folder:
        Path(path).parent.rmdir()


async def is_sent(caller: DirectTransport, name: str) -> bool:
    try:
        await caller.send(name, b"found")
    except PeerUnreachable:
        return False
    return True
