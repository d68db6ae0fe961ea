"""``@on_start``: methods that run when an instance of an entity has recovered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from sharding_app.errors import DeclarationError

ON_START = "__sharding_on_start__"
M = TypeVar("M", bound=Callable[[Any], object])


def on_start(method: M) -> M:
    """Run a method, ``def`` or ``async def``, before the first message of each new instance.

    It can set up what is not stored, such as a connection or a cache. It stages nothing.
    """
    given: object = method
    what = f"@on_start {getattr(given, '__qualname__', given)!s}"
    if not isinstance(given, FunctionType):
        raise DeclarationError(f"{what} decorates a method, not {given!r}")
    code = given.__code__
    if code.co_argcount - len(given.__defaults__ or ()) != 1 or code.co_kwonlyargcount:
        raise DeclarationError(f"{what} must take self only")
    if inspect.isgeneratorfunction(given) or inspect.isasyncgenfunction(given):
        raise DeclarationError(f"{what} must not yield")
    setattr(given, ON_START, True)
    return method


def start_methods(cls: type, users: list[type]) -> tuple[Callable[[Any], Any], ...]:
    """Return the methods of a class that run at a start, those of bases first.

    A method counts by its name: one that a subclass overrides without the decorator does not run.
    """
    names: dict[str, None] = {}
    for base in reversed(users):
        for name, value in vars(base).items():
            if getattr(value, ON_START, False):
                names[name] = None
    methods = [getattr(cls, name) for name in names]
    return tuple(method for method in methods if getattr(method, ON_START, False))
