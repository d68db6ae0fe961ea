"""The transport straight between processes: one connection for each peer, made with its first
frame.

A node listens on a Unix socket, and on TCP where its settings say so. Its row has the addresses. A
process without a row does not listen: replies reach it over the connection that it has made. It
makes that connection again when it is lost, since its peer cannot. A node does so too: its peer may
have no way to it. A connection serves both directions. Two processes that dial each other at the
same time keep the connection that the smaller channel dialed.

Contract: a frame is sent over a connection that is proven, or refused with `PeerUnreachable`. It
may be lost with its connection without a word. A peer that does not read, or owes every answer, is
sent nothing more until it does. Frames that have arrived and are not asked for are bounded: beyond
that the connections are not read, so their writers wait.

::

    send ──connected──────────────────────────> written
      └──not──> dial (one for all frames that wait) ──proven──> written
                  └──slower than DIAL_WAIT_SECONDS, fails, or has just failed──> PeerUnreachable
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import resource
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

from sharding_app.adapters.direct.addresses import Address, Way
from sharding_app.adapters.direct.connection import HANDSHAKE_SECONDS, Connection
from sharding_app.adapters.direct.directory import Directory
from sharding_app.adapters.direct.folder import NoFolder, is_ours, listening_socket, socket_path, sweep
from sharding_app.adapters.direct.tls import Tls, TlsServer, listen_on
from sharding_app.ports.sealing import SealBroken, Sealing
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import PeerNotYetReached, PeerUnreachable, TransportError
from sharding_app.protocol.direct.company import Company, Others
from sharding_app.protocol.direct.handshake import NONCE_BYTES, Accepting, Dialing, HandshakeKeys, Why
from sharding_app.protocol.ids import has_no_row

logger = logging.getLogger("sharding.transport")

DIAL_WAIT_SECONDS = 0.05
"""Time that a frame waits for the connection that is being made for it."""
DIAL_SECONDS = 2.0
MAX_HOSTS = 4
"""IPs of one name that are tried."""
ROOM_SECONDS = 0.25
"""Time that a frame waits for a peer that does not read."""
AGAIN_SECONDS = 0.02
AGAIN_AT_MOST_SECONDS = 1.0
KEEP_SECONDS = 60.0
"""Time for which a process that does not listen tries to reach a peer that it has lost."""
LOOK_SECONDS = 1.0
PING_AFTER_LOOKS = 2
SILENT_AFTER_LOOKS = 3
"""Looks in a row at which a peer owed an answer, a ping's too: it is sent nothing more until heard.
"""
LOST_AFTER_LOOKS = 10
MAX_CONNECTIONS = 10_000
UNPROVEN_PART = 4
"""As many as a fourth of the connections may come on top that have proven nothing. All processes of
a cluster dial a node that is started again. If they drive each other out, few of them get in.
"""
MAX_WAITING_FRAMES = 10_000
MAX_WAITING_BYTES = 64 * 1024 * 1024
LATELY_SECONDS = 2.0
ASKED_AT_A_TIME = 2
AT_A_TIME_SECONDS = 2 * DIAL_SECONDS
"""Two connections that were made further apart were not dialed at the same time."""
SEAL_BYTES = 128
CLOSE_SECONDS = 0.5
FORGET_AFTER_SECONDS = 60.0

_jitter = SystemRandom().random


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a process listens. Nothing is said of how it listens: that follows."""

    unix: bool = True
    folder: str = ""
    "Of the Unix socket; empty: one that is this user's own."
    bind: tuple[str, int] | None = None
    "Host and port of a TCP socket; port 0: a free one."
    seen_as: str = ""
    "The host that others see, if it is not the one that is bound."
    seen_port: int = 0


class _Peer:
    """What is known of a process to which frames were sent, or from which they came."""

    __slots__ = (
        "again_at",
        "channel",
        "connection",
        "dial",
        "dialed_at",
        "has_address",
        "lost_at",
        "pause",
        "why",
    )

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.connection: Connection | None = None
        self.dial: asyncio.Task[None] | None = None
        self.dialed_at = 0.0
        self.again_at = 0.0
        self.pause = AGAIN_SECONDS
        self.lost_at = 0.0
        self.has_address = True
        "As its row has said last."
        self.why = ""


class DirectTransport:
    """`ports.transport.Transport` without anything in between.

    Belongs to the event loop that opens it.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        keys: Sequence[bytes] = (),
        sealer: Sealing | None = None,
        listen: Listen | None = None,
        tls: Tls | None = None,
        company: Company | None = None,
        max_frame_bytes: int = 1024 * 1024,
        jitter: Callable[[], float] = _jitter,
    ) -> None:
        """Without `listen` this process is not found by others.

        With `company` a frame to this process itself comes back only while another node is heard,
        or there is none. `jitter` gives numbers from 0 to 1.
        """
        self.max_frame_bytes = max_frame_bytes + SEAL_BYTES
        self._directory = directory
        self._keys = HandshakeKeys(keys)
        self._sealer = sealer
        self._listen = listen
        self._tls = tls
        self._company = company
        self._turn = 0
        "Others are tried in turn."
        self._jitter = jitter
        self._channel = ""
        self._peers: dict[str, _Peer] = {}
        self._connections: set[Connection] = set()
        "All that are not lost."
        self._unproven: dict[Connection, None] = {}
        "Those that were accepted and have proven nothing, oldest first."
        self._servers: list[asyncio.Server | TlsServer] = []
        self._unix_server: asyncio.Server | None = None
        self._listening_anew: asyncio.Task[None] | None = None
        self._is_missed = False
        "Its socket was removed, and could not be made again."
        self._addresses: list[Address] = []
        self._path: Path | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._held_up: set[Connection] = set()
        "Connections that are not read, since too much waits."
        self._arrived = asyncio.Event()
        self._places = _places()
        self._unproven_places = max(1, self._places // UNPROVEN_PART)
        self._open = False
        self._closing = False
        self._look_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._frames_sent = 0
        self._frames_received = 0
        self._counters: Counter[str] = Counter()

    # -- The port ----------------------------------------------------------------------------------

    async def open(self, channel: str) -> None:
        if self._open:
            raise TransportError(f"already open on {self._channel!r}")
        self._channel = channel
        self._closing = False
        try:
            if self._listen is not None:
                await self._begin_to_listen(self._listen)
        except OSError as error:
            await self._stop_listening()
            raise TransportError(f"cannot listen for other processes: {error}") from error
        self._open = True

    async def send(self, channel: str, data: bytes) -> None:
        if self._company is not None and channel == self._channel:
            await self._come_back_to_me(data, self._company)
            return
        peer = self._peers.get(channel)
        connection = None if peer is None else peer.connection
        if connection is None:
            connection = await self._reach(channel)
        if connection.silent >= SILENT_AFTER_LOOKS:
            self._counters["frames_not_sent"] += 1
            raise PeerUnreachable("it answers nothing")
        if connection.full and not await connection.room(ROOM_SECONDS):
            self._counters["frames_not_sent"] += 1
            raise PeerUnreachable("it does not read its frames")
        if self._sealer is not None:
            data = self._sealer.seal(data)
        connection.write(data)
        self._frames_sent += 1

    async def receive(self) -> bytes:
        while not self._waiting:
            if not self._open:
                raise TransportError("not open")
            self._arrived.clear()
            await self._arrived.wait()
        data = self._waiting.popleft()
        self._waiting_bytes -= len(data)
        if self._held_up and self._has_room(2):
            for each in self._held_up:
                each.resume()
            self._held_up.clear()
        return data

    async def close(self) -> None:
        """End all connections in order: frames that were written reach the peers."""
        self._open, self._closing = False, True
        self._arrived.set()
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_listening()
        ending = list(self._connections)
        for each in ending:
            each.resume()  # else its goodbye is not read
            if each.proven:
                each.retire()
            else:
                each.abort("this process ends")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                for each in ending:
                    await each.ended.wait()
        for each in list(self._connections):
            each.abort("this process ends")
        self._peers.clear()
        self._held_up.clear()
        self._waiting.clear()
        self._waiting_bytes = 0

    def addresses(self) -> tuple[str, ...]:
        return tuple(map(str, self._addresses))

    def statistics(self) -> Mapping[str, int]:
        """Return counters (frames_sent, dials_failed, …) and the number of connections."""
        return {
            "frames_sent": self._frames_sent,
            "frames_received": self._frames_received,
            "connections": sum(peer.connection is not None for peer in self._peers.values()),
            "connections_unproven": len(self._unproven),
            **self._counters,
        }

    def is_connected(self, channel: str) -> bool:
        """Tell whether a frame for that channel would be written at once."""
        peer = self._peers.get(channel)
        return peer is not None and peer.connection is not None and not peer.connection.silent

    @property
    def has_room(self) -> bool:
        """Tell whether more may be handed in."""
        return self._has_room(1)

    def hand_in(self, data: bytes) -> None:
        """Take a frame that came another way: `receive` gives it."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._arrived.set()

    # -- Listening ---------------------------------------------------------------------------------

    async def _begin_to_listen(self, listen: Listen) -> None:
        loop = asyncio.get_running_loop()
        if listen.unix:
            try:
                path = await asyncio.to_thread(_place_for_socket, listen.folder)
                made = listening_socket(path)
            except NoFolder as error:
                if listen.bind is None:
                    raise OSError(str(error)) from error
                logger.warning("no Unix socket: %s", error, extra={"action": "transport.no_folder"})
            else:
                self._path = path
                self._unix_server = await loop.create_unix_server(self._accept, sock=made)
                self._addresses.append(Address("unix", str(path)))
                if self._look_timer is None:
                    self._arm_look()
        if listen.bind is not None:
            host, port = listen.bind
            server: asyncio.Server | TlsServer
            if self._tls is None:
                server = await loop.create_server(self._accept, host, port)
            else:
                server = TlsServer(
                    await listen_on(host, port),
                    self._tls.server,
                    self._accept,
                    limit=self._unproven_places,
                    seconds=HANDSHAKE_SECONDS,
                    dropped=self._dropped,
                )
            self._servers.append(server)
            bound = server.sockets[0].getsockname()[1]
            way: Way = "tcp" if self._tls is None else "tls"
            self._addresses.append(Address(way, listen.seen_as or host, listen.seen_port or bound))

    async def _listen_anew(self, folder: str, path: Path) -> None:
        """Listen again where the socket was removed: a host tidies its folder for temporary files.

        The node's row names that path. Until then it cannot be reached there.
        """
        try:
            await asyncio.to_thread(_place_for_socket, folder)  # it may be gone, too
            if self._unix_server is not None:  # first: a loop may remove the file of a server that ends
                self._unix_server.close()
                self._unix_server = None
            made = listening_socket(path)
        except (NoFolder, OSError) as error:
            if not self._is_missed:
                self._is_missed = True
                logger.error(
                    "the Unix socket %s was removed, and cannot be made again yet: %s", path, error,
                    extra={"action": "transport.socket_gone"},
                )  # fmt: skip
            return
        self._is_missed = False
        self._unix_server = await asyncio.get_running_loop().create_unix_server(self._accept, sock=made)
        logger.warning(
            "the Unix socket %s was removed: it was made again",
            path,
            extra={"action": "transport.socket_made"},
        )

    async def _stop_listening(self) -> None:
        if self._unix_server is not None:
            self._unix_server.close()
            self._unix_server = None
        for server in self._servers:
            server.close()
        self._servers.clear()
        self._addresses.clear()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._path = None

    def _dropped(self, counter: str) -> None:
        self._counters[counter] += 1

    def _accept(self) -> Connection:
        return Connection(self, Accepting(self._keys, self._channel, os.urandom(NONCE_BYTES)))

    # -- What connections tell ---------------------------------------------------------------------

    def made(self, connection: Connection) -> None:
        if not self._open:
            connection.abort("this process ends")
            return
        self._connections.add(connection)
        if not connection.dialed:
            self._unproven[connection] = None
            if len(self._unproven) > self._unproven_places:
                # The oldest: a process of the cluster needs a few milliseconds. The loop tells of
                # its end later, when many more may have come: it is forgotten at once.
                self._counters["unproven_dropped"] += 1
                oldest = next(iter(self._unproven))
                oldest.abort("too many that have proven nothing")
                self._forget(oldest)
        if self._look_timer is None:
            self._arm_look()

    def has_place(self, connection: Connection) -> bool:
        if len(self._connections) - len(self._unproven) < self._places or connection.dialed:
            return True
        if not has_no_row(connection.peer.rpartition(".")[2]):
            return True  # nodes are few, and two whose callers have all places would both be deaf
        self._counters["connections_refused"] += 1
        if self._counters["connections_refused"] == 1:
            logger.warning(
                "a process that only asks is refused: there are %d connections, and half of the file descriptors"
                " is for them (ulimit -n)", self._places, extra={"action": "transport.full"},
            )  # fmt: skip
        return False

    def is_proven(self, connection: Connection) -> None:
        self._unproven.pop(connection, None)
        self._counters["dialed" if connection.dialed else "accepted"] += 1
        if connection.peer == self._channel and not connection.dialed:
            return  # the other end of it is ours too, and sends
        peer = self._peers.setdefault(connection.peer, _Peer(connection.peer))
        former = peer.connection
        if former is None:
            peer.connection = connection
        elif (
            former.dialed == connection.dialed or connection.proven_at - former.proven_at > AT_A_TIME_SECONDS
        ):
            # The peer would not have made another if it still had the first.
            peer.connection = connection
            former.abort("the peer has made another")
        elif connection.dialed == (self._channel < peer.channel):
            peer.connection = connection
            self._leave(former)
        else:
            self._leave(connection)
        peer.pause, peer.again_at, peer.why = AGAIN_SECONDS, 0.0, ""

    def take(self, connection: Connection, data: bytes) -> None:
        if self._sealer is not None:
            try:
                data = self._sealer.open(data)
            except SealBroken as error:
                self._counters["seals_broken"] += 1
                if self._counters["seals_broken"] == 1:
                    logger.warning(
                        "a connection is ended: %s", error, extra={"action": "transport.seal_broken"}
                    )
                connection.abort("a broken seal")
                return
        self._frames_received += 1
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._arrived.set()
        if not self._has_room(1) and connection not in self._held_up and not self._closing:
            self._held_up.add(connection)
            self._counters["held_up"] += 1
            connection.pause()

    def lost(self, connection: Connection) -> None:
        """Forget a connection that is over, or about to be. May be called twice."""
        if connection.over:
            self._forget(connection)
        peer = self._peers.get(connection.peer) if connection.proven else None
        if peer is None or peer.connection is not connection:
            return
        peer.connection, peer.why = None, connection.why
        peer.lost_at = asyncio.get_running_loop().time()
        if self._closing:
            return
        if connection.said_bye:
            self._counters["connections_ended"] += 1
            return
        self._counters["connections_lost"] += 1
        logger.info(
            "the connection to %s is lost: %s", peer.channel, connection.why,
            extra={"action": "transport.connection_lost"},
        )  # fmt: skip
        if connection.dialed:
            self._start(self._come_back(peer))

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._held_up.discard(connection)
        if connection in self._unproven:
            del self._unproven[connection]
            if connection.heard:  # one that looks whether something listens says nothing
                self._handshake_failed(connection)

    def _handshake_failed(self, connection: Connection) -> None:
        self._counters["handshakes_failed"] += 1
        if not connection.rejected or connection.refused is Why.FULL:
            return  # it has gone, was too slow, or came too late
        self._counters["handshakes_rejected"] += 1
        if self._counters["handshakes_rejected"] == 1:
            logger.warning(
                "a process that connected has not proven that it knows the cluster's key: %s", connection.why,
                extra={"action": "transport.handshake_failed"},
            )  # fmt: skip

    def _leave(self, connection: Connection) -> None:
        """It is one too many.

        Who has dialed it ends it; the other side sends nothing more on it.
        """
        if connection.dialed:
            connection.retire()

    # -- Reaching a peer ---------------------------------------------------------------------------

    async def _reach(self, channel: str) -> Connection:
        """Return a proven connection to that peer, if one can be made at once.

        Raises TransportError.
        """
        if not self._open:
            raise TransportError("not open")
        peer = self._peers.setdefault(channel, _Peer(channel))
        if self._look_timer is None:
            self._arm_look()  # else a peer to which no connection is ever made is not forgotten
        now = asyncio.get_running_loop().time()
        if peer.dial is None:
            if now < peer.again_at:
                self._counters["frames_not_sent"] += 1
                raise PeerUnreachable(peer.why)
            peer.dialed_at = now
            peer.dial = self._start(self._dial(peer))
        wait = peer.dialed_at + DIAL_WAIT_SECONDS - now
        if wait > 0:
            await asyncio.wait([peer.dial], timeout=wait)
        if peer.connection is None:
            self._counters["frames_not_sent"] += 1
            if peer.why:
                raise PeerUnreachable(peer.why)
            raise PeerNotYetReached("the connection to it is being made")
        return peer.connection

    async def _come_back_to_me(self, data: bytes, company: Company) -> None:
        """Take a frame to this process itself, unless it hears no other though others are there."""
        now = asyncio.get_running_loop().time()
        nodes = [
            peer.connection for peer in self._peers.values()
            if peer.connection is not None and not has_no_row(peer.channel.rpartition(".")[2])
        ]  # fmt: skip
        if any(now - each.heard_at < LATELY_SECONDS for each in nodes):
            company.heard()
        else:
            others = await self._others()
            answering = [each for each in nodes if each.silent < SILENT_AFTER_LOOKS]
            for each in sorted(answering, key=lambda each: each.heard_at)[-ASKED_AT_A_TIME:]:
                each.ping()
            if others.names and not answering:
                self._turn += 1
                other = others.names[self._turn % len(others.names)]
                self._start(self._try_to_reach(f"{self._channel.rpartition('.')[0]}.{other}"))
            if company.is_alone(now, others):
                raise PeerUnreachable("no other node answers")
        self.hand_in(data)

    async def _others(self) -> Others:
        try:
            return await self._directory.others(self._channel)
        except StoreUnavailable:
            return Others()  # it is the lease that ends then

    async def _try_to_reach(self, channel: str) -> None:
        with contextlib.suppress(TransportError):
            await self._reach(channel)

    async def _dial(self, peer: _Peer) -> None:
        """Try each address of the peer once."""
        loop = asyncio.get_running_loop()
        why = "the attempt was broken off"
        try:
            why = await self._try_addresses(peer)
        except StoreUnavailable as error:
            why = f"where it listens cannot be read: {error}"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            logger.exception("a connection cannot be made", extra={"action": "transport.dial_error"})
        finally:
            peer.dial = None
        if peer.connection is None:
            self._counters["dials_failed"] += 1
            peer.why = why
            peer.lost_at = loop.time()
            peer.again_at = peer.lost_at + peer.pause * (0.5 + self._jitter())
            peer.pause = min(2 * peer.pause, AGAIN_AT_MOST_SECONDS)

    async def _try_addresses(self, peer: _Peer) -> str:
        mine = peer.channel == self._channel
        addresses = self._addresses if mine else await self._directory.find(peer.channel)
        peer.has_address = bool(addresses)
        why = "it listens nowhere that its row would say"
        for address in addresses:
            for host in await _hosts(address):
                if peer.connection is not None:
                    return why
                why = await self._try_host(peer, address, host)
        return why

    async def _try_host(self, peer: _Peer, address: Address, host: str) -> str:
        """Return why that host gave no connection; empty: it gave one."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                connection = await self._connect(peer.channel, address, host)
                await connection.settled.wait()
        except (OSError, UnicodeError) as error:  # UnicodeError: it is no name of a host
            return f"{address}: {str(error) or type(error).__name__}"
        if connection.proven:
            return ""
        why = f"{address}: {connection.why}"
        if connection.refused not in (None, Why.ELSEWHERE):
            self._warn(why)
        return why

    async def _connect(self, channel: str, address: Address, host: str) -> Connection:
        loop = asyncio.get_running_loop()

        def made() -> Connection:
            nonce = os.urandom(NONCE_BYTES)
            return Connection(self, Dialing(self._keys, self._channel, channel, nonce))

        if address.way == "unix":
            if not is_ours(address.host):
                raise FileNotFoundError("no socket of this user is there")
            return (await loop.create_unix_connection(made, address.host))[1]
        if (address.way == "tls") != (self._tls is not None):
            raise ConnectionRefusedError("one side has certificates, and the other none")
        context = None if self._tls is None else self._tls.client
        options = _of_tls(context, address.host)
        return (await loop.create_connection(made, host, address.port, ssl=context, **options))[1]

    async def _come_back(self, peer: _Peer) -> None:
        """Connect again to a peer that may be unable to connect to us: it may have something to
        say.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + KEEP_SECONDS
        while self._open and peer.connection is None and peer.has_address and loop.time() < until:
            await asyncio.sleep(max(peer.again_at - loop.time(), AGAIN_SECONDS * self._jitter()))
            await self._try_to_reach(peer.channel)

    # -- Looking after connections -----------------------------------------------------------------

    def _arm_look(self) -> None:
        self._look_timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Ask those that owe an answer, give up those that stay silent, forget peers that are not
        there.
        """
        self._look_timer = None
        for each in list(self._connections):
            if not each.proven or not each.wrote:
                continue
            each.silent += 1
            if each.silent == PING_AFTER_LOOKS:
                each.ping()
            elif each.silent >= LOST_AFTER_LOOKS:
                self._counters["connections_silent"] += 1
                each.abort("it was silent for too long")
        now = asyncio.get_running_loop().time()
        for channel, peer in list(self._peers.items()):
            if peer.connection is None and peer.dial is None and now - peer.lost_at > FORGET_AFTER_SECONDS:
                del self._peers[channel]
        if self._path is not None:
            self._look_for_socket(self._path)
        if self._connections or self._peers or self._path is not None:
            self._arm_look()

    def _look_for_socket(self, path: Path) -> None:
        is_under_way = self._listening_anew is not None and not self._listening_anew.done()
        if self._listen is not None and not is_under_way and not path.exists():
            self._listening_anew = self._start(self._listen_anew(self._listen.folder, path))

    def _has_room(self, share: int) -> bool:
        """Tell whether less waits than may, divided by `share`."""
        return (
            len(self._waiting) * share <= MAX_WAITING_FRAMES
            and self._waiting_bytes * share <= MAX_WAITING_BYTES
        )

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name="sharding dial")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _warn(self, why: str) -> None:
        self._counters["dials_refused"] += 1
        if self._counters["dials_refused"] == 1:
            logger.warning("another process refuses this one: %s", why, extra={"action": "transport.refused"})


def _places() -> int:
    """Return how many connections there may be: half of the file descriptors is left to others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, soft // 2)


def _of_tls(context: ssl.SSLContext | None, name: str) -> dict[str, Any]:
    """Return what a connection to the host of that name needs beside the context."""
    if context is None:
        return {}
    return {"server_hostname": name, "ssl_handshake_timeout": HANDSHAKE_SECONDS}


async def _hosts(address: Address) -> list[str]:
    """Return what an address's host stands for: a name may have several IPs.

    One of them may lead nowhere, as IPv6 does in some networks, or to another process. So each is
    an attempt of its own.
    """
    if address.way == "unix" or _is_ip(address.host):
        return [address.host]
    loop, numeric = asyncio.get_running_loop(), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return [address.host]  # the attempt says why it cannot be found
    return list(dict.fromkeys(socket.getnameinfo(each[4], numeric)[0] for each in found))[:MAX_HOSTS]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _place_for_socket(folder: str) -> Path:
    path = socket_path(folder)
    if removed := sweep(path.parent):
        logger.debug("%d sockets of ended processes are removed", removed)
    return path
