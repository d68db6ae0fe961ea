"""Decides whether errors, logs and traces contain the texts of users' exceptions and values.

"No account 4111-1111" is a user's text: it may be secret, and errors reach callers, logs and web
responses. So errors contain class names, fields and places, but no such texts, unless
`SHARDING["QUOTE_ERRORS"]` allows them (default: with DEBUG and in tests). A `Rejected` is meant for
its caller and is sent in full.

The policy is process-global, set once by `decide`, because codecs that create errors have no
settings. Until then nothing is quoted.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

_PLACE = re.compile(r" - at `[^`]*`$")
_QUOTED = re.compile(r"^(Invalid (?:enum )?value|Object contains unknown field) (?:'.*'|`.*?`)", re.DOTALL)
_MOST_CAUSES = 10


class Undisclosed(Exception):
    """Stands for an exception whose text is not repeated, with its traceback."""


def _never() -> bool:
    return False


_decided: Callable[[], bool] = _never


def decide(whether: Callable[[], bool]) -> None:
    """Set the policy: `whether` is called each time."""
    global _decided
    _decided = whether


@contextmanager
def always() -> Iterator[None]:
    """Quote within the block, whatever the policy."""
    global _decided
    before, _decided = _decided, lambda: True
    try:
        yield
    finally:
        _decided = before


def may_quote() -> bool:
    return _decided()


def shown(value: object) -> str:
    """Return the text of a value for an error: the value, or its type."""
    return repr(value) if may_quote() else type(value).__qualname__


def told(error: BaseException) -> str:
    """Return the text of an exception for errors, logs and spans; our own errors quote no
    values.
    """
    name = type(error).__qualname__
    return f"{name}: {text}" if _is_open(error) and (text := _text(error)) else name


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  (a user's exception may raise when it is shown)
        return ""


def told_reading(error: BaseException) -> str:
    """Return why bytes cannot be read: types and places, without the values that decoders quote."""
    text = _text(error)
    if _is_open(error):
        return text
    place = _PLACE.search(text)
    where = place.group() if place else ""
    if not isinstance(error, msgspec.MsgspecError):
        return type(error).__qualname__
    if error.__cause__ is not None:
        # A user's own check of a value failed, and msgspec passes its text on.
        return f"{type(error.__cause__).__qualname__}{where}"
    return _QUOTED.sub(r"\1", text.removesuffix(where)) + where


def traceable(error: BaseException, _depth: int = 0) -> BaseException:
    """Return an exception for a log: itself, or its class and traceback, and those of its
    causes.
    """
    if may_quote():
        return error
    hidden = "" if _is_open(error) else " (SHARDING['QUOTE_ERRORS'] shows its text)"
    made = Undisclosed(told(error) + hidden).with_traceback(error.__traceback__)
    if _depth < _MOST_CAUSES:
        cause, context = error.__cause__, error.__context__
        made.__cause__ = None if cause is None else traceable(cause, _depth + 1)
        made.__context__ = None if context is None else traceable(context, _depth + 1)
    made.__suppress_context__ = error.__suppress_context__
    return made


def _is_open(error: BaseException) -> bool:
    # By its class: an attribute of the exception may be looked up by a `__getattr__` that raises.
    return may_quote() or bool(getattr(type(error), "speaks_for_itself", False))
