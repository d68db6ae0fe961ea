"""How many command ids are kept in memory, and what is known by them."""

from collections.abc import Callable
from typing import Any

import pytest

from sharding_app import InvalidCall
from sharding_app.protocol.shard import Shard
from sharding_app.runtime.execution.known_ids import KnownIds
from sharding_app.runtime.journal.commits import Resident
from tests.unit.runtime.one_of_each import Cart


def slot_of(name: str, seq: int) -> Resident:
    slot = Resident(name, Shard("t", 0, 1, Resident))
    slot.seq = seq
    return slot


def test_only_so_many_are_kept_of_one_entity_and_of_all() -> None:
    now = [0.0]
    known = KnownIds(lambda: now[0], of_one=3, of_all=5)
    first, second = slot_of("first", 0), slot_of("second", 0)
    for slot in (first, second):
        known.loaded(slot)
    for number in range(4):
        now[0] = float(number)
        known.note(first, f"c{number}")
    assert known.is_fresh(first, "other", 2.9)
    assert not known.is_fresh(first, "other", 3.1), "the first one was given up: it may be any"
    assert not known.is_fresh(first, "c2", 0.0)
    now[0] = 10.0
    for number in range(3):
        known.note(second, f"c{number}")
    assert known.count == 3
    assert first.ids is None
    assert not known.is_fresh(first, "c3", 1.0)
    assert known.is_fresh(second, "other", 1e9)


def test_of_an_entity_with_a_history_nothing_before_its_load_is_known() -> None:
    now = [100.0]
    known = KnownIds(lambda: now[0])
    slot = slot_of("a", 7)
    assert not known.is_fresh(slot, "x", 0.0)
    known.loaded(slot)
    assert not known.is_fresh(slot, "x", 1.0)
    now[0] = 110.0
    assert known.is_fresh(slot, "x", 9.0)
    slot.seq = 0
    known.loaded(slot)
    assert not known.is_fresh(slot, "x", 11.0), "a rebuilt object changes nothing of that"


@pytest.mark.parametrize(
    "made", [lambda: Cart.ref("a", command_id="?mine"), lambda: Cart.ref("a", command_id="?")]
)
def test_ids_of_our_own_are_no_callers(made: Callable[[], Any]) -> None:
    with pytest.raises(InvalidCall, match="must not begin with"):
        made()
