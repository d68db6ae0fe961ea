"""Tables of a machine's states: which state may follow which.

      HAND_OFF = transitions("hand-off", {Phase.MARKING: [Phase.BEGIN], Phase.BEGIN: ...})

      handoff.phase = HAND_OFF[handoff.phase][Phase.BEGIN]

Contract: a legal transition costs two look-ups in dicts. One look-up of a pair takes twice as long.
Any other raises `IllegalTransition`: the machine has a bug, and goes no further with a state that
its code does not expect. States of hot paths are an `IntEnum`, whose members hash like their
numbers.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NoReturn, TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(Exception):
    """A machine was about to enter a state that cannot follow its present one: a bug."""


class Followers(dict[S, S]):
    """The states that may follow one state, each with itself as value."""

    def __init__(self, of: str, before: S, then: Collection[S]) -> None:
        super().__init__({after: after for after in then})
        self._of = of
        self._before = before

    def __missing__(self, after: S) -> NoReturn:
        raise IllegalTransition(f"a {self._of} that is {self._before.name} cannot become {after.name}")


def transitions(of: str, table: Mapping[S, Collection[S]]) -> dict[S, Followers[S]]:
    """Check a table, and return it for look-ups.

    It has the states that may follow each state, with the initial state first.
    """
    first = next(iter(table))
    for state in type(first):
        if state not in table:
            raise ValueError(f"the table for a {of} lacks {state.name}")
        if state is not first and not any(
            state in then for before, then in table.items() if before is not state
        ):
            raise ValueError(f"a {of} never becomes {state.name}")
    return {before: Followers(of, before, then) for before, then in table.items()}
