"""Plain classes made into records: the common part of ``@event`` and ``@message``."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from sharding_app.entities.codecs.annotations import Scope, is_classvar, raw_annotations, resolved, type_names
from sharding_app.errors import DeclarationError

D = TypeVar("D")

# Made again for the new class, or true of the old one only.
_LEFT_OUT = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__conditional_annotations__",
    }
)


class Declared:
    """A record class and the scope of its annotations."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self._source: type | None = None
        self._scope = Scope.nowhere()

    def remember_scope(self, source: type) -> None:
        """Keep the names needed to resolve the annotations of `source` later; called while it is
        made.
        """
        self._source = source
        self._scope = Scope.around(source.__qualname__, [source])

    def resolve(self) -> type:
        """Return the class, with types for annotations, so that a codec can be made for it."""
        source = self._source
        if source is not None:
            what = self.cls.__qualname__
            names = {**type_names(vars(source)), **self._scope.names(), source.__name__: self.cls}
            found = resolved(source, source.__module__, names, what)
            written = raw_annotations(self.cls)
            self.cls.__annotations__ = {name: found.get(name, value) for name, value in written.items()}
            self._source = None
            self._scope = Scope.nowhere()
        return self.cls


def make_ready(wanted: Any) -> None:
    """Resolve every record class that `wanted` mentions, so that a codec can be made for it."""
    for _ in mentioned(wanted):
        pass


def mentioned(wanted: Any) -> Iterator[Any]:
    """Yield an annotation and all that it mentions, with the fields of record classes, which are
    resolved on the way.
    """
    seen: set[int] = set()
    waiting: list[Any] = [wanted]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting += get_args(part)
        if not isinstance(part, type):
            continue
        for base in part.__mro__[:-1]:
            found = [value for value in vars(base).values() if isinstance(value, Declared)]
            for declared in found:
                declared.resolve()
            if found:
                waiting += vars(base).get("__annotations__", {}).values()


def declared_as(cls: object, attribute: str, kind: type[D]) -> D | None:
    """Return the declaration that `cls` itself carries; one of a base does not count."""
    found = vars(cls).get(attribute) if isinstance(cls, type) else None
    return found if isinstance(found, kind) else None


def record_class(cls: type[Any], word: str) -> type[Any]:
    """Make `cls` a frozen Struct, unless it is a record already."""
    if not isinstance(cls, type):
        raise DeclarationError(f"@{word} decorates a class, not {cls!r}")
    defaults = _own_defaults(cls)
    if issubclass(cls, msgspec.Struct) and not any(
        isinstance(default, dataclasses.Field) for default in defaults.values()
    ):
        return cls  # a Struct, or derived from a record
    if "__dataclass_fields__" in vars(cls) or "__attrs_attrs__" in vars(cls):
        return cls
    if "__init__" in vars(cls):
        raise DeclarationError(f"@{word} {cls.__qualname__} has an __init__: annotate its fields instead")
    space = {name: value for name, value in vars(cls).items() if name not in _LEFT_OUT}
    space.update(defaults)
    annotations = raw_annotations(cls)
    for name, annotation in annotations.items():
        if not is_classvar(annotation) and isinstance(space.get(name), dataclasses.Field):
            space[name] = _field(space[name], f"@{word} {cls.__qualname__}.{name}")
    space["__annotations__"] = annotations
    slots = space.pop("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if isinstance(space.get(name), types.MemberDescriptorType):
            del space[name]
    bases = tuple(base for base in cls.__bases__ if base is not object)
    if not any(issubclass(get_origin(base) or base, msgspec.Struct) for base in bases):
        bases = (msgspec.Struct, *bases)
    try:
        struct_meta: Any = type(msgspec.Struct)
        made: type[Any] = struct_meta(cls.__name__, bases, space, frozen=True)
    except TypeError as error:
        raise DeclarationError(f"@{word} {cls.__qualname__}: {error}") from error
    for cell in _class_cells(made, cls):
        cell.cell_contents = made
    return made


def _own_defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the defaults of a class that its base has already made a Struct."""
    if not issubclass(cls, msgspec.Struct):
        return {}
    given = cls.__struct_defaults__
    fields = cls.__struct_fields__[-len(given) :] if given else ()
    own = raw_annotations(cls)
    return {
        name: msgspec.field(default_factory=value.factory) if hasattr(value, "factory") else value
        for name, value in zip(fields, given, strict=True)
        if name in own and value is not msgspec.NODEFAULT
    }


def _field(given: dataclasses.Field[Any], what: str) -> Any:
    if not given.init:
        raise DeclarationError(f"{what}: every field must be an argument of __init__, without init=False")
    if given.default is not dataclasses.MISSING:
        return msgspec.field(default=given.default)
    if given.default_factory is not dataclasses.MISSING:
        return msgspec.field(default_factory=given.default_factory)
    return msgspec.field()


def _class_cells(made: type, former: type) -> Iterator[types.CellType]:
    """Find the ``__class__`` cells of methods, which ``super()`` reads: they still name the former
    class.
    """
    for value in vars(made).values():
        for candidate in (
            value,
            getattr(value, "__func__", None),
            getattr(value, "fget", None),
        ):
            for cell in getattr(candidate, "__closure__", None) or ():
                try:
                    if cell.cell_contents is former:
                        yield cell
                except ValueError:
                    continue
