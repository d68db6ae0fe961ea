"""The type of planted mistakes, and the plainest replacements for a guard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

STAND_INS = ("sharding_app.adapters.memory.", "sharding_app.testing.simulation.")


class Mistake(NamedTuple):
    """A guard that is left out or turned around. `promises`: one of them should be found broken."""

    promises: tuple[int, ...]
    where: Any
    name: str
    make: Callable[[Any], Any]
    "Given the real attribute, returns its replacement."
    direct: bool = False
    "It takes direct connections to find it."

    @property
    def changes_a_stand_in(self) -> bool:
        """Whether it changes a stand-in of PostgreSQL or of a process in the simulation. Such a
        mistake shows that the judge sees mistakes of a server. It is none of the engine's.
        """
        module: str = getattr(self.where, "__module__", "") or self.where.__name__
        return module.startswith(STAND_INS)


def nothing(*args: object, **kwargs: object) -> None:
    return None


def yes(*args: object, **kwargs: object) -> bool:
    return True


def no(*args: object, **kwargs: object) -> bool:
    return False


async def async_nothing(*args: object) -> None:
    return None
