"""Every decoder of what others send reads or refuses with its own error, whatever the bytes are,
and within bounds.

The frames' decoder has its own tests in tests/unit/protocol/test_codec.py, and the seal in
tests/unit/adapters/channels/test_seal.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sharding_app import (
    EventSourced,
    InvalidCall,
    ShardingError,
    UnreadableEvent,
    applies,
    command,
    event,
    message,
)
from sharding_app.entities.messages import decode_message, decode_reply, encode_message, encode_reply
from sharding_app.entities.registry import registry
from sharding_app.runtime.execution.message_handler import MessageHandler

DEEP = 200_000
SECRET = "4111-1111-secret"


@dataclass
class Line:
    sku: str
    count: int


with registry.isolated():

    @message
    class Ordered:
        lines: list[Line]
        note: str = ""
        more: dict[str, float] = {}  # noqa: RUF012 - a message's fields are values

    @event
    class Placed:
        lines: list[Line]
        note: str

    class Order(EventSourced, name="security.Order"):
        @command
        def place(self, lines: list[Line], note: str = "", numbers: tuple[int, ...] = ()) -> None:
            self.persist(Placed(lines, note))

        @applies(Placed)
        def on_placed(self, happened: Placed) -> None: ...


ARGUMENTS = Order._sharding_type.commands["place"]  # type: ignore[union-attr]
EVENTS = Order._sharding_type.event_codec  # type: ignore[union-attr]
NAME, MESSAGE = encode_message(Ordered([Line("a", 1)], SECRET, {"x": 1.5}))
REPLY = encode_reply({"a": [1, "two", None]})
CALL = msgspec.msgpack.encode(([{"sku": "a", "count": 1}], SECRET, (1, 2)))
EVENT = msgspec.json.encode({"lines": [{"sku": "a", "count": 1}], "note": SECRET})

DECODERS: dict[str, tuple[Callable[[bytes], Any], bytes, tuple[type[Exception], ...]]] = {
    "arguments": (ARGUMENTS.decode, CALL, (InvalidCall,)),
    "message": (lambda raw: decode_message(NAME, raw), MESSAGE, (InvalidCall,)),
    "message of any name": (
        MessageHandler.decode.__get__(object.__new__(MessageHandler)),
        msgspec.msgpack.encode((NAME, MESSAGE)),
        (InvalidCall,),
    ),
    "reply": (decode_reply, REPLY, (InvalidCall, msgspec.MsgspecError, ValueError, RecursionError)),
    "event": (lambda raw: EVENTS.decode("Placed", 1, raw), EVENT, (UnreadableEvent,)),
}
HOSTILE = [
    b"",
    b"\xc1",
    b"\x91" * DEEP + b"\xc0",
    b"\x81\xa1a" * DEEP + b"\xc0",
    b"[" * DEEP,
    b'{"lines":' * DEEP,
    b"\x93" + b"\x91" * DEEP,
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xffx",
    b"\xc6\xff\xff\xff\xff",
    b"\x92\xa3abc\xc6\xff\xff\xff\xff",
    b"\xd9\x02\xff\xfe",
    b'{"lines":[],"note":"\xff"}',
    b'{"lines":[{"sku":"a","count":1e999}],"note":""}',
]
KINDS = pytest.mark.parametrize("kind", list(DECODERS))


def read(kind: str, raw: bytes) -> bool:
    """Whether it was taken; anything but a value or one of the errors that callers expect fails the
    test.
    """
    decode, _, errors = DECODERS[kind]
    with suppress(*errors):
        decode(raw)
        return True
    return False


@KINDS
def test_what_is_meant_is_taken(kind: str) -> None:
    assert read(kind, DECODERS[kind][1])


@KINDS
@pytest.mark.parametrize("raw", HOSTILE, ids=range(len(HOSTILE)))
def test_the_hostile_is_refused(kind: str, raw: bytes) -> None:
    assert not read(kind, raw)


@KINDS
@given(raw=st.binary(max_size=120))
def test_any_bytes(kind: str, raw: bytes) -> None:
    assert read(kind, raw) in (True, False)


@KINDS
@given(data=st.data())
def test_damaged_ones(kind: str, data: st.DataObject) -> None:
    damaged = bytearray(DECODERS[kind][1])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                damaged[place] = data.draw(st.integers(0, 255))
            case "cut" if place:
                del damaged[place:]
            case _:
                damaged[place:place] = data.draw(st.binary(min_size=1, max_size=9))
    assert read(kind, bytes(damaged)) in (True, False)


@given(name=st.text(max_size=30), raw=st.binary(max_size=40))
@example(name="os.system", raw=MESSAGE)
@example(name="builtins.eval", raw=MESSAGE)
@example(name="security.Order", raw=MESSAGE)
def test_only_declared_names_are_read(name: str, raw: bytes) -> None:
    """No name leads to code: it is looked up among the messages that were declared."""
    if name != NAME:
        with pytest.raises(InvalidCall):
            decode_message(name, raw)
        with pytest.raises(UnreadableEvent):
            EVENTS.decode(f"{name}?", 1, raw)


@pytest.mark.parametrize("kind", ["arguments", "message", "event"])
def test_refusals_name_places_and_quote_nothing(kind: str) -> None:
    """A wrong field beside a secret one: the error says where, not what."""
    decode, good, errors = DECODERS[kind]
    bad = good.replace(b"\xa5count\x01", b"\xa5count\xa1x").replace(b'"count":1', b'"count":"x"')
    assert bad != good
    with pytest.raises(errors) as caught:
        decode(bad)
    said = str(caught.value)
    assert SECRET not in said
    assert "count" in said or "lines" in said


@given(params=st.binary(max_size=60))
@example(params=b"\x91" * DEEP)
@example(params=b"\xdf\xff\xff\xff\xff")
def test_an_answers_details_cannot_hurt_the_asker(params: bytes) -> None:
    from sharding_app.protocol.messages import Failed
    from sharding_app.runtime.asking.undelivered import error_of

    error = error_of(Failed(1, "rejected", "no", params))
    assert isinstance(error, ShardingError)
