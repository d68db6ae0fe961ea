"""Annotations as plain JSON: the same in every process and on every Python.

A scalar is its name (`"int"`), all else a map with its kind under `is`. A record holds its fields;
where it contains itself it is only named.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec
from msgspec import inspect

from sharding_app.entities.codecs.records import make_ready

Shape = Any
"""A text, or a map of texts to shapes: JSON has no better type."""

_RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)


def shape_of(annotation: Any) -> Shape:
    """Return the shape of an annotation whose names are resolved."""
    make_ready(annotation)
    return _shape(inspect.type_info(annotation), ())


@functools.singledispatch
def _shape(info: inspect.Type, outer: tuple[type, ...]) -> Shape:
    """Return a scalar: its name, and its limits if it has any."""
    name = type(info).__name__.removesuffix("Type").lower()
    return _limited(name, info)


@_shape.register
def _(info: inspect.Metadata, outer: tuple[type, ...]) -> Shape:
    return _shape(info.type, outer)


@_shape.register
def _(info: inspect.CollectionType, outer: tuple[type, ...]) -> Shape:
    return _limited("list", info, of=_shape(info.item_type, outer))


@_shape.register
def _(info: inspect.TupleType, outer: tuple[type, ...]) -> Shape:
    return {"is": "tuple", "of": [_shape(each, outer) for each in info.item_types]}


@_shape.register
def _(info: inspect.DictType, outer: tuple[type, ...]) -> Shape:
    return _limited("dict", info, key=_shape(info.key_type, outer), value=_shape(info.value_type, outer))


@_shape.register
def _(info: inspect.UnionType, outer: tuple[type, ...]) -> Shape:
    return {"is": "union", "of": sorted((_shape(each, outer) for each in info.types), key=str)}


@_shape.register
def _(info: inspect.LiteralType, outer: tuple[type, ...]) -> Shape:
    return {"is": "one of", "of": sorted(info.values, key=str)}


@_shape.register
def _(info: inspect.EnumType, outer: tuple[type, ...]) -> Shape:
    return {"is": "one of", "of": sorted((each.value for each in info.cls), key=str)}


@_shape.register
def _(info: inspect.CustomType, outer: tuple[type, ...]) -> Shape:
    return "any" if info.cls is object else {"is": "custom", "name": info.cls.__qualname__}


def _record(info: Any, outer: tuple[type, ...]) -> Shape:
    name = info.cls.__name__
    if info.cls in outer:
        return {"is": "record", "name": name}
    outer = (*outer, info.cls)
    shape: dict[str, Shape] = {"is": "record", "fields": {}}
    for field in info.fields:
        entry: dict[str, Shape] = {"type": _shape(field.type, outer)}
        if not field.required:
            entry["default"] = True
        shape["fields"][field.encode_name] = entry
    if getattr(info, "array_like", False) or isinstance(info, inspect.NamedTupleType):
        shape["is"] = "row"
        shape["fields"] = [{"name": key, **entry} for key, entry in shape["fields"].items()]
    if getattr(info, "forbid_unknown_fields", False):
        shape["closed"] = True
    if getattr(info, "tag", None) is not None:
        shape["tag"] = [info.tag_field, info.tag]
    return shape


for _kind in _RECORDS:
    _shape.register(_kind, _record)


def _limited(name: str, info: inspect.Type, **parts: Shape) -> Shape:
    """Add the limits of `msgspec.Meta`, if there are any."""
    known = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
    limits = {each: getattr(info, each, None) for each in known}
    limits = {each: value for each, value in limits.items() if value is not None}
    return {"is": name, **parts, **limits} if parts or limits else name


def fields_of(record: type[Any] | type[msgspec.Struct]) -> dict[str, Shape]:
    """Return the fields of an event or message class."""
    shape = shape_of(record)
    fields = shape["fields"]
    if isinstance(fields, list):  # it is stored as an array
        return {f"{place}: {each['name']}": each for place, each in enumerate(fields)}
    return dict(fields)
