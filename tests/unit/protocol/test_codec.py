"""Frames as bytes: what is written is read again, and nothing that is read can hurt."""

import math
import resource
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.codec import (
    MAX_BODY_MESSAGES,
    MAX_DATA_BYTES,
    DecodeError,
    FrameWriter,
    decode_frame,
    encode_frame,
    encode_message,
    salvage_frame,
)
from sharding_app.protocol.messages import (
    WIRE_VERSION,
    AnyMessage,
    Done,
    Entities,
    EntityState,
    FailedStart,
    Frame,
    NodeStats,
    NodeTrend,
    OfShards,
    RegionState,
    ShardRegionState,
    Trouble,
)
from tests.unit.protocol.arbitrary import FRAMES
from tests.unit.protocol.link.harness import answer, command


@pytest.mark.parametrize("kind", OfShards.__subclasses__())
def test_shards_and_epochs_that_differ_in_length_are_no_message(kind: type[OfShards]) -> None:
    made = msgspec.msgpack.decode(msgspec.msgpack.encode(kind(**fields_of(kind))))
    places = [place for place, value in enumerate(made) if value == [1]]
    made[places[0]] = [1, 2]
    with pytest.raises(msgspec.ValidationError, match="differ in length"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=AnyMessage)


def fields_of(kind: type[OfShards]) -> dict[str, Any]:
    values: dict[Any, Any] = {int: 7, str: "shop.Cart", bool: False}
    return {each.name: values.get(each.type, [1]) for each in msgspec.structs.fields(kind)}


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    data = encode_frame(frame)
    assert decode_frame(data) == frame
    assert salvage_frame(data) == (frame, 0)
    assert data == msgspec.msgpack.encode(frame)


@given(FRAMES, st.data())
def test_a_damaged_frame_is_read_or_refused_and_nothing_else(frame: Frame, data: st.DataObject) -> None:
    damaged = bytearray(encode_frame(frame))
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                damaged[index] = data.draw(st.integers(0, 255))
            case "cut":
                del damaged[index:]
                damaged += b"\xc0"
            case _:
                damaged[index:index] = data.draw(st.binary(max_size=9))
    harmless(bytes(damaged))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    harmless(data)


def harmless(data: bytes) -> None:
    frame = None
    try:
        frame = decode_frame(data)
    except DecodeError:
        with suppress(DecodeError):
            salvaged, lost = salvage_frame(data)
            assert lost > 0
            frame = salvaged
    if frame is not None:
        assert decode_frame(encode_frame(frame)) == frame


HEAD = b"\x99" + encode_frame(Frame(WIRE_VERSION, "a", "b", 1, 1, 0, 0, 0, []))[1:-3]
"""Up to the body, of a frame without the clocks."""
TWELVE_FIELDS = b"\x9c" + HEAD[1:] + b"\x90\x00\x00"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD + b"\xdd\xff\xff\xff\xff",
        HEAD + b"\x91\x92\x04\xdd\xff\xff\xff\xff",
        HEAD + b"\x91\x92\x04\xdd\x07\xff\xff\xff" + b"\x01" * 1000,
        HEAD + b"\x91" * 500_000 + b"\xc0",
        TWELVE_FIELDS + b"\x91" * 500_000 + b"\xc0",
        TWELVE_FIELDS + b"\x81" * 500_000 + b"\xc0",
        HEAD + b"\xdb\xff\xff\xff\xff",
        HEAD + b"\x90\x90",
        HEAD.replace(b"\xa1a", b"\xa1\xff") + b"\x90",
        HEAD.replace(b"\xa1a", b"\xa0") + b"\x90",
        HEAD.replace(b"\xa1a", b"\xda\x01\x01" + b"n" * 257) + b"\x90",
        b"\x99\xa11" + HEAD[2:] + b"\x90",
        HEAD[:-5] + b"\xff" + HEAD[-4:] + b"\x90",
        HEAD[:-5] + b"\xcf" + b"\xff" * 8 + HEAD[-4:] + b"\x90",
        b"\x80",
        b"\x00" * (MAX_DATA_BYTES + 1),
        HEAD + b"\xdc\xff\xff" + b"\x92\x04\x90" * 0xFFFF,
    ],
    ids=lambda data: f"{len(data)} bytes",
)
def test_hostile_frames_are_refused_within_little_memory(data: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (decode_frame, salvage_frame):
        with pytest.raises(DecodeError):
            read(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_frame_beyond_the_limit_is_refused_for_its_size_whatever_is_in_it() -> None:
    for read in (decode_frame, salvage_frame):
        with pytest.raises(DecodeError, match=f"larger than {MAX_DATA_BYTES} bytes"):
            read(HEAD + b"\x90" + b"\x00" * MAX_DATA_BYTES)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_cannot_be_shown_is_refused(number: float) -> None:
    """It would be equal to nothing, itself neither, and would end the page that rounds it."""
    good = NodeStats(1, 0.0, {}, {}, {}, [], [], [])
    for bad in (
        NodeStats(1, number, {}, {}, {}, [], [], []),
        NodeStats(1, 0.0, {"shards": number}, {}, {}, [], [], []),
        NodeStats(1, 0.0, {}, {}, {"home_seconds": ([], number)}, [], [], []),
        NodeStats(1, 0.0, {}, {}, {}, [], [], [Trouble(number, "t", "e", "c", "r")]),
        Entities(1, 1, 1, [EntityState("e", 1, "idle", 0, number)]),
        ShardRegionState(1, [RegionState("t", [], [], [], 1, [FailedStart("e", 1, "E", 1, number, 0.0)])]),
    ):
        data = encode_frame(Frame(WIRE_VERSION, "a", "b", 1, 1, 0, 0, 0, [good, bad]))
        with pytest.raises(DecodeError, match="Expected `float`"):
            decode_frame(data)
        frame, lost = salvage_frame(data)
        assert (frame.body, lost) == ([good], 1)


def test_a_frame_has_a_bounded_number_of_messages() -> None:
    full = Frame(WIRE_VERSION, "a", "b", 1, 1, 0, 0, 0, [Done([])] * MAX_BODY_MESSAGES)
    assert decode_frame(encode_frame(full)) == full
    full.body.append(Done([]))
    with pytest.raises(DecodeError, match="more than 10000 messages"):
        decode_frame(encode_frame(full))


@pytest.mark.parametrize("number", [0, 1, 15, 16, 17])
def test_a_frame_has_as_many_messages_as_were_written(number: int) -> None:
    frame = Frame(WIRE_VERSION, "a", "b", 1, 1, 0, 0, 0, [answer(each) for each in range(number)])
    assert decode_frame(encode_frame(frame)) == frame


def test_fields_that_a_later_release_appends_are_skipped() -> None:
    later = msgspec.msgpack.decode(encode_message(answer(5)))
    data = HEAD + b"\x91" + msgspec.msgpack.encode([*later, {"new": [1, 2, 3]}])
    assert decode_frame(data).body == [answer(5)]
    assert decode_frame(TWELVE_FIELDS + b"\x93\x01\x02\x03").body == []


def test_messages_of_a_later_release_are_left_out_one_by_one() -> None:
    body = [encode_message(command(1)), b"\x92\x7f\x01", encode_message(answer(2)), b"\xc0", b"\x92\x02\xa1x"]
    data = FrameWriter("a", "b").write(1, 1, 0, 0, 0, len(body), body)
    with pytest.raises(DecodeError):
        decode_frame(data)
    frame, lost = salvage_frame(data)
    assert frame.body == [command(1), answer(2)]
    assert lost == 3


def test_reasons_do_not_quote_what_was_read() -> None:
    secret = b"\x92\x02\xaasecret-key"
    with pytest.raises(DecodeError) as caught:
        decode_frame(HEAD + b"\x91" + secret)
    assert "secret" not in caught.value.reason


def test_a_trend_has_one_time_for_each_of_its_samples() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        NodeTrend(1, 10, 0.0, 0.0, [1.0, 2.0], {"commands": [1.0]})
