"""Whether everything that one shape wrote can be read by another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sharding_app.operations.schema.shapes import Shape

PERSONAL: Shape = {"is": "custom", "name": "Personal"}
_WIDER = {("int", "float"), ("int", "decimal")}
"""Pairs of scalars of which the second reads all that the first wrote."""


def unreadable(old: Shape, new: Shape, where: str = "") -> Iterator[str]:
    """Yield each place of `new` that cannot read what `old` wrote, with the reason."""
    if old == new or new in ("any", "raw"):
        return
    if new == PERSONAL and _kind(old) != "union":
        yield (
            f"{where or 'it'} was {told(old)} and is Personal: values that are stored stay readable, but no key"
            " covers them, so an erasure does not reach them"
        )
        return
    if _kind(old) == "union":
        for each in old["of"]:
            yield from unreadable(each, new, where)
        return
    if _kind(new) == "union":
        if all(any(unreadable(old, each, where)) for each in new["of"]):
            yield f"{where or 'it'} was {told(old)} and is {told(new)}"
        return
    if (old, new) in _WIDER if isinstance(old, str) and isinstance(new, str) else False:
        return
    if _kind(old) != _kind(new):
        yield f"{where or 'it'} was {told(old)} and is {told(new)}"
        return
    yield from _inside(old, new, where)


def _inside(old: Shape, new: Shape, where: str) -> Iterator[str]:
    kind = _kind(old)
    if kind == "record" and "fields" in old and "fields" in new:
        yield from lost_fields(old["fields"], new["fields"], where)
        if new.get("closed") and not old.get("closed"):
            yield f"{where or 'it'} forbids fields that it does not know"
        if old.get("tag") != new.get("tag"):
            yield f"{where or 'it'} has another tag"
    elif kind in ("list", "dict") and not _limits(old, new):
        for part in ("key", "value", "of"):
            if part in old:
                yield from unreadable(old[part], new[part], f"{where or 'it'}[{part}]")
    elif kind == "one of":
        gone = [each for each in old["of"] if each not in new["of"]]
        if gone:
            yield f"{where or 'it'} no longer allows {', '.join(map(repr, gone))}"
    elif old != new:
        yield f"{where or 'it'} was {told(old)} and is {told(new)}"


def lost_fields(old: dict[str, Any], new: dict[str, Any], where: str = "") -> Iterator[str]:
    """Yield each field of `new` that cannot be read from records with the fields of `old`."""
    prefix = f"{where}." if where else ""
    for name, entry in new.items():
        before = old.get(name)
        if before is not None:
            yield from unreadable(before["type"], entry["type"], f"{prefix}{name}")
        if not entry.get("default") and (before is None or before.get("default")):
            state = "is new and has" if before is None else "has lost"
            yield (
                f"{prefix}{name} {state} no default"
                if before is None
                else f"{prefix}{name} {state} its default"
            )


def told(shape: Shape) -> str:
    """Return a shape as a developer would write it."""
    if isinstance(shape, str):
        return shape
    kind = shape["is"]
    if kind == "custom":
        return str(shape["name"])
    if kind == "union":
        return " | ".join(told(each) for each in shape["of"])
    if kind == "list":
        return f"list[{told(shape['of'])}]"
    if kind == "dict":
        return f"dict[{told(shape['key'])}, {told(shape['value'])}]"
    if kind == "one of":
        return f"one of {', '.join(map(repr, shape['of']))}"
    limits = ", ".join(
        f"{key}={value!r}" for key, value in shape.items() if key not in ("is", "fields", "of")
    )
    return f"{kind} ({limits})" if limits else str(kind)


def _kind(shape: Shape) -> str:
    return shape if isinstance(shape, str) else str(shape["is"])


def _limits(old: Shape, new: Shape) -> bool:
    """Tell whether the limits of two collections differ."""
    parts = ("is", "of", "key", "value")
    return {k: v for k, v in old.items() if k not in parts} != {
        k: v for k, v in new.items() if k not in parts
    }
