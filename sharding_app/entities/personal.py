"""`Personal[T]`: a value about a person, stored under a key of that person's own.

``Personal("Ann Smith", "ann")`` is a name of the person "ann". In the journal, in snapshots and in
durable messages it is a ciphertext; after `erase_subject("ann")` it reads as erased. So `value` is
a ``T | None``: a handler says what it does without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_origin
from uuid import UUID

import msgspec

from sharding_app.entities import identifiers
from sharding_app.entities.codecs import values
from sharding_app.entities.codecs.records import mentioned
from sharding_app.errors import WrongContext
from sharding_app.protocol import personal
from sharding_app.protocol.personal import BROKEN, ERASED, ERASED_TOKEN, PERSONAL, SEALED, Plain, Token

T = TypeVar("T")
D = TypeVar("D")


class Personal(Generic[T]):
    """A value about a person (the subject), which can be erased with all others of that person.

    It does not change. Its text never shows the value: logs and errors may contain it.
    """

    __slots__ = ("_kind", "_sealed", "_subject", "_value")

    _kind: str
    _sealed: bytes
    _subject: str
    _value: T | None

    def __init__(self, value: T, subject: str | int | UUID) -> None:
        self._kind = PERSONAL
        self._sealed = b""
        self._subject = identifiers.entity_id(subject)
        self._value = value

    @classmethod
    def erased(cls) -> Personal[T]:
        """Return a value as it reads after its subject was erased; tests need one."""
        return _made(ERASED, "", None)

    @property
    def subject(self) -> str:
        """The id of the person; empty once erased, and for a value older than `Personal`."""
        return self._subject

    @property
    def is_erased(self) -> bool:
        """Whether the person was erased: the value is gone for good."""
        return self._kind == ERASED

    @property
    def value(self) -> T | None:
        """The value, or None once it is erased."""
        if self._kind == SEALED:
            raise WrongContext("this personal value was read as it is stored, and is sealed here")
        return self._value

    def or_else(self, default: D) -> T | D:
        """Return the value, or `default` once it is erased."""
        value = self.value
        return default if self._kind == ERASED or value is None else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Personal) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def __repr__(self) -> str:
        return f"<{self._kind} data>" if self._kind != ERASED else "<erased>"

    @property
    def _parts(self) -> tuple[object, ...]:
        return self._kind, self._subject, self._value, self._sealed

    def _token(self) -> Token:
        if self._kind == PERSONAL:
            return personal.plain_token(Plain(self._subject, values.pack(self._value)))
        return ERASED_TOKEN if self._kind == ERASED else Token(self._kind, self._sealed)

    def __sharding_encode__(self) -> object:
        return personal.in_msgpack(self._token())

    def __sharding_store__(self) -> object:
        if self._kind == PERSONAL and not self._subject:
            return self._value  # as it was stored before
        return msgspec.Raw(personal.in_json(self._token()))

    @staticmethod
    def __sharding_decode__(wanted: Any, value: Any) -> Personal[Any]:
        token = personal.token_of(value)
        wanted = (getattr(wanted, "__args__", None) or (Any,))[0]
        if token is None:
            # Stored before the annotation was `Personal`: no key covers it.
            return _made(PERSONAL, "", msgspec.convert(value, wanted, dec_hook=values.dec_hook))
        if token.kind == PERSONAL:
            subject, data = personal.plain_of(token)
            return _made(PERSONAL, subject, _reader(wanted)(data))
        if token.kind == BROKEN:
            raise ValueError(
                "personal data that was sealed for another place, or changed since: it cannot be opened"
            )
        return _made(token.kind, "", None, token.data)


def _made(kind: str, subject: str, value: Any, sealed: bytes = b"") -> Personal[Any]:
    made: Personal[Any] = object.__new__(Personal)
    made._kind, made._subject, made._value, made._sealed = kind, subject, value, sealed
    return made


@functools.lru_cache(maxsize=256)
def _reader(wanted: Any) -> Callable[[Any], Any]:
    return values.unpacker(wanted)


def holds_personal(annotation: Any) -> bool:
    """Tell whether an annotation mentions `Personal`, however deep."""
    return any(part is Personal or get_origin(part) is Personal for part in mentioned(annotation))


def revived(plain: Any) -> Any:
    """Return plain data, such as the fields of an old record, with its personal values."""
    if isinstance(plain, dict):
        return {name: revived(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [revived(value) for value in plain]
    if isinstance(plain, str) and personal.token_of(plain) is not None:
        return Personal.__sharding_decode__(Personal, plain)
    return plain
