"""Frames on a stream of bytes between two processes.

    bytes 0-3     little-endian: the kind in the upper 8 bits, the length of the body in the others
    then          the body

Contract: a length above the limit is refused as soon as its four bytes are there. So a peer makes
this process hold no more than the limit and the bytes of one read. The limit is small until the
peer has proven itself (`protocol.direct.handshake`).
"""

import struct
from collections.abc import Iterator
from typing import Final, Literal

HANDSHAKE: Final = 1
FRAME: Final = 2
PING: Final = 3
PONG: Final = 4
BYE: Final = 5
REFUSED: Final = 6
Kind = Literal[1, 2, 3, 4, 5, 6]

HEAD_BYTES = 4
MAX_BODY_BYTES = (1 << 24) - 1
_HEAD = struct.Struct("<I")
_KINDS = frozenset((HANDSHAKE, FRAME, PING, PONG, BYE, REFUSED))


class FramingError(Exception):
    """These bytes are no frames, or one that is too large."""


def framed(kind: Kind, body: bytes = b"") -> bytes:
    """Return the body behind its head."""
    return _HEAD.pack(kind << 24 | len(body)) + body


class FrameReader:
    """Takes bytes as they come, and gives whole bodies with their kinds."""

    __slots__ = ("_held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = bytearray()

    @property
    def held(self) -> int:
        """Return how many bytes wait for the rest of their frame."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes; yield the whole frames. Raises FramingError, after which nothing more may be
        fed.

        The limit may be changed while it yields: it holds from the next frame on."""
        held = self._held
        if not held and len(data) >= HEAD_BYTES:
            kind, length = self._head(data, 0)
            if len(data) == HEAD_BYTES + length:  # the usual case: one frame, whole
                yield kind, data[HEAD_BYTES:]
                return
        held += data
        at, size = 0, len(held)
        while size - at >= HEAD_BYTES:
            kind, length = self._head(held, at)
            end = at + HEAD_BYTES + length
            if end > size:
                break
            yield kind, bytes(held[at + HEAD_BYTES : end])
            at = end
        del held[:at]

    def _head(self, data: bytes | bytearray, at: int) -> tuple[int, int]:
        head: int = _HEAD.unpack_from(data, at)[0]
        kind, length = head >> 24, head & MAX_BODY_BYTES
        if kind not in _KINDS:
            raise FramingError(f"no frame is of kind {kind}")
        if length > self.limit:
            raise FramingError(f"a frame of {length} bytes is announced, and {self.limit} are taken")
        return kind, length
