"""Annotations resolve late and in their own scope: the whole file defers them."""

from __future__ import annotations

import datetime as dt
import gc
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from sharding_app import DeclarationError, Entity, EventSourced, InvalidCall, applies, command, event, query
from sharding_app.entities.entity_type import EntityType
from sharding_app.testing.local import LocalHost

T = TypeVar("T")
B = TypeVar("B", bound=int)
pytestmark = pytest.mark.asyncio


def type_of(cls: type[Entity]) -> EntityType:
    assert cls._sharding_type is not None
    return cls._sharding_type


class Board(EventSourced):
    """Everything nested, and named before it exists."""

    moves: list[Board.Moved]

    @command
    def move(self, to: Board.Place) -> Moved:
        happened = self.Moved(to)
        self.persist(happened)
        return happened

    @event
    class Moved:
        to: Place  # type: ignore[name-defined] # noqa: F821 (nested, and later)

    @dataclass
    class Place:
        x: int
        y: int

    def __init__(self) -> None:
        self.moves = []

    @applies(Moved)
    def on_moved(self, happened: Board.Moved) -> None:
        self.moves.append(happened)


async def test_events_nested_in_the_class() -> None:
    host = LocalHost(Board)
    moved = await host.run("move", Board.Place(1, 2))
    assert moved == Board.Moved(Board.Place(1, 2))
    assert host.state() == b'{"moves":[{"to":{"x":1,"y":2}}]}'
    assert LocalHost(Board, events=host.events).entity.moves == [moved]


async def test_everything_inside_a_function_and_later_names() -> None:
    @event
    class Added:
        what: Thing
        parts: list[Part]

    @dataclass
    class Part:
        size: int

    class Store(EventSourced):
        things: dict[str, Thing]
        shared: ClassVar[Thing]

        def __init__(self) -> None:
            self.things = {}

        @command
        def add(self, thing: Thing, *, part: Part | None = None) -> Thing:
            self.persist(Added(thing, [part] if part else []))
            return self.things["last"]

        @applies(Added)
        def on_added(self, happened: Added) -> None:
            self.things["last"] = happened.what

    @dataclass
    class Thing:
        name: str

    host = LocalHost(Store)
    assert await host.run("add", Thing("a"), part=Part(3)) == Thing("a")
    assert host.journal == [("Added", 1, b'{"what":{"name":"a"},"parts":[{"size":3}]}')]
    assert LocalHost(Store, events=host.events).entity.things == {"last": Thing("a")}
    with pytest.raises(InvalidCall, match="argument 'thing'"):
        await host.run("add", "no thing")


async def test_a_scope_is_let_go_once_it_is_resolved() -> None:
    class Big: ...

    def declare() -> tuple[type[Entity], weakref.ref[Big]]:
        ballast = Big()

        @event
        class Happened:
            at: int

        class Local(EventSourced):
            count: int = 0

            @command
            def go(self, at: int) -> int:
                self.persist(Happened(at))
                return at

            @applies(Happened)
            def on(self, happened: Happened) -> None:
                self.count += 1

        return Local, weakref.ref(ballast)

    cls, ballast = declare()
    type_of(cls).compile()
    gc.collect()
    assert ballast() is None
    assert await LocalHost(cls).run("go", 3) == 3


class Box(EventSourced, Generic[T]):
    value: T

    @command
    def put(self, value: T, more: list[T] | None = None) -> list[T]:
        return [value, *(more or [])]

    @query
    def bounded(self, value: B) -> B:
        return value


class IntBox(Box[int]): ...


class Pair(Box[dict[str, T]], Generic[T]): ...


class DayPair(Pair[dt.date]): ...


async def test_generics_mean_what_the_concrete_class_says() -> None:
    assert await LocalHost(IntBox).run("put", 1, [2]) == [1, 2]
    with pytest.raises(InvalidCall, match="argument 'value': Expected `int`, got `str`"):
        await LocalHost(IntBox).run("put", "a")
    day = {"x": dt.date(2026, 1, 2)}
    assert await LocalHost(DayPair).run("put", day) == [day]
    with pytest.raises(InvalidCall, match="argument 'value' at \\[\\.\\.\\.\\]"):
        await LocalHost(DayPair).run("put", {"x": 5})


async def test_an_open_type_variable_takes_anything_its_bound_allows() -> None:
    assert await LocalHost(Box).run("put", "a", [1]) == ["a", 1]
    with pytest.raises(InvalidCall, match="Expected `int`"):
        await LocalHost(Box).run("bounded", "a")


async def test_a_name_that_an_attribute_shadows() -> None:
    class Day(Entity):
        date: dt.date | None = None

        @query
        def list(self) -> int:
            return 1

        @command
        def set(self, dates: frozenset[dt.date]) -> int:
            return len(dates)

    assert await LocalHost(Day).run("set", frozenset({dt.date(2026, 1, 1)})) == 1
    assert type_of(Day).state_types == {"date": dt.date | None}


async def test_an_annotation_that_means_nothing_is_told() -> None:
    class Lost(Entity):
        @command
        def go(self, to: Nowhere) -> None:  # type: ignore[name-defined] # noqa: F821
            ...

    with pytest.raises(DeclarationError, match=r"Lost.go: an annotation cannot be resolved: name 'Nowhere'"):
        await LocalHost(Lost).run("go", 1)


async def test_unannotated_handlers_take_plain_values() -> None:
    def echo(self: Any, value):  # type: ignore[no-untyped-def]
        return value

    Plain: Any = type("Plain", (Entity,), {"echo": command(echo)})  # noqa: N806
    value = {"a": [1, 2.5, None, True, b"x"]}
    assert await LocalHost(Plain).run("echo", value) == value
