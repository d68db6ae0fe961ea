"""The encoders of arguments, replies, events and state, which change no value silently.

Calls travel as MessagePack; events and state are stored as readable JSON. A stored value is read
back at once and compared (`Exact`): an event that recovery would read differently, or not at all,
is refused while the command can still fail. That catches values that JSON cannot express (NaN, a
set where the annotation says Any) and values that the annotation does not allow, at a cost of two
tenths of a microsecond for a small event.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from sharding_app.entities.codecs.records import make_ready
from sharding_app.errors import DeclarationError, NotSerializable
from sharding_app.redaction import may_quote, shown, told_reading

MAX_BYTES_SHOWN = 60
BACKSLASH = 0x5C
#: Errors of encoders and decoders, ours and msgspec's (UnicodeEncodeError is a ValueError).
ERRORS = (msgspec.MsgspecError, ArithmeticError, NotImplementedError, RecursionError, TypeError, ValueError)


def enc_hook(value: Any) -> Any:
    """Encode values that msgspec does not know: subclasses of plain types, lazy translations,
    refs.
    """
    as_data = getattr(type(value), "__sharding_encode__", None)
    if as_data is not None:
        return as_data(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    promise = getattr(sys.modules.get("django.utils.functional"), "Promise", None)
    if promise is not None and isinstance(value, promise):
        return str(value)
    raise NotImplementedError(f"a {type(value).__qualname__} cannot be stored or sent")


def _store_hook(value: Any) -> Any:
    """As `enc_hook`, for a document that is stored."""
    as_stored = getattr(type(value), "__sharding_store__", None)
    return enc_hook(value) if as_stored is None else as_stored(value)


def dec_hook(wanted: Any, value: Any) -> Any:
    """The counterpart of `enc_hook` for annotations that msgspec does not know."""
    if wanted is object:
        return value
    origin = getattr(wanted, "__origin__", wanted)
    as_value = getattr(origin, "__sharding_decode__", None)
    if as_value is not None:
        return as_value(wanted, value)
    raise NotImplementedError(f"a {origin.__qualname__} cannot be read back")


pack = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode
json_text = msgspec.json.Encoder(enc_hook=_store_hook).encode
canonical_json = msgspec.json.Encoder(enc_hook=_store_hook, order="deterministic").encode
"""Equal values have equal texts: sets and dicts are sorted. It fails for a set that cannot be."""


def unpacker(wanted: Any) -> Callable[[Any], Any]:
    """Make a MessagePack reader for that annotation."""
    make_ready(wanted)
    return msgspec.msgpack.Decoder(wanted, dec_hook=dec_hook).decode


def json_reader(wanted: Any) -> Callable[[Any], Any]:
    """Make a JSON reader for that annotation."""
    make_ready(wanted)
    return msgspec.json.Decoder(wanted, dec_hook=dec_hook).decode


def says_any(wanted: Any) -> bool:
    """Tell whether `wanted` leaves a place open, so that a value may come back as another kind."""
    try:
        info = msgspec.inspect.type_info(wanted)
    except ERRORS:  # a type msgspec cannot describe is judged by reading back
        return True
    seen: set[int] = set()

    def visit(part: Any) -> bool:
        if isinstance(part, msgspec.inspect.AnyType):
            return True
        if isinstance(part, (tuple, list)):
            return any(visit(item) for item in part)
        if not isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)) or id(part) in seen:
            return False
        seen.add(id(part))
        return any(visit(getattr(part, name)) for name in part.__struct_fields__)

    return visit(info)


def same(given: Any, read: Any) -> bool:
    """Tell whether `read` stands for the same value as `given`, also where ``==`` alone is wrong.

    Times of different zones are unequal in the hour that a clock is set back, NaN is unequal to
    itself, and a class may have no ``==``.
    """
    if isinstance(given, dt.datetime) and isinstance(read, dt.datetime):
        if given.tzinfo is None or read.tzinfo is None:
            return given == read
        return given.astimezone(dt.UTC) == read.astimezone(dt.UTC)
    if isinstance(given, dict) and isinstance(read, dict):
        return given.keys() == read.keys() and all(same(given[key], read[key]) for key in given)
    if isinstance(given, (list, tuple)) and isinstance(read, (list, tuple)):
        return (
            isinstance(given, list) == isinstance(read, list)
            and len(given) == len(read)
            and all(map(same, given, read))
        )
    if type(given) is type(read):
        if isinstance(given, msgspec.Struct):
            fields: tuple[str, ...] = given.__struct_fields__
            return all(same(getattr(given, name), getattr(read, name)) for name in fields)
        if dataclasses.is_dataclass(given):
            return all(
                same(getattr(given, field.name), getattr(read, field.name))
                for field in dataclasses.fields(given)
            )
    return bool(given == read) or (given != given and read != read)


class Exact:
    """A JSON codec for one class that accepts only values that it reads back as the same.

    ``encode`` raises `NotSerializable`, with the field's name. ``decode`` raises msgspec's own
    errors.
    """

    __slots__ = ("_hint", "_read", "_what", "decode", "encode")

    def __init__(self, wanted: Any, what: str, hint: str = "") -> None:
        self._what = what
        self._hint = hint
        try:
            self._read = self.decode = json_reader(wanted)
        except TypeError as error:
            raise DeclarationError(f"{what} cannot be stored: {error}{hint}") from error
        self.encode = self._compiled()

    def _compiled(self) -> Callable[[Any], bytes]:
        write, read, refuse = json_text, self._read, self._refuse

        def encode(value: Any) -> bytes:
            try:
                data = write(value)
                again = read(data)
            except ERRORS as error:
                raise refuse(value, error) from error
            if again != value and not same(value, again):
                raise refuse(value, None)
            # PostgreSQL takes no NUL in text, nor its escape in jsonb. Most records hold no
            # backslash at all, and looking for one byte is ten times as quick as looking for six.
            if BACKSLASH in data and b"\\u0000" in data and holds_nul(value):
                raise refuse(value, None)
            return data

        return encode

    def _refuse(self, value: Any, error: Exception | None) -> NotSerializable:
        return NotSerializable(f"{self._what}{culprit(value, self._read, json_text, error)}{self._hint}")


def culprit(
    value: Any,
    read: Callable[[bytes], Any],
    write: Callable[[Any], bytes],
    error: Exception | None,
) -> str:
    """Return which field of `value` cannot be stored, and why, as the tail of a sentence."""
    for name, part in parts(value):
        try:
            data = write(part)
            again = msgspec.json.decode(data) if write is json_text else msgspec.msgpack.decode(data)
        except ERRORS as inner:
            return f": field {name!r} cannot be stored: {reason(inner)}"
        if holds_nul(part):
            return f": field {name!r} cannot be stored: it contains NUL"
        if again is None and part is not None:
            return f": field {name!r} cannot be stored: {part!r} is not a finite number"
    if error is None:
        try:
            again = read(write(value))
        except ERRORS as inner:
            return f": {reason(inner)}"
        fields = dict(parts(again))
        for name, part in parts(value):
            if name not in fields or not same(part, fields[name]):
                was, became = _short(part), _short(fields.get(name))
                return (
                    f": field {name!r} would be read back as {became}, not {was}: annotate it with its type"
                )
        return f" would be read back as {_short(again)}, not {_short(value)}: annotate its type"
    return f": {reason(error)}"


def reason(error: Exception) -> str:
    """Return the text of an encoder's or decoder's error, in words that help."""
    if isinstance(error, UnicodeEncodeError):
        return "it contains a lone surrogate"
    if isinstance(error, OverflowError):
        return "an int outside of -2**63 .. 2**64-1"
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or contains itself"
    return told_reading(error) if isinstance(error, msgspec.MsgspecError) else str(error)


def holds_nul(value: Any) -> bool:
    """Tell whether any text inside `value` contains NUL."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(holds_nul(key) or holds_nul(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(holds_nul, value))
    return any(holds_nul(part) for _, part in parts(value))


def parts(value: Any) -> list[tuple[str, Any]]:
    """Return the fields or keys of a value with their values; none for other values."""
    if isinstance(value, msgspec.Struct):
        fields = [(name, getattr(value, name)) for name in value.__struct_fields__]
        return [(name, part) for name, part in fields if part is not msgspec.UNSET]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        return [(str(key), item) for key, item in value.items()]
    return []


def _short(value: Any) -> str:
    text = ascii(value) if may_quote() else shown(value)
    return text if len(text) <= MAX_BYTES_SHOWN else f"{text[: MAX_BYTES_SHOWN - 3]}..."
