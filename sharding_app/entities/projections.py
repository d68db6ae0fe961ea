"""`Projection`: a class in an app's `projections.py` that turns the events of entities into rows of
the application's own tables.

::

    class OpenAuctions(Projection):
        source = Auction

        @on(BidPlaced)
        def bid(self, happened: Happened[BidPlaced]) -> None:
            AuctionRow.objects.filter(pk=happened.entity_id).update(price=happened.event.amount)

Declaring a class connects to nothing. The nodes run it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from sharding_app.entities import identifiers
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.event_codec import FINISHED
from sharding_app.entities.events import event_spec
from sharding_app.entities.happened import Happened
from sharding_app.entities.registry import Registry
from sharding_app.errors import DeclarationError, InvalidCall, WrongContext
from sharding_app.protocol.projection.batches import batches
from sharding_app.protocol.projection.slices import SLICES

F = TypeVar("F", bound=Callable[..., Any])

_ON = "__sharding_on__"
_ON_ERASED = "__sharding_on_erased__"
WAIT_SECONDS = 10.0
"""How long `caught_up` waits, unless it is given another time."""


class _Handles(NamedTuple):
    classes: tuple[type[Any], ...]
    many: bool


class _Handler(NamedTuple):
    name: str
    many: bool


def on(*event_classes: type[Any]) -> Callable[[F], F]:
    """Declare the method that handles these events, one at a time: it takes a `Happened`."""
    return _declares(event_classes, many=False)


def on_batch(*event_classes: type[Any]) -> Callable[[F], F]:
    """Declare the method that handles these events, many at a time: it takes a list of
    `Happened`, each entity's in order.
    """
    return _declares(event_classes, many=True)


def _declares(event_classes: tuple[type[Any], ...], *, many: bool) -> Callable[[F], F]:
    word = "on_batch" if many else "on"
    if not event_classes or not all(isinstance(each, type) for each in event_classes):
        raise DeclarationError(f"@{word} needs one or more event classes: @{word}(BidPlaced)")
    for each in event_classes:
        if event_spec(each) is None:
            raise DeclarationError(f"@{word}({each.__qualname__}): decorate that class with @event")

    def declare(function: F) -> F:
        setattr(function, _ON, _Handles(event_classes, many))
        return function

    return declare


def on_erased(function: F) -> F:
    """Declare the method that is called when an entity of a source was erased: it takes a ref."""
    setattr(function, _ON_ERASED, True)
    return function


class Stored(Protocol):
    """A stored event of a source."""

    @property
    def type_id(self) -> int: ...
    @property
    def entity(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def at(self) -> Any: ...


class ProjectionType:
    """One version of a declared projection."""

    def __init__(self, cls: type[Projection], title: str | None) -> None:
        self.cls = cls
        self._title = title
        self.version = cls.version
        self.parts = cls.parts
        self.batch_size = cls.batch_size
        self.database = cls.database
        self.role = cls.role
        what = cls.__qualname__
        for name, most in (("version", 2**31 - 1), ("parts", SLICES), ("batch_size", 100_000)):
            value = getattr(cls, name)
            if type(value) is not int or not 1 <= value <= most:
                raise DeclarationError(f"{what}.{name} is a number from 1 to {most}, not {value!r}")
        if self.database is not None and not isinstance(self.database, str):
            raise DeclarationError(f"{what}.database is the alias of a database, or None")
        self.sources = _sources(cls)
        self._handlers, self._erased = _handlers(cls)
        functions = [getattr(cls, each.name) for each in self._handlers.values()]
        functions += [getattr(cls, self._erased)] if self._erased else []
        #: Its handlers run on the event loop, for systems outside of the databases.
        self.is_async = any(map(inspect.iscoroutinefunction, functions))
        if self.is_async and not all(map(inspect.iscoroutinefunction, functions)):
            raise DeclarationError(
                f"{what} has both async and plain handlers: those in one transaction with its position are"
                " plain, those for outside systems async. Make two projections of it"
            )
        self._found: dict[type, _Handler | None] = {}
        self._names: dict[str, bool] = {}

    @functools.cached_property
    def title(self) -> str:
        """``app_label.ClassName``, or the name that the class was given. Versions share it."""
        if self._title is not None:
            return self._title
        return f"{identifiers.app_label(self.cls.__module__)}.{self.cls.__name__}"

    @functools.cached_property
    def name(self) -> str:
        """The title and the version: one name for each version."""
        return f"{self.title}:{self.version}"

    @property
    def keeps_up_with_erasures(self) -> bool:
        """Whether it has a handler for entities that were erased."""
        return self._erased is not None

    def handles(self, name: str) -> bool:
        """Tell whether events of that name go to a handler."""
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = name != FINISHED and name in _names(
                cls for each in self._declared for cls in each.classes
            )
        return found

    def calls(self, events: Iterable[Stored], types: dict[int, EntityType]) -> list[Call]:
        """Return the calls that these events make, in order. `types`: by their numbers.

        Raises `UnreadableEvent` at one that this code does not know: it is not passed over.
        """
        items: list[tuple[tuple[int, str], _Handler | None, tuple[_Handler, Happened[Any]]]] = []
        for each in events:
            entity_type = types[each.type_id]
            if not self.handles(each.name):
                # A newer release may have stored it, and have a handler of it.
                entity_type.event_codec.check_known(each.name, each.version)
                continue
            event = entity_type.event_codec.decode(each.name, each.version, each.payload)
            handler = None if event is None else self._handler(type(event))
            if handler is not None:
                happened = Happened(
                    event, each.entity, each.seq, each.at, entity_type.name, entity_type.ref_class
                )
                key = each.type_id, each.entity
                items.append((key, handler if handler.many else None, (handler, happened)))
        return [
            call
            for many, found in batches(items)
            for call in (
                [Call(many.name, [happened for _, happened in found], len(found))]
                if many is not None
                else [Call(handler.name, happened, 1) for handler, happened in found]
            )
        ]

    def erased(self, entity_type: EntityType, entity_id: str) -> Call | None:
        """Return the call that an erasure makes."""
        return None if self._erased is None else Call(self._erased, entity_type.ref_class(entity_id), 1)

    def _handler(self, cls: type) -> _Handler | None:
        if cls not in self._found:
            self._found[cls] = next(
                (self._handlers[base] for base in cls.__mro__ if base in self._handlers), None
            )
        return self._found[cls]

    @functools.cached_property
    def _declared(self) -> list[_Handles]:
        return [getattr(getattr(self.cls, each.name), _ON) for each in self._handlers.values()]


class Call(NamedTuple):
    """A call of a handler."""

    method: str
    argument: Any
    events: int


def _sources(cls: type[Projection]) -> tuple[EntityType, ...]:
    given = cls.source if isinstance(cls.source, tuple) else (cls.source,)
    found: list[EntityType] = []
    for each in given:
        entity_type = getattr(each, "_sharding_type", None)
        if not isinstance(entity_type, EntityType) or entity_type.kind != "event_sourced":
            raise DeclarationError(
                f"{cls.__qualname__}.source is an EventSourced class, or a tuple of them, not {each!r}"
            )
        found.append(entity_type)
    if not found:
        raise DeclarationError(f"{cls.__qualname__}.source names no entity class")
    return tuple(found)


def _handlers(cls: type[Projection]) -> tuple[dict[type, _Handler], str | None]:
    """Return the handlers by event class, and that of erasures; a subclass wins."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names.update(dict.fromkeys(vars(base)))
    found: dict[type, _Handler] = {}
    erased: list[str] = []
    for name in names:
        function = inspect.getattr_static(cls, name, None)
        handles = getattr(function, _ON, None)
        if not isinstance(handles, _Handles) and not hasattr(function, _ON_ERASED):
            continue
        what = f"{cls.__qualname__}.{name}"
        if not isinstance(function, FunctionType) or function.__code__.co_argcount != 2:
            raise DeclarationError(f"{what} must be a method that takes self and one argument")
        if not isinstance(handles, _Handles):
            erased.append(name)
            continue
        for event_class in handles.classes:
            if event_class in found:
                raise DeclarationError(
                    f"{cls.__qualname__} handles {event_class.__qualname__} twice: in {found[event_class].name}"
                    f" and {name}"
                )
            found[event_class] = _Handler(name, handles.many)
    if not found:
        raise DeclarationError(f"{cls.__qualname__} handles no event: decorate a method with @on(...)")
    if len(erased) > 1:
        raise DeclarationError(f"{cls.__qualname__} has two @on_erased methods: {' and '.join(erased)}")
    return found, erased[0] if erased else None


def _names(classes: Iterable[type]) -> set[str]:
    waiting, found = list(classes), set()
    while waiting:
        cls = waiting.pop()
        spec = event_spec(cls)
        if spec is not None:
            found.add(spec.name)
        waiting.extend(cls.__subclasses__())
    return found


class Projection:
    """Events of entities as rows of the application's own tables.

    A class with a `source` is a projection. One without is a base of others.
    """

    #: The class of entities whose events it handles, or a tuple of such classes.
    source: ClassVar[Any] = None
    #: A higher number in another class of the same name fills its own rows beside those of the
    #: former one, and takes its place.
    version: ClassVar[int] = 1
    #: Workers that share the work.
    parts: ClassVar[int] = 4
    #: Most events that a handler of many takes at a time.
    batch_size: ClassVar[int] = 500
    #: The role of the nodes that run it; None: any node.
    role: ClassVar[str | None] = None
    #: The alias of the database of its rows, if that is not the cluster's.
    database: ClassVar[str | None] = None

    _sharding_projection: ClassVar[ProjectionType | None] = None

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._sharding_projection = None
        if cls.source is None:
            return
        title = None if name is None else identifiers.declared_name(name, "a projection")
        cls._sharding_projection = ProjectionType(cls, title)
        projections.add(cls._sharding_projection)

    def clear(self) -> Awaitable[None] | None:
        """Delete the rows of this projection: `reset()` calls it before it fills them anew. It may
        be async where the handlers are.
        """
        raise WrongContext(
            f"{type(self).__qualname__}.reset() needs a method clear() that deletes the projection's rows"
        )

    @classmethod
    async def caught_up(cls, ref: Any, number: int | None = None, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the rows show an entity's events up to a number; without one, all that are
        committed now. Raises `AskTimeout`, or `ProjectionError` if the entity or the projection
        waits for an operator.
        """
        await control().caught_up(_type_of(cls), *_entity_of(cls, ref), number, timeout)

    @classmethod
    def caught_up_sync(cls, ref: Any, number: int | None = None, *, timeout: float = WAIT_SECONDS) -> None:
        """Do the same from sync code."""
        control().caught_up_sync(_type_of(cls), *_entity_of(cls, ref), number, timeout)

    @classmethod
    def live_version(cls) -> int | None:
        """Return the version whose rows are complete, for sync code. None: none is yet."""
        return control().live_version(_type_of(cls).title)

    @classmethod
    async def alive_version(cls) -> int | None:
        """Do the same from async code."""
        return await control().alive_version(_type_of(cls).title)

    @classmethod
    def reset(cls) -> None:
        """Delete the rows of this version with `clear()`, and fill them anew, in place."""
        control().reset(_type_of(cls))


def _type_of(cls: type[Projection]) -> ProjectionType:
    found = cls._sharding_projection
    if found is None:
        raise InvalidCall(f"{cls.__qualname__} has no source: it is a base of projections")
    return found


def _entity_of(cls: type[Projection], ref: Any) -> tuple[str, str]:
    """Return the type's name and the id of the entity of a ref."""
    type_name, entity_id = getattr(ref, "type_name", None), getattr(ref, "entity_id", None)
    known = {each.name for each in _type_of(cls).sources}
    if not isinstance(entity_id, str) or type_name not in known:
        raise InvalidCall(
            f"{cls.__qualname__}.caught_up() takes a ref of {' or '.join(sorted(known))}, not {ref!r}"
        )
    return str(type_name), entity_id


projections: Registry[ProjectionType] = Registry(
    "projection", "as in class {}(Projection, name='...'), or give it another version"
)


class Control(Protocol):
    """What this process can tell and ask of projections."""

    def caught_up(
        self, projection: ProjectionType, type_name: str, entity: str, number: int | None, timeout: float
    ) -> Awaitable[None]: ...

    def caught_up_sync(
        self, projection: ProjectionType, type_name: str, entity: str, number: int | None, timeout: float
    ) -> None: ...

    def live_version(self, title: str) -> int | None: ...

    def alive_version(self, title: str) -> Awaitable[int | None]: ...

    def reset(self, projection: ProjectionType) -> None: ...


_make: Callable[[], Control] | None = None


def set_control(make: Callable[[], Control] | None) -> None:
    """Let `make` say what controls projections in this process."""
    global _make
    _make = make


def control() -> Control:
    """Return what controls projections in this process."""
    if _make is None:
        raise WrongContext("projections are not set up in this process: call django.setup()")
    return _make()
