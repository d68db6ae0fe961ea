"""A machine's table of transitions: a look-up for a legal one, an error for any other."""

from enum import IntEnum

import pytest

from sharding_app.protocol.transitions import IllegalTransition, transitions


class Door(IntEnum):
    OPEN = 1
    SHUT = 2
    BRICKED_UP = 3


DOOR = transitions(
    "door", {Door.OPEN: [Door.SHUT], Door.SHUT: [Door.OPEN, Door.BRICKED_UP], Door.BRICKED_UP: []}
)


def test_a_legal_transition_gives_the_next_state() -> None:
    assert DOOR[Door.OPEN][Door.SHUT] is Door.SHUT
    assert DOOR[Door.SHUT][Door.BRICKED_UP] is Door.BRICKED_UP


@pytest.mark.parametrize(
    ("before", "after"),
    [(Door.OPEN, Door.BRICKED_UP), (Door.OPEN, Door.OPEN), (Door.BRICKED_UP, Door.OPEN)],
)
def test_an_illegal_transition_raises_and_names_both_states(before: Door, after: Door) -> None:
    with pytest.raises(IllegalTransition, match=f"a door that is {before.name} cannot become {after.name}"):
        DOOR[before][after]
    assert after not in DOOR[before], "the refusal is not remembered"


def test_each_state_has_to_stand_in_the_table() -> None:
    with pytest.raises(ValueError, match="the table for a door lacks BRICKED_UP"):
        transitions("door", {Door.OPEN: [Door.SHUT], Door.SHUT: [Door.OPEN]})


def test_each_state_but_the_first_has_to_follow_another_one() -> None:
    with pytest.raises(ValueError, match="a door never becomes BRICKED_UP"):
        transitions("door", {Door.OPEN: [Door.SHUT], Door.SHUT: [], Door.BRICKED_UP: [Door.BRICKED_UP]})
