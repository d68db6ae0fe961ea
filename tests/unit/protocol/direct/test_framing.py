"""Frames out of a stream of bytes, however it is cut, and nothing held beyond the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.direct.framing import (
    BYE,
    FRAME,
    HANDSHAKE,
    HEAD_BYTES,
    PING,
    FrameReader,
    FramingError,
    framed,
)

KINDS = st.sampled_from([HANDSHAKE, FRAME, PING, BYE])


@given(st.lists(st.tuples(KINDS, st.binary(max_size=300)), max_size=20), st.lists(st.integers(1, 50)))
def test_however_the_bytes_are_cut_the_same_frames_come_out(
    sent: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    stream = b"".join(framed(kind, body) for kind, body in sent)  # type: ignore[arg-type]
    reader, found, at = FrameReader(300), [], 0
    for cut in [*cuts, len(stream)]:
        found += list(reader.feed(stream[at : at + cut]))
        at += cut
    assert found == sent
    assert reader.held == 0


def test_a_length_beyond_the_limit_is_refused_at_its_head() -> None:
    reader = FrameReader(100)
    with pytest.raises(FramingError, match="101 bytes"):
        list(reader.feed(framed(FRAME, b"x" * 101)[:HEAD_BYTES]))
    assert reader.held <= HEAD_BYTES


def test_a_kind_that_is_none_is_refused() -> None:
    for garbage in (b"GET / HTTP/1.1\r\n", b"\0\0\0\0", b"\xff" * 4):
        with pytest.raises(FramingError, match="kind"):
            list(FrameReader(1024).feed(garbage))


def test_a_limit_that_is_raised_between_two_frames_holds_for_the_second() -> None:
    """The frame behind the last word of a handshake may come in one piece with it."""
    reader, found = FrameReader(4), []
    for kind, body in reader.feed(framed(HANDSHAKE, b"done") + framed(FRAME, b"x" * 5000)):
        found.append((kind, len(body)))
        reader.limit = 10_000
    assert found == [(HANDSHAKE, 4), (FRAME, 5000)]


@given(st.binary(max_size=2000))
def test_whatever_comes_it_is_frames_or_an_error_and_little_is_held(data: bytes) -> None:
    reader = FrameReader(64)
    try:
        for _, body in reader.feed(data):
            assert len(body) <= 64
    except FramingError:
        return
    assert reader.held <= 64 + HEAD_BYTES
