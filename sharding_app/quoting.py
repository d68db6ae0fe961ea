"""Whether errors, logs and traces may repeat what users' exceptions and values say.

"No account 4111-1111" is the user's text: it may hold a secret, and an error travels to the asker, into a log, into a web
response. So it is left out, and class names, fields and places are told; unless `SHARDING["QUOTE_ERRORS"]` says
otherwise, which it does with DEBUG and in tests. A `Rejected` is meant for its asker and reaches him as it is.

Values are not passed in here as elsewhere: whoever makes an error, deep in a codec say, has nothing but the value. So the one
who wires the process says it once, with `decide`; until then nothing is quoted.
"""

import re
from collections.abc import Callable

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
    """Ask that, from now on, each time."""
    global _decided
    _decided = whether


def may_quote() -> bool:
    return _decided()


def shown(value: object) -> str:
    """A value in an error: itself, or its type."""
    return repr(value) if may_quote() else type(value).__qualname__


def told(error: BaseException) -> str:
    """An exception in an error, a log line or a span. Those of ours speak for themselves: they quote nothing."""
    name = type(error).__qualname__
    return f"{name}: {text}" if _is_open(error) and (text := _text(error)) else name


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  (a user's exception may raise when it is shown)
        return ""


def told_reading(error: BaseException) -> str:
    """Why bytes cannot be read. Decoders name types and places; what they quote beside that is left out."""
    text = _text(error)
    if _is_open(error):
        return text
    place = _PLACE.search(text)
    where = place.group() if place else ""
    if not isinstance(error, msgspec.MsgspecError):
        return type(error).__qualname__
    if error.__cause__ is not None:
        # Somebody's own check of a value failed, and msgspec passes its words on.
        return f"{type(error.__cause__).__qualname__}{where}"
    return _QUOTED.sub(r"\1", text.removesuffix(where)) + where


def traceable(error: BaseException, _depth: int = 0) -> BaseException:
    """An exception for a log: itself, or its class, its traceback and those of its causes."""
    if may_quote():
        return error
    hidden = "" if _is_open(error) else " (SHARDING['QUOTE_ERRORS'] tells its text)"
    made = Undisclosed(told(error) + hidden).with_traceback(error.__traceback__)
    if _depth < _MOST_CAUSES:
        cause, context = error.__cause__, error.__context__
        made.__cause__ = None if cause is None else traceable(cause, _depth + 1)
        made.__context__ = None if context is None else traceable(context, _depth + 1)
    made.__suppress_context__ = error.__suppress_context__
    return made


def _is_open(error: BaseException) -> bool:
    return may_quote() or bool(getattr(error, "speaks_for_itself", False))
