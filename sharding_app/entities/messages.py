"""``@message``: the plain messages of ``receive``, a closed set that is found by name.

A message travels as its name and a MessagePack map; a reply as ``[name or None, value]``, so that a
message comes back as itself and plain values as they are. Fields that the other side does not know
are ignored.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

import msgspec

from sharding_app.entities import identifiers
from sharding_app.entities.codecs import values
from sharding_app.entities.codecs.records import Declared, declared_as, record_class
from sharding_app.entities.registry import messages
from sharding_app.errors import DeclarationError, InvalidCall, NotSerializable
from sharding_app.redaction import told_reading

T = TypeVar("T")
_REPLY = values.unpacker(tuple[str | None, msgspec.Raw])
_VALUE = values.unpacker(Any)


class MessageSpec(Declared):
    """The declaration that ``@message`` makes of one class, with its codec."""

    def __init__(self, cls: type, name: str | None, entity_id: str | None) -> None:
        super().__init__(cls)
        self._name = name
        #: The field that carries the entity's id, if one does.
        self.entity_id = entity_id
        self._is_own = False

    @functools.cached_property
    def name(self) -> str:
        """``app_label.ClassName``, or the given name."""
        if self._name is not None:
            return self._name
        local = self.cls.__qualname__.rpartition("<locals>.")[2]
        return f"{identifiers.app_label(self.cls.__module__)}.{local}"

    @functools.cached_property
    def _codec(self) -> tuple[Callable[[Any], Any], bool]:
        cls = self.resolve()
        try:
            return values.unpacker(cls), values.says_any(cls)
        except TypeError as error:
            raise DeclarationError(f"@message {self.cls.__qualname__}: {error}") from error

    def encode(self, message: Any) -> bytes:
        """Encode the message as MessagePack. `NotSerializable` names a field that does not fit."""
        if not self._is_own:
            messages.check_own(self)
            self._is_own = True
        read, open_places = self._codec
        try:
            data = values.pack(message)
        except values.ERRORS as error:
            raise self._refuse(message, read, error) from error
        if open_places:
            again = self.decode(data)
            if again != message and not values.same(message, again):
                raise self._refuse(message, read, None)
        return data

    def decode(self, raw: bytes | memoryview) -> Any:
        """Decode a message, its fields checked against their annotations."""
        try:
            return self._codec[0](raw)
        except values.ERRORS as error:
            raise InvalidCall(f"message {self.name}: {told_reading(error)}") from error

    def _refuse(self, message: Any, read: Callable[[Any], Any], error: Exception | None) -> NotSerializable:
        tail = values.culprit(message, read, values.pack, error)
        return NotSerializable(f"message {self.name}{tail}")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def message(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def message(*, entity_id: str | None = None, name: str | None = None) -> Callable[[type[T]], type[T]]: ...
def message(cls: type[Any] | None = None, /, *, entity_id: str | None = None, name: str | None = None) -> Any:
    """Declare a message class; `entity_id` names the field with the id of its entity."""

    def declare(cls: type[Any]) -> type[Any]:
        if name is not None:
            identifiers.declared_name(name, "a message")
        made = record_class(cls, "message")
        if entity_id is not None and entity_id not in field_names(made):
            raise DeclarationError(
                f"@message(entity_id={entity_id!r}): {made.__qualname__} has no such field"
            )
        spec = MessageSpec(made, name, entity_id)
        spec.remember_scope(cls)
        made.__sharding_message__ = spec
        messages.add(spec)
        _check_name(spec)
        return made

    return declare if cls is None else declare(cls)


def _check_name(spec: MessageSpec) -> None:
    """Refuse a class whose name means another one: it would arrive as that.

    Names that are not known yet are checked by the system check, and when the first message is
    encoded.
    """
    if identifiers.labels_are_known():
        messages.check_own(spec)


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the fields of a record class."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    return tuple(cls.__dataclass_fields__)


def message_spec(cls: object) -> MessageSpec:
    """Return the declaration by ``@message`` of exactly this class, or raise `InvalidCall`."""
    found = declared_as(cls, "__sharding_message__", MessageSpec)
    if found is None:
        name = getattr(cls, "__qualname__", repr(cls))
        raise InvalidCall(f"{name} is not a message: decorate the class with @message")
    return found


def encode_message(message: object) -> tuple[str, bytes]:
    """Return the name of a message and its bytes."""
    spec = message_spec(type(message))
    return spec.name, spec.encode(message)


def decode_message(name: str, raw: bytes | memoryview) -> Any:
    """Decode the message of that name; `InvalidCall`: the name is not declared."""
    return messages.get(name).decode(raw)


def message_entity_id(message: object) -> str | None:
    """Return the id that a message carries itself; None: its class names no field for it."""
    spec = message_spec(type(message))
    return None if spec.entity_id is None else identifiers.entity_id(getattr(message, spec.entity_id))


def encode_reply(value: object) -> bytes:
    """Encode the result of ``receive``: a message, or plain values that arrive as they are."""
    spec = declared_as(type(value), "__sharding_message__", MessageSpec)
    if spec is not None:
        return values.pack((spec.name, msgspec.Raw(spec.encode(value))))
    try:
        data = values.pack(value)
        again = _VALUE(data)
    except values.ERRORS as error:
        raise NotSerializable(f"a reply cannot be sent: {values.reason(error)}") from error
    if again != value and not values.same(value, again):
        raise NotSerializable(
            f"a reply of {value!r} would arrive as {again!r}: put it into a field of a @message"
        )
    return values.pack((None, msgspec.Raw(data)))


def decode_reply(raw: bytes | memoryview) -> Any:
    """Decode a reply of `encode_reply`."""
    name, value = _REPLY(raw)
    return _VALUE(value) if name is None else decode_message(name, value)
