"""What a planted mistake is, and the plainest that can be put in the place of a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Mistake(NamedTuple):
    """Something that is left out or turned around. `promises`: those of which one should be found broken."""

    promises: tuple[int, ...]
    where: Any
    name: str
    make: Callable[[Any], Any]
    "Given what stands there, returns what takes its place."


def nothing(*args: object, **kwargs: object) -> None:
    return None


def yes(*args: object, **kwargs: object) -> bool:
    return True


def no(*args: object, **kwargs: object) -> bool:
    return False


async def async_nothing(*args: object) -> None:
    return None
