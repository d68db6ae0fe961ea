"""JSON for people: indented, keys in their order, numbers as they were written (1.10, or thirty digits)."""

import json
from collections.abc import Iterator
from typing import Any

MAX_SHOWN = 100_000
"""More of a value than this many characters is cut off."""


class _Word(str):
    """A number or a constant, verbatim."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """An object's pairs, repeated keys too."""


def parse(text: str) -> Any:
    """Read JSON without changing anything in it. Raises ValueError or RecursionError."""
    return json.loads(
        text, parse_float=_Word, parse_int=_Word, parse_constant=_Word, object_pairs_hook=_Object
    )


def pretty(text: str) -> str:
    """Return the text indented; what is no JSON is returned as it is."""
    try:
        shown = "".join(_parts(parse(text), "\n"))
    except (ValueError, RecursionError):
        shown = text
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]} …"


def fields(text: str) -> list[tuple[str, str]]:
    """The members of an object as (name, JSON) pairs; anything else is one pair without a name."""
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        return [("", text[:MAX_SHOWN])]
    if not isinstance(value, _Object):
        return [("", pretty(text))]
    return [(name, _cut("".join(_parts(part, "\n")))) for name, part in value]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} …"


def _parts(value: Any, line: str) -> Iterator[str]:
    if isinstance(value, _Word):
        yield str(value)
    elif isinstance(value, _Object) and value:
        yield "{"
        for number, (name, part) in enumerate(value):
            yield f"{',' if number else ''}{line}  {json.dumps(name, ensure_ascii=False)}: "
            yield from _parts(part, f"{line}  ")
        yield f"{line}}}"
    elif isinstance(value, _Object):
        yield "{}"
    elif isinstance(value, list) and value:
        yield "["
        for number, part in enumerate(value):
            yield f"{',' if number else ''}{line}  "
            yield from _parts(part, f"{line}  ")
        yield f"{line}]"
    else:
        yield json.dumps(value, ensure_ascii=False)
