"""Events in the journal: readable, exact, and still readable when the code has moved on."""

import dataclasses
import datetime as dt
import enum
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app import DeclarationError, EventSourced, NotSerializable, Ref, UnreadableEvent, applies, event
from sharding_app.entities.event_codec import EventCodec
from sharding_app.entities.events import upcasts
from tests.unit.entities.cart import Cart, ItemAdded


class Colour(enum.IntEnum):
    RED = 1


@dataclass(eq=False)
class Line:
    sku: str
    price: Decimal


@event
class Rich:
    when: dt.datetime
    key: uuid.UUID
    colour: Colour
    lines: list[Line]
    ratio: float | None = None
    tags: frozenset[str] = frozenset()
    anything: Any = None
    counts: dict[int, str] = field(default_factory=dict)
    MAX: ClassVar[int] = 5

    def total(self) -> Decimal:
        return sum((line.price for line in self.lines), Decimal(0))


class Shop(EventSourced):
    seen: list[object]

    def __init__(self) -> None:
        self.seen = []

    @applies(Rich, ItemAdded)
    def on(self, happened: Rich | ItemAdded) -> None:
        self.seen.append(happened)


def codec(cls: type[EventSourced]) -> EventCodec:
    assert cls._sharding_type is not None
    return cls._sharding_type.event_codec


def rich(**changes: Any) -> Rich:
    fields = {
        "when": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
        "key": uuid.UUID(int=7),
        "colour": Colour.RED,
        "lines": [Line("a", Decimal("1.10"))],
    }
    return Rich(**{**fields, **changes})


def test_an_event_is_a_frozen_value() -> None:
    happened = ItemAdded("book", quantity=2)

    assert happened == ItemAdded("book", 2) != ItemAdded("book", 3)
    assert repr(happened) == "ItemAdded(sku='book', quantity=2)"
    assert hash(happened) == hash(ItemAdded("book", 2))
    with pytest.raises(AttributeError):
        happened.sku = "x"  # type: ignore[misc]
    with pytest.raises(TypeError, match="quantity"):
        ItemAdded("book")  # type: ignore[call-arg]
    match happened:
        case ItemAdded(sku, quantity):
            assert (sku, quantity) == ("book", 2)
        case _:
            pytest.fail("it does not match by position")


def test_records_are_readable_json() -> None:
    assert codec(Cart).encode(ItemAdded("book", 2)) == ("ItemAdded", 1, b'{"sku":"book","quantity":2}')
    name, version, data = codec(Shop).encode(rich(ratio=0.5, tags=frozenset({"x"})))
    assert (name, version) == ("Rich", 1)
    assert msgspec.json.decode(data) == {
        "when": "2026-01-02T03:04:05.000006Z",
        "key": "00000000-0000-0000-0000-000000000007",
        "colour": 1,
        "lines": [{"sku": "a", "price": "1.10"}],
        "ratio": 0.5,
        "tags": ["x"],
        "anything": None,
        "counts": {},
    }


def test_rich_events_come_back_as_they_were() -> None:
    happened = rich(counts={3: "x"}, anything={"a": [1, 2.5, None]})
    again = codec(Shop).decode(*codec(Shop).encode(happened))

    assert (again.when, again.key, again.colour, again.counts) == (
        happened.when,
        happened.key,
        happened.colour,
        {3: "x"},
    )
    assert again.total() == Decimal("1.10")
    assert type(again.colour) is Colour


def test_an_hour_that_happens_twice_is_stored() -> None:
    twice = dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    again = codec(Shop).decode(*codec(Shop).encode(rich(when=twice)))
    assert again.when.astimezone(dt.UTC) == twice.astimezone(dt.UTC)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ratio": float("nan")}, "field 'ratio' cannot be stored: nan is not a finite number"),
        ({"ratio": float("inf")}, "field 'ratio' cannot be stored: inf is not a finite number"),
        (
            {"anything": [1, float("nan")]},
            r"field 'anything' would be read back as \[1, None\], not \[1, nan\]",
        ),
        ({"anything": (1, 2)}, r"field 'anything' would be read back as \[1, 2\]"),
        ({"anything": uuid.UUID(int=1)}, "field 'anything' would be read back as"),
        ({"anything": object()}, "field 'anything' cannot be stored: a object cannot be stored"),
        ({"tags": frozenset({"\ud800"})}, "field 'tags' cannot be stored: it contains a lone surrogate"),
        ({"tags": frozenset({"a\0b"})}, "field 'tags' cannot be stored: it contains NUL"),
        ({"lines": [Line("a\0", Decimal(1))]}, "field 'lines' cannot be stored: it contains NUL"),
        ({"key": "x"}, "Invalid UUID"),
        ({"colour": 7}, "Invalid enum value 7"),
        ({"lines": None}, "Expected `array`, got `null`"),
        ({"when": "yesterday"}, "Invalid RFC3339"),
    ],
)
def test_what_recovery_could_not_read_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NotSerializable, match=f"^Shop: event Rich.*{message}"):
        codec(Shop).encode(rich(**changes))


def test_text_that_only_looks_like_nul_is_stored() -> None:
    happened = ItemAdded("a\\u0000b", 1)
    assert codec(Cart).decode(*codec(Cart).encode(happened)) == happened


def test_huge_ints_are_stored_exactly() -> None:
    happened = ItemAdded("x", 2**200)
    assert codec(Cart).decode(*codec(Cart).encode(happened)) == happened


@given(st.text(), st.integers(), st.floats(), st.floats() | st.none() | st.text() | st.lists(st.floats()))
def test_stored_means_read_back_as_equal(sku: str, number: int, ratio: float, anything: Any) -> None:
    for kind, happened in ((Cart, ItemAdded(sku, number)), (Shop, rich(ratio=ratio, anything=anything))):
        try:
            name, version, data = codec(kind).encode(happened)
        except NotSerializable:
            continue
        again = codec(kind).decode(name, version, data)
        assert [getattr(again, f) for f in again.__struct_fields__ if f != "lines"] == [
            getattr(happened, f) for f in again.__struct_fields__ if f != "lines"
        ]


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    assert codec(Cart).decode("ItemAdded", 1, b'{"sku":"a","quantity":1,"more":[]}') == ItemAdded("a", 1)
    name, version, data = codec(Shop).encode(rich())
    fields = msgspec.json.decode(data)
    del fields["counts"]
    assert codec(Shop).decode(name, version, msgspec.json.encode(fields)).counts == {}


@pytest.mark.parametrize(
    ("name", "version", "data", "message"),
    [
        ("Gone", 1, b"{}", r"has an unknown event 'Gone' \(known: ItemAdded\)"),
        ("ItemAdded", 2, b"{}", "of version 2, this code knows up to 1: it was written by newer code"),
        (
            "ItemAdded",
            0,
            b"{}",
            r"of version 0, the current one is 1: add @upcasts\(ItemAdded, from_version=0\)",
        ),
        ("ItemAdded", 1, b'{"sku":1}', "'ItemAdded' of version 1 cannot be read"),
        ("ItemAdded", 1, b"{", "'ItemAdded' of version 1 cannot be read"),
    ],
)
def test_what_cannot_be_read_says_so(name: str, version: int, data: bytes, message: str) -> None:
    with pytest.raises(UnreadableEvent, match=message) as caught:
        codec(Cart).decode(name, version, data)
    assert caught.value.params == {"event": name, "version": version}


def test_ignored_events_read_as_nothing() -> None:
    class Forgetful(Cart):
        ignore_events = ("Gone", "ItemAdded")

    kind = Forgetful._sharding_type
    assert kind is not None
    obj = kind.new("1")
    data = b'{"sku":"a","quantity":2}'
    kind.replay(obj, [(1, "Gone", 3, b"{}"), (2, "ItemAdded", 9, b"{}"), (3, "ItemAdded", 1, data)])
    assert obj.items == {"a": 2}


def test_old_versions_go_through_their_upcasters() -> None:
    @event(name="Added", version=3)
    class Added:
        sku: str
        price: Decimal
        on: dt.date

    @upcasts(Added, from_version=1)
    def named(fields: dict[str, Any]) -> dict[str, Any]:
        return {"sku": fields["name"], "cents": fields["cents"]}

    @upcasts(Added, from_version=2)
    def priced(fields: dict[str, Any]) -> dict[str, Any]:
        return {"sku": fields["sku"], "price": Decimal(fields["cents"]) / 100, "on": dt.date(2026, 1, 1)}

    class Old(EventSourced):
        @applies(Added)
        def on(self, happened: Added) -> None: ...

    expected = Added("a", Decimal("1.5"), dt.date(2026, 1, 1))
    assert codec(Old).decode("Added", 1, b'{"name":"a","cents":150}') == expected
    assert codec(Old).decode("Added", 2, b'{"sku":"a","cents":150}') == expected
    with pytest.raises(UnreadableEvent, match="cannot be read: 'name'"):
        codec(Old).decode("Added", 1, b"{}")
    with pytest.raises(DeclarationError, match=r"two upcasters for .*Added from version 1"):
        upcasts(Added, from_version=1)(lambda fields: fields)
    with pytest.raises(DeclarationError, match="from_version must be 1 to 2"):
        upcasts(Added, from_version=3)
    with pytest.raises(DeclarationError, match="not an @event class"):
        upcasts(dt.date, from_version=1)


def test_a_missing_upcaster_is_named() -> None:
    @event(version=3)
    class Added:
        sku: str

    upcasts(Added, from_version=1)(lambda fields: fields)

    class Old(EventSourced):
        @applies(Added)
        def on(self, happened: Added) -> None: ...

    with pytest.raises(UnreadableEvent, match=r"add @upcasts\(.*Added, from_version=2\)"):
        codec(Old).decode("Added", 1, b'{"sku":"a"}')


def test_a_field_that_old_records_lack_comes_with_advice() -> None:
    @event(name="Moved", version=2)
    class Moved:
        to: str
        at: int

    class Old(EventSourced):
        @applies(Moved)
        def on(self, happened: Moved) -> None: ...

    said = r"field `at`\. Give the field a default, or declare version=3 and add @upcasts\(.*Moved, from_version=2\)$"
    with pytest.raises(UnreadableEvent, match=said):
        codec(Old).decode("Moved", 2, b'{"to":"a"}')
    with pytest.raises(UnreadableEvent, match=r"Expected `int`, got `str` - at `\$\.at`$"):
        codec(Old).decode("Moved", 2, b'{"to":"a","at":"b"}')


def test_replay_names_the_event_that_fails() -> None:
    class Fragile(EventSourced):
        @applies(ItemAdded)
        def on(self, happened: ItemAdded) -> None:
            if happened.quantity > 2:
                raise RuntimeError("too many")

    kind = Fragile._sharding_type
    assert kind is not None
    records = [(n, *codec(Fragile).encode(ItemAdded("a", n))) for n in (1, 2, 3)]
    with pytest.raises(
        UnreadableEvent, match=r"event 3: .*'ItemAdded' of version 1 raised RuntimeError: too many"
    ) as caught:
        kind.replay(kind.new("1"), records)
    assert caught.value.params["number"] == 3


def test_records_that_already_are_one_stay_what_they_are() -> None:
    @event
    @dataclasses.dataclass(frozen=True)
    class AsDataclass:
        a: int

    @event
    class AsStruct(msgspec.Struct, frozen=True):
        a: int

    class Kind(EventSourced):
        @applies(AsDataclass, AsStruct)
        def on(self, happened: object) -> None: ...

    for happened in (AsDataclass(1), AsStruct(1)):
        assert codec(Kind).decode(*codec(Kind).encode(happened)) == happened
    assert dataclasses.is_dataclass(AsDataclass)


def test_events_inherit_methods_and_fields() -> None:
    class Loud:
        def shout(self) -> str:
            return f"{self}!"

    @event
    class Base:
        a: int

        def size(self) -> int:
            return self.a

        def double(self) -> int:
            return self.a * 2

    @event
    class Child(Base, Loud):
        b: int = 3
        more: list[int] = field(default_factory=list)

        def double(self) -> int:
            return super().double() + self.b

        @property
        def triple(self) -> int:
            return super().double() + self.a

    child = Child(2)
    assert (child.a, child.b, child.more, child.double(), child.triple) == (2, 3, [], 7, 6)
    assert child.size() == 2
    assert child.shout() == "Child(a=2, b=3, more=[])!"


def test_field_order_and_options_are_checked() -> None:
    with pytest.raises(DeclarationError, match="Required field 'b' cannot follow optional fields"):

        @event
        class Bad:
            a: int = 1
            b: str  # type: ignore[misc]

    with pytest.raises(DeclarationError, match="without init=False"):

        @event
        class Worse:
            a: int = field(init=False, default=1)


def test_refs_in_events() -> None:
    @event
    class Sent:
        to: Ref[Cart]

    class Post(EventSourced):
        @applies(Sent)
        def on(self, happened: Sent) -> None: ...

    happened = Sent(Cart.ref("alice"))
    record = codec(Post).encode(happened)
    assert record == ("Sent", 1, b'{"to":["tests.Cart","alice"]}')
    assert codec(Post).decode(*record) == happened
