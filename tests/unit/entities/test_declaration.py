"""The declarations that a class body may make, and the errors for others."""

import re
import subprocess
import sys
from datetime import timedelta
from typing import Any, ClassVar, cast

import pytest

from sharding_app import (
    DeclarationError,
    DurableState,
    Entity,
    EventSourced,
    InvalidCall,
    ShardingSettings,
    applies,
    command,
    event,
    query,
)
from sharding_app.entities.base import hosted_as
from sharding_app.entities.registry import registry
from tests.support.slack import SLACK
from tests.unit.entities.cart import Cart, ItemAdded


def type_of(cls: type[Entity]) -> Any:
    return cls._sharding_type


def test_the_cart_of_the_design_is_found_by_name() -> None:
    kind = registry.get("tests.Cart")

    assert kind.cls is Cart
    assert kind.kind == "event_sourced"
    assert list(kind.commands) == ["add", "total"]
    assert kind.state_names == ("items",)
    assert (kind.commands["add"].is_query, kind.commands["total"].is_query) == (False, True)


def test_handlers_know_how_they_run() -> None:
    class Box(Entity):
        @command(thread=True)
        def block(self) -> None: ...

        @command
        async def wait(self) -> None: ...

        @query(fenced=True)
        def sure(self) -> None: ...

    handlers = type_of(Box).commands
    assert (handlers["block"].thread, handlers["block"].is_async) == (True, False)
    assert (handlers["wait"].thread, handlers["wait"].is_async) == (False, True)
    assert (handlers["sure"].is_query, handlers["sure"].fenced) == (True, True)


@pytest.mark.parametrize("name", ["ref", "sync", "persist", "entity_id", "settings", "context", "exists"])
def test_reserved_names_are_refused_as_method_and_as_attribute(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"'{name}' is reserved|settings must be ShardingSettings"):
        type("Bad", (Entity,), {name: command(lambda self: None)})
    with pytest.raises(DeclarationError, match=f"'{name}' is reserved"):
        type("Bad", (Entity,), {"__annotations__": {name: str}})


@pytest.mark.parametrize("name", ["receive", "type_name", "entity_type", "_ref_id"])
def test_a_handler_cannot_have_a_name_that_refs_need(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"a command cannot be named '{name}'"):
        type("Bad", (Entity,), {name: command(lambda self: None)})


def test_a_handler_may_be_called_snapshot() -> None:
    class Camera(Entity):
        shots: int = 0

        @query
        def snapshot(self) -> int:
            return self.shots

    assert type_of(Camera).dump_state(type_of(Camera).new("1")) == b'{"shots":0}'


def test_mixins_bring_handlers_and_state() -> None:
    class Counted:
        count: int = 0

        @command
        def bump(self) -> int:
            self.count += 1
            return self.count

    class Box(Counted, Entity): ...

    assert list(type_of(Box).commands) == ["bump"]
    assert type_of(Box).state_names == ("count",)


def test_settings_stand_in_the_body_and_are_inherited() -> None:
    class Base(Entity):
        abstract = True
        settings = ShardingSettings(role="backend", snapshot_every=100)

    class Child(Base): ...

    assert type_of(Child).settings == ShardingSettings(role="backend", snapshot_every=100)


def test_an_abstract_class_is_a_base_and_nothing_else() -> None:
    class Base(EventSourced):
        abstract = True

        @query
        def size(self) -> int:
            return 1

    class Child(Base): ...

    assert [kind.cls for kind in registry.all().values() if issubclass(kind.cls, Base)] == [Child]
    assert list(type_of(Child).commands) == ["size"]
    with pytest.raises(InvalidCall, match="Base is abstract"):
        Base.ref("1")


def test_a_type_is_called_what_it_says() -> None:
    class Basket(Entity, name="market.Basket"): ...

    assert registry.get("market.Basket").cls is Basket
    with pytest.raises(DeclarationError, match="the name of an entity type"):

        class Nameless(Entity, name=""): ...


def test_a_name_of_two_classes_is_recorded_and_the_first_stays() -> None:
    class Other(Entity, name="tests.Cart"): ...

    assert registry.get("tests.Cart").cls is Cart
    (duplicate,) = [found for found in registry.duplicates() if found.name == "tests.Cart"]
    assert duplicate.name == "tests.Cart"
    assert duplicate.kept == "tests.unit.entities.cart.Cart"
    assert duplicate.refused.endswith("Other")
    with pytest.raises(DeclarationError, match=r"Other and .*cart\.Cart have the same name 'tests\.Cart'"):
        Other.ref("1")


def test_a_class_that_is_defined_again_replaces_itself() -> None:
    def again() -> type[Entity]:
        class Local(Entity): ...

        return Local

    first, second = again(), again()
    assert registry.get("tests.Local").cls is second is not first
    assert "tests.Local" not in [found.name for found in registry.duplicates()]


def test_an_unknown_type_is_told_with_a_suggestion() -> None:
    with pytest.raises(InvalidCall, match=re.escape("did you mean 'tests.Cart'?")):
        registry.get("tests.Carts")


def test_a_renamed_type_shares_the_class() -> None:
    first = registry.get("tests.Cart")
    second = first.renamed("Counter", ShardingSettings(role="backend"))

    assert (second.name, second.cls, second.settings.role) == ("Counter", Cart, "backend")
    assert list(second.commands) == list(first.commands)
    assert second.commands["add"].encode(("x",), {}) == first.commands["add"].encode(("x",), {})


def test_a_class_may_be_started_under_another_name() -> None:
    class Clock(Entity):
        settings = ShardingSettings(role="web", snapshot_every=5)

        @query
        def now(self) -> int:
            return 1

    started = hosted_as(Clock, "Clock", ShardingSettings(role="backend"))

    assert registry.get("Clock") is started
    assert "tests.Clock" not in registry.all()
    assert (started.settings.role, started.settings.snapshot_every) == ("backend", 5)
    ref: Any = Clock.ref("1")
    assert ref.type_name == "Clock"
    assert hosted_as(Clock, "Clock") is started

    other = hosted_as(Clock, "Clock2")
    assert (registry.get("Clock2"), registry.get("Clock")) == (other, started)
    assert Clock._sharding_type is started


def test_inherited_and_overridden_handlers() -> None:
    class BigCart(Cart):
        limit: int = 3

        @command
        def clear(self) -> None: ...

        @query
        def total(self) -> int:
            return super().total() * 10

    kind = type_of(BigCart)
    assert list(kind.commands) == ["add", "total", "clear"]
    assert kind.state_names == ("items", "limit")
    obj = kind.new("1")
    kind.apply(obj, ItemAdded("book", 2))
    assert kind.commands["total"].function(obj) == 20


def test_an_override_without_a_decorator_is_refused() -> None:
    with pytest.raises(DeclarationError, match="total overrides a query: decorate it with @query"):

        class Bad(Cart):
            def total(self) -> int:
                return 1


def test_an_overridden_applier_counts_by_its_name() -> None:
    class Loud(Cart):
        def on_item_added(self, happened: ItemAdded) -> None:
            self.items["seen"] = 1

    obj = type_of(Loud).new("1")
    type_of(Loud).apply(obj, ItemAdded("book", 2))
    assert obj.items == {"seen": 1}


def test_two_appliers_of_one_event_are_refused() -> None:
    with pytest.raises(DeclarationError, match="applies ItemAdded twice: in first and second"):

        class Bad(EventSourced):
            @applies(ItemAdded)
            def first(self, happened: ItemAdded) -> None: ...

            @applies(ItemAdded)
            def second(self, happened: ItemAdded) -> None: ...


def test_one_applier_for_several_events_and_their_subclasses() -> None:
    @event
    class Moved:
        by: int

    @event(name="MovedFar")
    class Far(Moved):
        why: str

    class Ship(EventSourced):
        log: list[str]

        def __init__(self) -> None:
            self.log = []

        @applies(Moved, ItemAdded)
        def note(self, happened: Moved | ItemAdded) -> None:
            self.log.append(type(happened).__name__)

    kind = type_of(Ship)
    obj = kind.new("1")
    kind.apply(obj, Far(3, "wind"))
    kind.apply(obj, ItemAdded("x", 1))
    assert obj.log == ["Far", "ItemAdded"]
    # Another process may read it before it has ever written one.
    assert kind.renamed("again").event_codec.decode("MovedFar", 1, b'{"by":3,"why":"wind"}') == Far(3, "wind")


def selfish(self: object) -> None: ...


BAD_BODIES: list[tuple[str, type[Entity], dict[str, Any]]] = [
    ("__init__ is called without arguments", Entity, {"__init__": lambda self, size: None}),
    ("all entities would share this dict", Entity, {"__annotations__": {"items": dict}, "items": {}}),
    ("both snapshot\\(\\) and restore", Entity, {"snapshot": lambda self: 1}),
    ("use EventSourced as its base", Entity, {"on": applies(ItemAdded)(lambda self, event: None)}),
    ("must take self and the event only", EventSourced, {"on": applies(ItemAdded)(cast(Any, selfish))}),
    ("ignore_events must be a tuple of event names", EventSourced, {"ignore_events": "Old"}),
    ("settings must be ShardingSettings", Entity, {"settings": {"role": "x"}}),
]


@pytest.mark.parametrize(("message", "base", "body"), BAD_BODIES, ids=[row[0] for row in BAD_BODIES])
def test_a_bad_body_is_refused_when_the_class_is_made(
    message: str, base: type[Entity], body: dict[str, Any]
) -> None:
    with pytest.raises(DeclarationError, match=message):
        type("Bad", (base,), body)


def test_an_async_applier_is_refused() -> None:
    async def later(self: object, happened: object) -> None: ...

    with pytest.raises(DeclarationError, match="use a plain def"):
        type("Bad", (EventSourced,), {"later": applies(ItemAdded)(cast(Any, later))})


def test_a_class_is_event_sourced_or_durable_state() -> None:
    with pytest.raises(DeclarationError, match="not both"):
        type("Bad", (EventSourced, DurableState), {})


def variadic(self: object, *args: int) -> None: ...
def keywords(self: object, **kwargs: int) -> None: ...
def selfless() -> None: ...
async def awaiting(self: object) -> None: ...
def yielding(self: object) -> Any:
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (variadic, {}, "takes \\*args or \\*\\*kwargs"),
        (keywords, {}, "takes \\*args or \\*\\*kwargs"),
        (selfless, {}, "has no self"),
        (yielding, {}, "must not yield: return a list"),
        (awaiting, {"thread": True}, "runs in a thread: use a plain def"),
        (int, {}, "decorates a method"),
        (staticmethod(selfless), {}, "not a method of the class|has no self"),
        (5, {}, "decorates a method, not 5"),
    ],
)
def test_a_bad_handler_is_refused_when_it_is_decorated(
    function: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        command(**options)(function) if options else command(function)


def test_events_that_are_declared_wrongly() -> None:
    class Plain: ...

    with pytest.raises(DeclarationError, match="decorate that class with @event"):
        applies(Plain)
    with pytest.raises(DeclarationError, match="needs one or more event classes"):
        applies()  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match="version must be an int of at least 1"):
        event(version=0)
    with pytest.raises(DeclarationError, match="has an __init__"):
        event(type("Bad", (), {"__init__": lambda self, x: None}))
    with pytest.raises(DeclarationError, match="decorates a class"):
        event(5)  # type: ignore[call-overload]


def test_two_events_of_one_name_in_one_entity_are_refused() -> None:
    @event(name="ItemAdded")
    class Added: ...

    with pytest.raises(DeclarationError, match="two events named 'ItemAdded'"):

        class Bad(EventSourced):
            @applies(ItemAdded, Added)
            def on(self, happened: object) -> None: ...


def test_class_variables_are_no_state() -> None:
    class Box(Entity):
        shared: ClassVar[list[int]] = []
        size: int = 0

    assert type_of(Box).state_names == ("size",)


def test_new_sets_the_id_before_init_runs() -> None:
    class Box(Entity):
        def __init__(self) -> None:
            self.seen = self.entity_id

    assert type_of(Box).new("a").seen == "a"


def test_settings_suggest_the_right_keyword() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'snapshot_every'"):
        ShardingSettings(snapshots_every=3)  # type: ignore[call-arg]
    with pytest.raises(DeclarationError, match="known: role, number_of_shards"):
        ShardingSettings(xyzzy=3)  # type: ignore[call-arg]
    with pytest.raises(DeclarationError, match="keywords only"):
        ShardingSettings("backend")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "wrong",
    [
        {"number_of_shards": 0},
        {"number_of_shards": True},
        {"snapshot_every": -1},
        {"keep_snapshots": 0},
        {"delete_events": 1},
        {"passivate_after_seconds": -1},
        {"passivate_after_seconds": 10**400},
        {"passivate_after_seconds": timedelta(seconds=5)},
        {"active_entity_limit": 2**63},
        {"ask_timeout_seconds": 0},
        {"ask_timeout_seconds": float("inf")},
        {"snapshot_when": 5},
        {"role": ""},
        {"role": 5},
    ],
)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=f"ShardingSettings: {next(iter(wrong))} must be"):
        ShardingSettings(**wrong)


def test_settings_complete_each_other() -> None:
    base = ShardingSettings(role="web", number_of_shards=100, pipelined=True)

    both = ShardingSettings(role="backend", pipelined=False).over(base)

    assert (both.role, both.number_of_shards, both.pipelined) == ("backend", 100, False)


def test_public_names_need_no_django() -> None:
    code = "import sys, sharding_app; sharding_app.EventSourced; sys.exit('django' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60 * SLACK)
    assert (done.returncode, done.stderr) == (0, "")
