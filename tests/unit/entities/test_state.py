"""State as JSON: the annotated attributes, or what the class's own snapshot says."""

import asyncio
import datetime as dt
from typing import Any, ClassVar

import pytest

from sharding_app import (
    DeclarationError,
    DurableState,
    Entity,
    EventSourced,
    NotSerializable,
    Ref,
    UnreadableState,
)
from sharding_app.entities.entity_type import EntityType
from tests.unit.entities.cart import Cart


def type_of(cls: type[Entity]) -> EntityType:
    assert cls._sharding_type is not None
    return cls._sharding_type


class Desk(Entity, name="tests.state.Desk"):
    size: int = 1
    made: dt.date
    notes: dict[str, list[float]]
    cart: Ref[Cart] | None = None
    anything: Any = None
    shared: ClassVar[int] = 5

    def __init__(self) -> None:
        self.notes = {}
        self.transient = asyncio.Lock()


def desk(**changes: Any) -> Any:
    obj = type_of(Desk).new("1")
    for name, value in changes.items():
        setattr(obj, name, value)
    return obj


def test_annotated_attributes_are_the_state_and_others_are_not() -> None:
    obj = desk(size=2, made=dt.date(2026, 1, 2), notes={"a": [1.5]}, extra=object())
    data = type_of(Desk).dump_state(obj)
    assert data == b'{"size":2,"made":"2026-01-02","notes":{"a":[1.5]},"cart":null,"anything":null}'

    again = type_of(Desk).new("1")
    type_of(Desk).load_state(again, data)
    assert (again.size, again.made, again.notes) == (2, dt.date(2026, 1, 2), {"a": [1.5]})
    assert isinstance(again.transient, asyncio.Lock)


def test_what_was_never_set_is_left_out() -> None:
    data = type_of(Desk).dump_state(desk())
    assert b"made" not in data
    again = type_of(Desk).new("1")
    type_of(Desk).load_state(again, data)
    assert not hasattr(again, "made")


def test_a_state_of_older_or_newer_code_is_read() -> None:
    obj = type_of(Desk).new("1")
    type_of(Desk).load_state(obj, b'{"size":3,"gone":[1]}')
    assert (obj.size, obj.notes) == (3, {})


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"size":"3"}'])
def test_a_state_that_cannot_be_read_says_so(data: bytes) -> None:
    with pytest.raises(UnreadableState, match="Desk: its state cannot be read"):
        type_of(Desk).load_state(desk(), data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"notes": {"a": [float("nan")]}}, "Expected `float`, got `null`"),
        ({"size": "3"}, "Expected `int`, got `str`"),
        ({"anything": (1,)}, "field 'anything' would be read back as"),
        ({"anything": asyncio.Lock}, "field 'anything' cannot be stored: a type cannot be stored"),
        ({"anything": "a\0"}, "field 'anything' cannot be stored: it contains NUL"),
        ({"notes": {"\ud800": []}}, "field 'notes' cannot be stored: it contains a lone surrogate"),
    ],
)
def test_a_state_that_cannot_be_stored_names_the_attribute(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotSerializable, match=message) as caught:
        type_of(Desk).dump_state(desk(**changes))
    assert "as ClassVar" in str(caught.value)


def test_refs_in_state() -> None:
    cart: Any = Cart.ref("alice")
    data = type_of(Desk).dump_state(desk(cart=cart))
    again = type_of(Desk).new("1")
    type_of(Desk).load_state(again, data)
    assert again.cart == cart


def test_a_class_may_have_its_own_snapshot() -> None:
    class Sum(Entity):
        parts: list[int]

        def __init__(self) -> None:
            self.parts = []

        def snapshot(self) -> dict[str, int]:
            return {"sum": sum(self.parts)}

        def restore(self, state: dict[str, int]) -> None:
            self.parts = [state["sum"]]

    kind = type_of(Sum)
    obj = kind.new("1")
    obj.parts += [1, 2]
    assert kind.dump_state(obj) == b'{"sum":3}'
    again = kind.new("1")
    kind.load_state(again, b'{"sum":3}')
    assert again.parts == [3]
    with pytest.raises(UnreadableState, match="Sum: its snapshot cannot be read: KeyError: 'sum'"):
        kind.load_state(again, b"{}")
    with pytest.raises(UnreadableState, match="got `str`"):
        kind.load_state(again, b'{"sum":"3"}')


def test_an_unannotated_snapshot_is_still_exact() -> None:
    def snapshot(self: Any):  # type: ignore[no-untyped-def]
        return self.value

    def restore(self: Any, state: Any) -> None:
        self.value = state

    kind = type_of(type("Own", (Entity,), {"snapshot": snapshot, "restore": restore}))
    obj = kind.new("1")
    obj.value = {"a": [1]}
    assert kind.dump_state(obj) == b'{"a":[1]}'
    obj.value = (1, 2)
    with pytest.raises(NotSerializable, match=r"would be read back as \[1, 2\], not \(1, 2\)"):
        kind.dump_state(obj)


def test_state_is_inherited() -> None:
    class Child(Desk):
        more: str = "x"

    assert type_of(Child).state_names == ("size", "made", "notes", "cart", "anything", "more")


def test_a_snapshot_of_another_version_is_not_taken_for_one_of_this() -> None:
    class Tally(EventSourced, name="tests.state.Tally"):
        count: int = 0

    class Newer(Tally, name="tests.state.Newer"):
        snapshot_version = 2

    first, second = type_of(Tally), type_of(Newer)
    old, new = first.dump_state(first.new("1")), second.dump_state(second.new("1"))
    assert (old, new) == (b'{"count":0}', b'{"count":0,"?version":2}')
    second.load_state(second.new("1"), new)
    with pytest.raises(UnreadableState, match="is of version 1, and this code reads version 2"):
        second.load_state(second.new("1"), old)
    with pytest.raises(UnreadableState, match="is of version 2, and this code reads version 1"):
        first.load_state(first.new("1"), new)


def test_a_snapshot_version_that_could_do_nothing_is_refused() -> None:
    with pytest.raises(DeclarationError, match="must be an int of at least 1, not '2'"):
        type("Text", (EventSourced,), {"snapshot_version": "2"})
    with pytest.raises(DeclarationError, match="only an EventSourced entity can skip a snapshot"):
        type("Kept", (DurableState,), {"snapshot_version": 2})
    own = {"snapshot_version": 2, "snapshot": lambda self: 1, "restore": lambda self, state: None}
    with pytest.raises(DeclarationError, match=r"has its own snapshot\(\): let it return a version"):
        type("Own", (EventSourced,), own)
