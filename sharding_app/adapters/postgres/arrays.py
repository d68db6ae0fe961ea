"""Columns of many rows as the server's binary arrays: packed at once, and sent as they are.

psycopg adapts a list element by element, in Python: twice as long as this for an append's columns.
"""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEAD = struct.Struct("!iiIii")
"""Number of dimensions, whether there are nulls, the elements' type, their number, the first
index."""
_EMPTY = struct.Struct("!iiI")
_SIZE = struct.Struct("!i")
_NULL = _SIZE.pack(-1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Array:
    """One value of an array's type, in the server's binary form."""

    __slots__ = ("data",)
    element = 0
    oid = 0

    def __init__(self, items: Sequence[bytes | None]) -> None:
        if not items:
            self.data = _EMPTY.pack(0, 0, self.element)
            return
        parts = [b""]
        nulls = 0
        for item in items:
            if item is None:
                nulls = 1
                parts.append(_NULL)
            else:
                parts.append(_SIZE.pack(len(item)))
                parts.append(item)
        parts[0] = _HEAD.pack(1, nulls, self.element, len(items), 1)
        self.data = b"".join(parts)


class _Packed(Array):
    """An array of numbers of one size."""

    __slots__ = ()
    letter = ""
    size = 0

    def __init__(self, values: Sequence[Any]) -> None:
        if None in values:
            pack = struct.Struct(f"!{self.letter}").pack
            super().__init__([None if value is None else pack(value) for value in values])
        elif values:
            flat = [self.size] * (2 * len(values))
            flat[1::2] = values
            head = _HEAD.pack(1, 0, self.element, len(values), 1)
            self.data = head + struct.pack("!" + f"i{self.letter}" * len(values), *flat)
        else:
            super().__init__(())


class Integers(_Packed):
    __slots__ = ()
    element, oid, letter, size = 23, 1007, "i", 4


class Bigints(_Packed):
    __slots__ = ()
    element, oid, letter, size = 20, 1016, "q", 8


class Booleans(_Packed):
    __slots__ = ()
    element, oid, letter, size = 16, 1000, "?", 1


class Doubles(_Packed):
    __slots__ = ()
    element, oid, letter, size = 701, 1022, "d", 8


class Times(_Packed):
    """`timestamptz`: microseconds since the year 2000."""

    __slots__ = ()
    element, oid, letter, size = 1184, 1185, "q", 8

    def __init__(self, values: Iterable[datetime | None]) -> None:
        super().__init__([None if each is None else (each - _EPOCH) // _MICROSECOND for each in values])


class Texts(Array):
    __slots__ = ()
    element, oid = 25, 1009

    def __init__(self, values: Iterable[str | None]) -> None:
        super().__init__([None if each is None else each.encode() for each in values])


class Documents(Array):
    """Texts that are bytes already: the server checks them."""

    __slots__ = ()
    element, oid = 25, 1009


class Binaries(Array):
    __slots__ = ()
    element, oid = 17, 1001


def register_arrays(adapters: AdaptersMap) -> None:
    """Let statements take these arrays as parameters."""
    for kind in (Integers, Bigints, Booleans, Doubles, Times, Texts, Documents, Binaries):
        adapters.register_dumper(kind, _dumper(kind))


def _dumper(kind: type[Array]) -> type[Dumper]:
    class ArrayDumper(Dumper):
        format = Format.BINARY
        oid = kind.oid

        def dump(self, obj: Array) -> bytes:
            return obj.data

    return ArrayDumper
