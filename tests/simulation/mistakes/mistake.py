"""The type of planted mistakes, and the plainest replacements for a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Mistake(NamedTuple):
    """A guard that is left out or turned around. `promises`: one of them should be found broken."""

    promises: tuple[int, ...]
    where: Any
    name: str
    make: Callable[[Any], Any]
    "Given the real attribute, returns its replacement."
    direct: bool = False
    "It takes direct connections to find it."


def nothing(*args: object, **kwargs: object) -> None:
    return None


def yes(*args: object, **kwargs: object) -> bool:
    return True


def no(*args: object, **kwargs: object) -> bool:
    return False


async def async_nothing(*args: object) -> None:
    return None
