"""Arguments and results: bound as Python binds them, checked as annotated, never changed in
silence.
"""

import datetime as dt
import enum
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st

from sharding_app import DeclarationError, Entity, InvalidCall, NotSerializable, Ref, command, query
from sharding_app.entities.entity_type import EntityType, Handler
from tests.unit.entities.cart import Cart


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.5


class Size(msgspec.Struct):
    width: int


class Desk(Entity):
    @command
    def many(self, a: int, /, b: str, c: float = 1.5, *, d: bool = False, e: bytes | None = None) -> None: ...

    @command
    def needs_keyword(self, *, size: int) -> int:
        return size

    @command
    def rich(
        self,
        when: dt.datetime,
        day: dt.date,
        price: Decimal,
        key: uuid.UUID,
        colour: Colour,
        point: Point,
        size: Size,
        nested: dict[str, list[tuple[int, str]]],
        unique: frozenset[int],
        span: dt.timedelta,
    ) -> None: ...

    @command
    def anything(self, value: Any) -> Any:
        return value

    @command
    def limited(self, size: Annotated[int, msgspec.Meta(ge=1)]) -> str:
        return str(size)

    @command
    def text(self, value: str) -> str:
        return value

    @command
    def number(self, value: int) -> int:
        return value

    @command
    def real(self, value: float) -> float:
        return value

    @command
    def other(self, cart: Ref[Cart]) -> Ref[Cart]:
        return cart

    @command
    def points(self) -> list[Point]:
        return []

    @query
    def seen(self) -> list[Point]:
        return []


def handler(name: str) -> Handler:
    kind = Desk._sharding_type
    assert isinstance(kind, EntityType)
    return kind.commands[name]


def there(name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    found = handler(name)
    return found.decode(found.encode(args, kwargs))


@pytest.mark.parametrize(
    ("args", "kwargs", "arrived"),
    [
        ((1, "b"), {}, (1, "b", 1.5, False, None)),
        ((1, "b", 2.5), {}, (1, "b", 2.5, False, None)),
        ((1,), {"b": "b", "e": b"e"}, (1, "b", 1.5, False, b"e")),
        ((1,), {"b": "b", "c": 2.0, "d": True, "e": None}, (1, "b", 2.0, True, None)),
    ],
)
def test_arguments_are_bound_as_python_binds_them(
    args: tuple[Any, ...], kwargs: dict[str, Any], arrived: tuple[Any, ...]
) -> None:
    assert there("many", *args, **kwargs) == arrived


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing a required argument: 'a'|missing a required positional-only argument: 'a'"),
        ((1,), {}, "missing a required argument: 'b'"),
        ((1, "b", 2.0, True), {}, "too many positional arguments"),
        ((1, "b"), {"f": 1}, "unexpected keyword argument 'f'"),
        ((1, "b"), {"b": "c"}, "multiple values for argument 'b'"),
        ((), {"a": 1, "b": "b"}, "positional"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidCall, match=message) as caught:
        handler("many").encode(args, kwargs)
    assert "tests.Desk.many(a, /, b, c=1.5, *, d=False, e=None)" in str(caught.value)


def test_keyword_only_arguments() -> None:
    found = handler("needs_keyword")
    args = found.decode(found.encode((), {"size": 3}))
    assert found.function(Desk._sharding_type.new("1"), *args) == 3  # type: ignore[union-attr]
    with pytest.raises(InvalidCall, match="too many positional"):
        found.encode((3,), {})


def test_rich_types_arrive_as_they_are() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    given = (
        dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=zone),
        dt.date(2026, 1, 2),
        Decimal("1.10"),
        uuid.UUID(int=7),
        Colour.RED,
        Point(1),
        Size(2),
        {"a": [(1, "x")]},
        frozenset({1, 2}),
        dt.timedelta(days=1, microseconds=5),
    )
    assert there("rich", *given) == given


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("text", 5, "argument 'value': Expected `str`, got `int`"),
        ("number", "5", "argument 'value': Expected `int`, got `str`"),
        ("number", 1.5, "argument 'value': Expected `int`, got `float`"),
        ("number", True, "argument 'value': Expected `int`, got `bool`"),
        ("limited", 0, "argument 'size': Expected `int` >= 1"),
        ("other", "a", "argument 'cart'"),
    ],
)
def test_arguments_are_checked_against_annotations(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidCall, match=f"^tests.Desk.{name}: {message}"):
        there(name, value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("text", "\ud800", "a lone surrogate"),
        ("anything", {"a": "\ud800"}, "a lone surrogate"),
        ("number", 2**64, "an int outside"),
        ("anything", object(), "a object cannot be stored or sent"),
        ("anything", (1, 2), r"would arrive as \[1, 2\], not \(1, 2\): annotate it"),
        ("anything", uuid.UUID(int=1), "annotate it with its type"),
        ("anything", Decimal(1), "annotate it with its type"),
        ("anything", {1, 2}, "annotate it with its type"),
        ("anything", Point(1), "annotate it with its type"),
    ],
)
def test_what_cannot_be_sent_exactly_is_refused_at_the_caller(name: str, value: Any, message: str) -> None:
    with pytest.raises(NotSerializable, match=f"^tests.Desk.{name}: argument 'value' .*{message}"):
        handler(name).encode((value,), {})


def test_a_float_is_no_decimal() -> None:
    class Till(Entity, name="tests.arguments.Till"):
        @command
        def pay(self, amount: Decimal, tip: Decimal | None = None, share: float | Decimal = 1.0) -> None: ...

    encode = Till._sharding_type.commands["pay"].encode  # type: ignore[union-attr]
    for args, kwargs in (((0.5,), {}), ((Decimal(1), 0.5), {}), ((Decimal(1),), {"tip": 0.5})):
        with pytest.raises(
            InvalidCall, match=r"Till.pay: argument '(amount|tip)' is a Decimal, and got the float"
        ):
            encode(args, kwargs)
    decode = Till._sharding_type.commands["pay"].decode  # type: ignore[union-attr]
    assert decode(encode((Decimal("10.50"), None, 0.5), {}))[:2] == (Decimal("10.50"), None)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(NotSerializable, match="nested too deeply"):
        handler("anything").encode((loop,), {})


@pytest.mark.parametrize("value", ["\0", "", "a\nb", "\U0001f600", "é" * 300])
def test_any_other_text_is_sent_exactly(value: str) -> None:
    assert there("text", value) == (value,)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), -0.0, 5e-324])
def test_numbers_are_sent_exactly(value: float) -> None:
    assert repr(there("real", value)) == repr((value,))


def test_nan_is_sent_as_nan() -> None:
    (value,) = there("real", float("nan"))
    assert value != value
    (value,) = there("anything", float("nan"))
    assert value != value


def test_lazy_and_safe_text_becomes_text_at_the_caller() -> None:
    assert there("text", lazystr("hello")) == ("hello",)
    assert type(there("text", mark_safe("hello"))[0]) is str


def test_a_ref_is_an_argument() -> None:
    cart: Any = Cart.ref("alice")
    (arrived,) = there("other", cart)
    assert arrived == cart
    assert type(arrived) is type(cart)
    with pytest.raises(InvalidCall, match=r"expected a ref of Cart, not of 'tests.Desk'"):
        there("other", Desk.ref("1"))


def test_a_parameter_may_be_added_while_old_callers_run() -> None:
    found = handler("many")
    assert found.decode(msgspec.msgpack.encode([1, "b"])) == (1, "b", 1.5, False, None)
    with pytest.raises(InvalidCall, match="argument 'b' is missing"):
        found.decode(msgspec.msgpack.encode([1]))
    with pytest.raises(InvalidCall, match="takes 5 arguments here, but got 6"):
        found.decode(msgspec.msgpack.encode([1, "b", 1.5, False, None, 6]))


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x80", b"\x92\x01", b"\x05", b"\xdc\xff\xff"])
def test_malformed_arguments_are_a_bad_call(raw: bytes) -> None:
    with pytest.raises(InvalidCall, match=r"^tests\.Desk\.text"):
        handler("text").decode(raw)


@given(st.binary(max_size=40))
def test_no_bytes_from_the_wire_raise_anything_else(raw: bytes) -> None:
    found = handler("rich")
    with pytest.raises(InvalidCall):
        found.decode(raw)
    assert found.decode(memoryview(found.encode(_RICH, {}))) == _RICH


_RICH: tuple[Any, ...] = (
    dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    dt.date(2026, 1, 1),
    Decimal(1),
    uuid.UUID(int=1),
    Colour.RED,
    Point(1, 1.0),
    Size(1),
    {},
    frozenset({1}),
    dt.timedelta(1),
)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


@given(plain)
def test_plain_values_come_and_go_exactly(value: Any) -> None:
    assert there("anything", value) == (value,)
    found = handler("anything")
    assert found.decode_result(found.encode_result(value)) == value


def test_results_are_checked_before_the_commit() -> None:
    with pytest.raises(
        NotSerializable, match=r"tests.Desk.number returned 'x', which its annotation does not allow"
    ):
        handler("number").encode_result("x")
    with pytest.raises(NotSerializable, match="its annotation does not allow"):
        handler("points").encode_result(["x"])
    with pytest.raises(NotSerializable, match=r"would arrive as \[1\]: annotate its result"):
        handler("anything").encode_result((1,))
    with pytest.raises(NotSerializable, match="a object cannot be stored or sent"):
        handler("anything").encode_result(object())
    found = handler("points")
    assert found.decode_result(found.encode_result([Point(1)])) == [Point(1)]


def test_an_annotation_that_cannot_be_sent_is_told() -> None:
    class Bad(Entity):
        @command
        def go(self, value: Point | Size) -> None: ...

    with pytest.raises(DeclarationError, match=r"tests.Bad.go: an argument cannot be sent"):
        Bad._sharding_type.compile()  # type: ignore[union-attr]


def test_equal_calls_have_one_digest_however_they_are_written() -> None:
    class Before(Entity):
        @command
        def tag(self, names: set[str], weights: dict[str, float], size: int = 1) -> None: ...

    class After(Entity):
        @command
        def tag(
            self, names: set[str], weights: dict[str, float], size: int = 1, note: str | None = None
        ) -> None: ...

    assert Before._sharding_type is not None
    assert After._sharding_type is not None
    before, after = Before._sharding_type.commands["tag"], After._sharding_type.commands["tag"]
    names = [f"name {number}" for number in range(40)]
    backwards: set[str] = set()
    for name in reversed(names):
        backwards.add(name)

    def digest(handler: Handler, *args: Any, **kwargs: Any) -> str:
        return handler.digest(handler.encode(args, kwargs))

    plain = digest(before, set(names), {"a": 1.0, "b": 2.0})
    assert digest(before, backwards, {"b": 2.0, "a": 1.0}, size=1) == plain
    assert digest(after, set(names), {"a": 1, "b": 2}) == plain, "a parameter with a default was added"
    assert digest(before, set(names), {"a": 1.0, "b": 2.0}, 2) != plain
    assert digest(before, set(names[1:]), {"a": 1.0, "b": 2.0}) != plain
