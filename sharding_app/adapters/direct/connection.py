"""One connection between two processes: the handshake, then frames in both directions.

    made ──hello, greeting, proof, welcome──> proven ──retire()──> retiring ──goodbye, end──> lost
      │                                          │
      └──too slow, too large, wrong──> lost <────┴──silent, a broken seal, reset

Contract: before the proof at most `MAX_HANDSHAKE_BYTES` are held, and only the fixed layout of the
handshake is read. After `retire()` nothing is sent here any more but a goodbye. Frames that the
peer sent before it knew are still taken, so a connection that ends in order loses no frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Protocol, cast

from sharding_app.protocol.direct.framing import (
    BYE,
    FRAME,
    HANDSHAKE,
    PING,
    PONG,
    REFUSED,
    FrameReader,
    FramingError,
    Kind,
    framed,
)
from sharding_app.protocol.direct.handshake import (
    MAX_HANDSHAKE_BYTES,
    Accepting,
    Dialing,
    HandshakeFailed,
    Why,
    refusal,
)

HANDSHAKE_SECONDS = 2.0
GOODBYE_SECONDS = 1.0
WRITE_BUFFER_BYTES = 1024 * 1024
"""More than this waits for the peer: then `full` says so."""
KEEPALIVE_SECONDS = 5
USER_TIMEOUT_SECONDS = 5
"""Bytes that the peer's kernel does not acknowledge for this time end a TCP connection."""


class Owner(Protocol):
    """The transport, as its connections see it."""

    max_frame_bytes: int

    def made(self, connection: Connection) -> None: ...

    def has_place(self, connection: Connection) -> bool:
        """Whether a connection that has proven itself may stay."""
        ...

    def is_proven(self, connection: Connection) -> None: ...

    def take(self, connection: Connection, data: bytes) -> None: ...

    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    def __init__(self, owner: Owner, handshake: Dialing | Accepting) -> None:
        self.handshake = handshake
        self.dialed = isinstance(handshake, Dialing)
        self.proven = False
        self.proven_at = 0.0
        self.heard_at = 0.0
        self.full = False
        "The peer does not read as fast as this process writes."
        self.retiring = False
        self.over = False
        self.said_bye = False
        "The peer ended it in order."
        self.heard = False
        "The peer has said something, whatever it was."
        self.rejected = False
        "What it said was wrong."
        self.why = ""
        "Why it ended, in a few words."
        self.refused: Why | None = None
        self.ended = asyncio.Event()
        self.settled = asyncio.Event()
        "Proven, or lost."
        self.wrote = False
        "Something was written since the peer was last heard."
        self.silent = 0
        "Number of looks in a row at which it owed an answer."
        self._dropped = False
        "Nothing that it still brings is read."
        self._owner = owner
        self._reader = FrameReader(MAX_HANDSHAKE_BYTES)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()

    @property
    def peer(self) -> str:
        return self.handshake.peer

    @property
    def buffered(self) -> int:
        return self._transport.get_write_buffer_size()

    # -- What the owner does -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send a frame. The connection has to be proven and not retiring."""
        self.wrote = True
        self._transport.write(framed(FRAME, data))

    async def room(self, seconds: float) -> bool:
        """Wait until the peer has read enough. False: it has not in that time, or is gone."""
        try:
            async with asyncio.timeout(seconds):
                await self._room.wait()
        except TimeoutError:
            return False
        return not self.over

    def ping(self) -> None:
        self._say(PING)

    def retire(self) -> None:
        """End in order: say goodbye, and wait for the peer's."""
        if not self.retiring and not self.over:
            self.retiring = True
            self._say(BYE)
            self._arm(GOODBYE_SECONDS, "no goodbye came")

    def abort(self, why: str) -> None:
        self.why = self.why or why
        self._dropped = True
        if not self.over:
            self._transport.abort()

    def pause(self) -> None:
        if not self.over:
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self.over:
            self._transport.resume_reading()

    # -- asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._arm(HANDSHAKE_SECONDS, "the handshake took too long")
        self._owner.made(self)
        with contextlib.suppress(OSError):  # no file descriptor is left, say: the handshake stays bounded
            _watch_over(transport.get_extra_info("socket"))
        if isinstance(self.handshake, Dialing) and not self.over:
            self._transport.write(framed(HANDSHAKE, self.handshake.hello))

    def data_received(self, data: bytes) -> None:
        self.wrote = False
        self.silent = 0
        self.heard_at = asyncio.get_running_loop().time()
        try:
            for kind, body in self._reader.feed(data):
                if kind == FRAME and self.proven:
                    self._owner.take(self, body)
                else:
                    self._word(kind, body)
                if self._dropped:
                    return
        except FramingError as error:
            self.heard = self.rejected = True
            self.abort(str(error))

    def pause_writing(self) -> None:
        self.full = True
        self._room.clear()

    def resume_writing(self) -> None:
        self.full = False
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.over = True
        self.why = self.why or (f"{type(error).__name__}: {error}" if error else "the peer has closed it")
        self.retiring = True
        self._disarm()
        self.resume_writing()
        self.settled.set()
        self.ended.set()
        self._owner.lost(self)

    # -- Inside ------------------------------------------------------------------------------------

    def _word(self, kind: int, body: bytes) -> None:
        """Take a message that is no frame, or that comes before the proof."""
        if not self.proven:
            self._shake_hands(kind, body)
        elif kind == PING:
            if not self.full:  # a peer that asks and does not read gets no more answers
                self._say(PONG)
        elif kind == BYE:
            self.said_bye = True
            self.why = self.why or "the peer has said goodbye"
            if not self.retiring:
                self.retiring = True
                self._say(BYE)
            self._owner.lost(self)
            self._transport.close()
        elif kind != PONG:
            self.abort("it sent a message that has no place after the handshake")

    def _shake_hands(self, kind: int, body: bytes) -> None:
        self.heard = True
        if kind == REFUSED:
            self.refused = refusal(body)
            self.abort(f"it refused: {HandshakeFailed(self.refused)}")
            return
        try:
            if kind != HANDSHAKE:
                raise HandshakeFailed(Why.UNREADABLE)
            answer = self.handshake.receive(body)
        except HandshakeFailed as error:
            self.refuse(error.why)
            return
        if self.handshake.proven and not self._owner.has_place(self):
            self.refuse(Why.FULL)
            return
        if answer:
            self._transport.write(framed(HANDSHAKE, answer))
        if self.handshake.proven:
            self._disarm()
            self.proven = True
            self.proven_at = asyncio.get_running_loop().time()
            self._reader.limit = self._owner.max_frame_bytes
            self.settled.set()
            self._owner.is_proven(self)

    def refuse(self, why: Why) -> None:
        """Say why, and end it."""
        self.rejected = True
        self.refused, self.why = why, self.why or str(HandshakeFailed(why))
        self._dropped = True
        self._say(REFUSED, bytes((why,)))
        self._arm(GOODBYE_SECONDS, "")  # one that does not read it is cut off
        self._transport.close()

    def _say(self, kind: Kind, body: bytes = b"") -> None:
        if not self.over and not self._transport.is_closing():
            self.wrote |= kind == PING  # nothing is owed for other words
            self._transport.write(framed(kind, body))

    def _arm(self, seconds: float, why: str) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort, why)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _watch_over(found: socket.socket | None) -> None:
    """Have the kernel notice a peer whose machine, or the way to it, is gone."""
    if found is None or found.family == socket.AF_UNIX:
        return
    # A loop's own kind of socket may not take options: they are set on the same open file by
    # another number.
    with socket.socket(fileno=os.dup(found.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_SECONDS), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 1000 * USER_TIMEOUT_SECONDS),
        ):  # fmt: skip
            if (option := getattr(socket, name, None)) is not None:  # not on every system
                same.setsockopt(socket.IPPROTO_TCP, option, value)
