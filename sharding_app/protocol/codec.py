"""Frames as bytes: MessagePack, written by hand around encoded messages, read in one typed decode.

Writing: a message is encoded when it is put into a link, so a message that cannot be encoded fails
alone, and every limit knows its size. `FrameWriter` puts the frame's numbers before the encoded
messages: a resend costs a new header, not a new body.

Reading: `decode_frame` raises only `DecodeError`, for any bytes. It is bounded in size (one channel
message), in number (messages of a frame) and in depth (by the types: nothing in `protocol.messages`
is recursive, and unknown trailing fields are skipped by a decoder that counts its depth).
`salvage_frame` reads the good messages of a frame in which others are bad or of a later release, so
that those do not block the link.

Versions: a frame states its wire version. A reader takes all from `WIRE_MIN` to `WIRE_VERSION`.
Fields may be added at the end without a new version. A new message type takes two releases, so that
neighbours can mix: the first learns to read it (raises `WIRE_VERSION` and still writes
`WIRE_WRITTEN`), the next one writes it.
"""

from collections.abc import Sequence

import msgspec

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import WIRE_VERSION, AnyMessage, Frame

WIRE_MIN = 1
"""The oldest wire version that is still read."""
WIRE_WRITTEN = WIRE_VERSION
"""The version that frames are written in."""
MAX_DATA_BYTES = 1024 * 1024
"""Largest channel-layer message: a larger one is refused unread."""
MAX_BODY_MESSAGES = 10_000
"""More messages than this in one frame are refused."""
MAX_NUMBER = (1 << 63) - 1
MAX_NAME = 256


class DecodeError(Exception):
    """These bytes are no frame. The reason never quotes the content."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class EncodeError(Exception):
    """This message cannot be written: text with lone surrogates, or a number beyond 64 bits."""

    def __init__(self, message: AnyMessage, reason: str) -> None:
        super().__init__(f"{type(message).__name__} cannot be encoded: {reason}")


class _Envelope(msgspec.Struct, array_like=True, gc=False):
    """A frame whose messages are decoded one by one."""

    wire: int
    source: Incarnation
    target: Incarnation
    stream: int
    seq: int
    ack_stream: int
    ack: int
    credit: int
    body: list[msgspec.Raw]
    clock: int = 0
    yours: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode
_decode_envelope = msgspec.msgpack.Decoder(_Envelope).decode
_decode_message = msgspec.msgpack.Decoder(AnyMessage).decode
# UnicodeDecodeError and other ValueErrors come from strings, RecursionError from fields that are
# skipped.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)


def encode_message(message: AnyMessage) -> bytes:
    """Return one message as it stands in a frame's body. Raises EncodeError."""
    try:
        return _encode(message)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise EncodeError(message, type(error).__name__) from None


def encode_frame(frame: Frame) -> bytes:
    """Return a whole frame as bytes: the plain way, for frames that no link numbers.

    Raises EncodeError.
    """
    writer = FrameWriter(frame.source, frame.target, frame.wire)
    body = [encode_message(message) for message in frame.body]
    numbers = (frame.stream, frame.seq, frame.ack_stream, frame.ack, frame.credit)
    return writer.write(*numbers, len(body), body, frame.clock, frame.yours)


class FrameWriter:
    """Writes the frames of one direction between two incarnations."""

    __slots__ = ("_prefix",)

    def __init__(self, source: Incarnation, target: Incarnation, wire: int = WIRE_WRITTEN) -> None:
        # 0x9b: an array of eleven, the fields of Frame in their order.
        self._prefix = b"\x9b" + _encode(wire) + _encode(source) + _encode(target)

    def write(
        self,
        stream: int,
        seq: int,
        ack_stream: int,
        ack: int,
        credit: int,
        count: int,
        body: Sequence[bytes],
        clock: int = 0,
        yours: int = 0,
    ) -> bytes:
        """Return a frame of `count` messages; `body` holds them encoded, in one piece or many."""
        numbers = _encode((stream, seq, ack_stream, ack, credit))
        clocks = _encode((clock, yours))
        return b"".join((self._prefix, numbers[1:], _array_header(count), *body, clocks[1:]))


def _array_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def decode_frame(data: bytes) -> Frame:
    """Decode a frame. Raises DecodeError and nothing else."""
    if len(data) > MAX_DATA_BYTES:
        raise DecodeError(f"larger than {MAX_DATA_BYTES} bytes")
    try:
        frame = _decode(data)
    except _UNREADABLE as error:
        raise DecodeError(_kind(error)) from None
    _check(frame)
    return frame


def salvage_frame(data: bytes) -> tuple[Frame, int]:
    """Return the frame without the messages that cannot be read, and their number.

    Raises DecodeError.
    """
    if len(data) > MAX_DATA_BYTES:
        raise DecodeError(f"larger than {MAX_DATA_BYTES} bytes")
    try:
        envelope = _decode_envelope(data)
    except _UNREADABLE as error:
        raise DecodeError(_kind(error)) from None
    _check(envelope)
    body: list[AnyMessage] = []
    for raw in envelope.body:
        try:
            body.append(_decode_message(raw))
        except _UNREADABLE:
            continue
    numbers = (envelope.stream, envelope.seq, envelope.ack_stream, envelope.ack, envelope.credit)
    clocks = (envelope.clock, envelope.yours)
    frame = Frame(envelope.wire, envelope.source, envelope.target, *numbers, body, *clocks)
    return frame, len(envelope.body) - len(body)


def _check(frame: Frame | _Envelope) -> None:
    if len(frame.body) > MAX_BODY_MESSAGES:
        raise DecodeError(f"more than {MAX_BODY_MESSAGES} messages")
    if not (0 < len(frame.source) <= MAX_NAME and 0 < len(frame.target) <= MAX_NAME):
        raise DecodeError("a name of impossible length")
    numbers = (
        *(frame.stream, frame.seq, frame.ack_stream, frame.ack, frame.credit),
        *(frame.clock, frame.yours),
    )
    if min(numbers) < 0 or max(numbers) > MAX_NUMBER:
        raise DecodeError("a number out of range")


def _kind(error: Exception) -> str:
    # msgspec's own messages name types and places, never values; others may quote the input.
    return str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
