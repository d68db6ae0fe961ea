"""``@message``: the plain messages of ``receive``, a closed set that is found by name.

A message travels as its name and a MessagePack map; a reply as ``[name or None, value]``, so that a message
comes back as itself and plain values as they are. Fields that the other side does not know are ignored.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

import msgspec

from sharding_app.errors import BadCall, DeclarationError, NotStorable
from sharding_app.model import encoding, naming
from sharding_app.model.records import Declared, declared_as, record_class
from sharding_app.model.registry import messages
from sharding_app.quoting import told_reading

T = TypeVar("T")
_REPLY = encoding.unpacker(tuple[str | None, msgspec.Raw])
_VALUE = encoding.unpacker(Any)


class MessageSpec(Declared):
    """What ``@message`` says about one class, with its codec."""

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
        return f"{naming.app_label(self.cls.__module__)}.{local}"

    @functools.cached_property
    def _codec(self) -> tuple[Callable[[Any], Any], bool]:
        cls = self.resolve()
        try:
            return encoding.unpacker(cls), encoding.says_any(cls)
        except TypeError as error:
            raise DeclarationError(f"@message {self.cls.__qualname__}: {error}") from error

    def encode(self, message: Any) -> bytes:
        """The message as MessagePack; `NotStorable` names the field that does not fit."""
        if not self._is_own:
            messages.check_own(self)
            self._is_own = True
        read, open_places = self._codec
        try:
            data = encoding.pack(message)
        except encoding.ERRORS as error:
            raise self._refuse(message, read, error) from error
        if open_places:
            again = self.decode(data)
            if again != message and not encoding.same(message, again):
                raise self._refuse(message, read, None)
        return data

    def decode(self, raw: bytes | memoryview) -> Any:
        """The message, its fields checked against their annotations."""
        try:
            return self._codec[0](raw)
        except encoding.ERRORS as error:
            raise BadCall(f"message {self.name}: {told_reading(error)}") from error

    def _refuse(self, message: Any, read: Callable[[Any], Any], error: Exception | None) -> NotStorable:
        tail = encoding.culprit(message, read, encoding.pack, error)
        return NotStorable(f"message {self.name}{tail}")


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def message(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def message(*, entity_id: str | None = None, name: str | None = None) -> Callable[[type[T]], type[T]]: ...
def message(cls: type[Any] | None = None, /, *, entity_id: str | None = None, name: str | None = None) -> Any:
    """Declare a message; `entity_id` names the field that says which entity it is for."""

    def declare(cls: type[Any]) -> type[Any]:
        if name is not None:
            naming.declared_name(name, "a message")
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
    """Refuse a class whose name means another one: it would arrive as that. Names that are not known yet are looked at by the
    system check, and when the first message is encoded."""
    if naming.labels_are_known():
        messages.check_own(spec)


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a record class."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    return tuple(cls.__dataclass_fields__)


def message_spec(cls: object) -> MessageSpec:
    """What ``@message`` said about exactly this class, or `BadCall`."""
    found = declared_as(cls, "__sharding_message__", MessageSpec)
    if found is None:
        name = getattr(cls, "__qualname__", repr(cls))
        raise BadCall(f"{name} is not a message: decorate the class with @message")
    return found


def encode_message(message: object) -> tuple[str, bytes]:
    """The name of a message and its bytes."""
    spec = message_spec(type(message))
    return spec.name, spec.encode(message)


def decode_message(name: str, raw: bytes | memoryview) -> Any:
    """The message of that name; `BadCall` for a name that is not declared."""
    return messages.get(name).decode(raw)


def message_entity_id(message: object) -> str | None:
    """The id that a message carries itself; None when its class names no field for it."""
    spec = message_spec(type(message))
    return None if spec.entity_id is None else naming.entity_id(getattr(message, spec.entity_id))


def encode_reply(value: object) -> bytes:
    """What ``receive`` returned: a message, or plain values that arrive as they are."""
    spec = declared_as(type(value), "__sharding_message__", MessageSpec)
    if spec is not None:
        return encoding.pack((spec.name, msgspec.Raw(spec.encode(value))))
    try:
        data = encoding.pack(value)
        again = _VALUE(data)
    except encoding.ERRORS as error:
        raise NotStorable(f"a reply cannot be sent: {encoding.reason(error)}") from error
    if again != value and not encoding.same(value, again):
        raise NotStorable(
            f"a reply of {value!r} would arrive as {again!r}: put it into a field of a @message"
        )
    return encoding.pack((None, msgspec.Raw(data)))


def decode_reply(raw: bytes | memoryview) -> Any:
    """The counterpart of `encode_reply`."""
    name, value = _REPLY(raw)
    return _VALUE(value) if name is None else decode_message(name, value)
