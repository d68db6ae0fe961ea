"""The result of a handler: encoded at the entity, read at the caller, checked before anything is
committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sharding_app.entities.codecs import values
from sharding_app.errors import DeclarationError, NotSerializable, ShardingError
from sharding_app.redaction import shown, told_reading


class _Nothing:
    """A type that no value has."""


_PLAIN = (int, str, bool, float, bytes, type(None))


class ResultCodec:
    """``encode(result) -> bytes`` for hosts and ``decode(raw)`` for callers.

    `checked`: a result that does not fit the annotation is refused at the entity, before anything
    is committed.
    """

    __slots__ = ("_plain", "_read", "_what", "encode")

    def __init__(self, wanted: Any, what: str, *, checked: bool) -> None:
        self._what = what
        try:
            self._read = values.unpacker(wanted)
        except TypeError as error:
            raise DeclarationError(f"{what}: its result cannot be sent: {error}") from error
        # A value of exactly the annotated plain type needs no second look.
        self._plain = wanted if wanted in _PLAIN else _Nothing
        self.encode = self._encoder(checked or values.says_any(wanted))

    def decode(self, data: bytes | memoryview) -> Any:
        """Return the result.

        A result may not fit the annotation of this process. It is that of a query, which the
        entity's node does not check, or comes from another release. The entity has handled the
        call, so the error does not tell whether something is stored.
        """
        try:
            return self._read(data)
        except values.ERRORS as error:
            raise ShardingError(
                f"{self._what}: its result does not fit the annotation: {told_reading(error)}"
            ) from error

    def _encoder(self, checked: bool) -> Callable[[Any], bytes]:
        pack, plain, check, refuse = values.pack, self._plain, self._check, self._refuse

        def encode(value: Any) -> bytes:
            try:
                data = pack(value)
            except values.ERRORS as error:
                raise refuse(error) from error
            if checked and type(value) is not plain:
                check(value, data)
            return data

        return encode

    def _check(self, value: Any, data: bytes) -> None:
        try:
            again = self._read(data)
        except msgspec.MsgspecError as error:
            raise NotSerializable(
                f"{self._what} returned {shown(value)}, which its annotation does not allow: {told_reading(error)}"
            ) from error
        if again != value and not values.same(value, again):
            raise NotSerializable(
                f"{self._what} returned {shown(value)}, which would arrive as {shown(again)}: annotate its result"
            )

    def _refuse(self, error: Exception) -> NotSerializable:
        return NotSerializable(f"{self._what}: its result cannot be sent: {values.reason(error)}")
