"""JSON for people: indented, keys in their order, numbers as they were written (1.10, or thirty
digits).
"""

import json
from collections.abc import Iterator
from typing import Any

MAX_SHOWN = 100_000
"""More of a value than this many characters is cut off."""
MAX_READ = 2_000_000
"""Longer JSON is cut as it is: taken apart and indented, it would need many times its memory."""


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
    if len(text) > MAX_READ:
        return f"{text[:MAX_SHOWN]} …"
    try:
        return _joined(parse(text))
    except (ValueError, RecursionError):
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} …"


def fields(text: str) -> list[tuple[str, str]]:
    """The members of an object as (name, JSON) pairs; anything else is one pair without a name."""
    if len(text) > MAX_READ:
        return [("", f"{text[:MAX_SHOWN]} …")]
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        return [("", text[:MAX_SHOWN])]
    if not isinstance(value, _Object):
        return [("", pretty(text))]
    return [(name, _joined(part)) for name, part in value]


def _joined(value: Any) -> str:
    """Indent a value; no further than it is shown."""
    parts: list[str] = []
    length = 0
    for part in _parts(value, "\n"):
        parts.append(part)
        length += len(part)
        if length > MAX_SHOWN:
            return f"{''.join(parts)[:MAX_SHOWN]} …"
    return "".join(parts)


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
