"""Columns of many rows as the server's binary arrays: packed at once, and sent as they are.

psycopg adapts a list element by element, in Python: several times as long as this for an append's
columns. Most columns of an append hold one value, or none.
"""

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_HEAD = struct.Struct("!iiIii")
"""Number of dimensions, whether there are nulls, the elements' type, their number, the first
index."""
_EMPTY = struct.Struct("!iiI")
_size = struct.Struct("!i").pack
_SIZES = [_size(size) for size in range(1024)]
_NULL = _size(-1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Array:
    """The values of one column in the server's binary form. Without any value it is empty."""

    __slots__ = ("data",)
    element: ClassVar[int] = 0
    oid: ClassVar[int] = 0

    def __init__(self, values: Sequence[Any]) -> None:
        count = len(values)
        first = values[0] if count else None
        same = bool(count) and values.count(first) == count
        if first is None and (same or not count):
            self.data = _EMPTY.pack(0, 0, self.element)
            return
        if same:
            body = self.packed((first,)) * count
        elif None in values:
            body = b"".join([_NULL if value is None else self.packed((value,)) for value in values])
        else:
            body = self.packed(values)
        self.data = _HEAD.pack(1, None in values, self.element, count, 1) + body

    @classmethod
    def packed(cls, values: Sequence[Any]) -> bytes:
        """Return each value behind its size."""
        items = cls.encoded(values)
        sizes = list(map(len, items))
        parts = [b""] * (2 * len(items))
        parts[::2] = map(_SIZES.__getitem__ if max(sizes) < len(_SIZES) else _size, sizes)
        parts[1::2] = items
        return b"".join(parts)

    @classmethod
    def encoded(cls, values: Sequence[Any]) -> Sequence[bytes]:
        return values


class _Packed(Array):
    """An array of numbers of one size."""

    __slots__ = ()
    letter: ClassVar[str] = ""
    size: ClassVar[int] = 0

    @classmethod
    def packed(cls, values: Sequence[Any]) -> bytes:
        flat = [cls.size] * (2 * len(values))
        flat[1::2] = values
        return struct.pack("!" + f"i{cls.letter}" * len(values), *flat)


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

    @classmethod
    def packed(cls, values: Iterable[datetime]) -> bytes:
        return super().packed([(each - _EPOCH) // _MICROSECOND for each in values])


class Texts(Array):
    __slots__ = ()
    element, oid = 25, 1009

    @classmethod
    def encoded(cls, values: Sequence[str]) -> Sequence[bytes]:
        return list(map(str.encode, values))


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
