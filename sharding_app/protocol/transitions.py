"""Tables of a machine's states: which state may follow which.

      HAND_OFF = Transitions("hand-off", {Phase.MARKING: [Phase.BEGIN], Phase.BEGIN: ...})

      handoff.phase = HAND_OFF[handoff.phase, Phase.BEGIN]

Contract: a legal transition costs one look-up in a dict. Any other raises `IllegalTransition`: the
machine has a bug, and goes no further with a state that its code does not expect. States of hot
paths are an `IntEnum`, whose members hash like their numbers.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NoReturn, TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(Exception):
    """A machine was about to enter a state that cannot follow its present one: a bug."""


class Transitions(dict[tuple[S, S], S]):
    """The legal pairs of a state and the next one, each with the next one as value."""

    def __init__(self, of: str, table: Mapping[S, Collection[S]]) -> None:
        """Check the table: the states that may follow each state, with the initial state first."""
        super().__init__({(before, after): after for before, then in table.items() for after in then})
        self._of = of
        first = next(iter(table))
        for state in type(first):
            if state not in table:
                raise ValueError(f"the table for a {of} lacks {state.name}")
            if state is not first and not any(
                after is state and before is not state for before, after in self
            ):
                raise ValueError(f"a {of} never becomes {state.name}")

    def __missing__(self, pair: tuple[S, S]) -> NoReturn:
        before, after = pair
        raise IllegalTransition(f"a {self._of} that is {before.name} cannot become {after.name}")
