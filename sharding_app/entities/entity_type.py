"""`EntityType` and `Handler`: the description of an entity class for hosts, refs and the admin.

The contract with a host, for one command on one object::

    obj = entity_type.new(entity_id, context)           # then load_state and replay
    handler = entity_type.commands[name]                # KeyError: no such command
    args = handler.decode(raw)                          # InvalidCall: the entity never sees them
    obj._sharding_staging = staging                     # None for a query: persist then refuses
    result = handler.function(obj, *args)               # await it if handler.is_async
    reply = handler.encode_result(result)               # before the commit: it may refuse
    ...                                                 # commit staging.records, then reply

A durable-state entity stages nothing: after a command the host stores `dump_state` if it differs
from the stored state. Codecs are compiled at their first use, so that declaring a class resolves no
annotation.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

from sharding_app.entities import identifiers
from sharding_app.entities.codecs.annotations import Scope, resolved, substituted, type_arguments, type_names
from sharding_app.entities.codecs.state import AttributeState, OwnState
from sharding_app.entities.event_codec import Apply, EventCodec, Happening
from sharding_app.entities.handler import Handler
from sharding_app.entities.handlers import Command
from sharding_app.entities.personal import holds_personal
from sharding_app.entities.refs import EntityRef, ref_class
from sharding_app.entities.settings import ShardingSettings
from sharding_app.errors import (
    DeclarationError,
    EntityFailed,
    HistoryTooLong,
    InvalidCall,
    NotSerializable,
    Rejected,
    ShardingError,
    UnreadableEvent,
    UnreadableState,
    to_wire,
)
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.delivery.recurrence import Recurrence
from sharding_app.redaction import told

if TYPE_CHECKING:
    from sharding_app.entities.context import EntityContext
    from sharding_app.entities.extractors import MessageExtractor

__all__ = ["EntityType", "Handler", "Kind"]

Kind = Literal["event_sourced", "durable_state", "memory"]

SYNC_ORM = (
    " Handlers run on the event loop, which a database query would block. Make {command} an `async def` and use"
    " the async ORM (`await Book.objects.aget(...)`), or declare it `@command(thread=True)`, and it runs in a thread"
)


class EntityType:
    """One registered entity class under one name."""

    def __init__(
        self,
        cls: type[Any],
        *,
        kind: Kind,
        name: str | None,
        settings: ShardingSettings,
        commands: dict[str, tuple[Command[Any, Any], type]],
        appliers: dict[type, Apply],
        scopes: dict[type, Scope],
        on_start: tuple[Callable[[Any], Any], ...] = (),
    ) -> None:
        self.cls = cls
        self.kind: Kind = kind
        self.settings = settings
        self._name = name
        self._scopes = scopes
        self._declared = (commands, appliers)
        #: The methods that change the state by an event.
        self.appliers = tuple(appliers.values())
        #: Called with each new instance, before its first message.
        self.on_start = on_start
        #: Commands that a singleton calls by itself, by name.
        self.recurring: dict[str, Recurrence] = {
            key: declared.every for key, (declared, _) in commands.items() if declared.every is not None
        }
        #: Queries that are answered while a command of the entity is under way.
        self.concurrent = frozenset(key for key, (declared, _) in commands.items() if declared.concurrent)
        self.commands: dict[str, Handler] = {
            key: Handler(self, declared, owner) for key, (declared, owner) in commands.items()
        }
        #: True when the class handles plain messages with its own ``receive``.
        self.receives: bool = not hasattr(cls.receive, "__sharding_default__")
        self.receive_is_async: bool = inspect.iscoroutinefunction(cls.receive)
        ignored = getattr(cls, "ignore_events", ())
        if isinstance(ignored, str) or not all(isinstance(item, str) for item in ignored):
            raise DeclarationError(
                f"{cls.__qualname__}.ignore_events must be a tuple of event names, not {ignored!r}"
            )
        self.event_codec = EventCodec(cls.__qualname__, appliers, frozenset(ignored))
        #: Of the attributes in a snapshot: one of another version is skipped, and events are read.
        self.snapshot_version = _snapshot_version(cls, kind)
        #: From messages to entities and shards, if the type was started with one.
        self.extractor: MessageExtractor | None = None
        #: Only the name is known: other processes host it.
        self.proxy_only = False
        #: Of a singleton: its one entity, which runs without a message.
        self.singleton_id: str | None = None
        #: Of numbered workers: how many there are at first, until a rescale. 0: they are none.
        self.workers = 0
        #: Most messages that wait for a home; the oldest give way. None: the region's limits.
        self.waiting_limit: int | None = None
        self._defers_init = cls.__init__ is not object.__init__

    @functools.cached_property
    def name(self) -> str:
        """``app_label.ClassName``, or the name given by the class or ``ClusterSharding.start``."""
        name = self._name or f"{identifiers.app_label(self.cls.__module__)}.{self.cls.__name__}"
        # By the prefix the coordinator knows how to place it.
        return SINGLETON + name.removeprefix(SINGLETON) if self.singleton_id is not None else name

    @property
    def is_named(self) -> bool:
        """Whether the name was given, rather than derived from the class."""
        return self._name is not None

    def renamed(self, name: str, settings: ShardingSettings | None = None) -> EntityType:
        """Return the same class under another name, or with other settings."""
        commands, appliers = self._declared
        made = EntityType(
            self.cls,
            kind=self.kind,
            name=name,
            settings=self.settings if settings is None else settings,
            commands=commands,
            appliers=appliers,
            scopes=self._scopes,
            on_start=self.on_start,
        )
        made.extractor = self.extractor
        made.proxy_only = self.proxy_only
        made.singleton_id = self.singleton_id
        made.waiting_limit = self.waiting_limit
        made.workers = self.workers
        return made

    @functools.cached_property
    def ref_class(self) -> type[EntityRef[Any]]:
        """The class of this type's refs: ``ref_class(entity_id, timeout, command_id,
        on_commit)``.
        """
        return ref_class(self)

    def handler(self, name: str) -> Handler:
        """Return the handler of that name, or raise `InvalidCall` with the known names."""
        try:
            return self.commands[name]
        except KeyError:
            known = ", ".join(self.commands) or "none"
            raise InvalidCall(f"{self.name} has no command {name!r} (known: {known})") from None

    def new(self, entity_id: str, context: EntityContext | None = None) -> Any:
        """Make an object whose id is set before its ``__init__`` runs."""
        cls = self.cls
        obj: Any = object.__new__(cls)
        obj.entity_id = entity_id
        obj.context = context
        obj._sharding_staging = None
        if self._defers_init:
            obj.__init__()
        return obj

    def apply(self, obj: Any, event: object) -> None:
        """Change the state of `obj` by one event, as `persist` and recovery do."""
        self.event_codec.apply(obj, event)

    def replay(self, obj: Any, rows: Iterable[tuple[int, str, int, bytes | str]]) -> None:
        """Apply stored rows ``(number, name, version, data)`` in order."""
        self.event_codec.replay(obj, rows)

    def happening(self, event: object) -> Happening:
        """Return how an event is stored and applied."""
        return self.event_codec.happening(event)

    def dump_state(self, obj: Any) -> bytes:
        """Return the state of `obj` as JSON."""
        return self._state.dump(obj)

    def load_state(self, obj: Any, data: bytes | str) -> None:
        """Put a stored state into a fresh object."""
        self._state.load(obj, data)

    def compile(self) -> None:
        """Resolve every annotation and make every codec, as a check does; raises
        `DeclarationError`.
        """
        for handler in self.commands.values():
            handler.compile()
        for cls in self._declared[1]:
            spec = vars(cls)["__sharding_event__"]
            self.event_codec._reader(spec.name, spec.version)
        self._state  # noqa: B018 (made at first use)

    @functools.cached_property
    def state_names(self) -> tuple[str, ...]:
        """The annotated attributes, those of bases first."""
        return tuple(self.state_types)

    @functools.cached_property
    def state_types(self) -> dict[str, Any]:
        """The annotated attributes with their types, those of bases first."""
        found: dict[str, Any] = {}
        for base in reversed(self.cls.__mro__):
            if base in self._scopes:
                found.update(self.hints(base, base, f"{self.cls.__qualname__}'s state"))
        return {name: object if kind is Any else kind for name, kind in found.items()}

    @functools.cached_property
    def holds_personal(self) -> bool:
        """Whether events, state or arguments of the type may have personal data."""
        stored: list[Any] = [spec.resolve() for spec in self.event_codec.declared()]
        stored += [*self.state_types.values(), self.own_snapshot]
        for handler in self.commands.values():
            stored += [annotation for _, annotation, _ in handler.signature()]
        return any(map(holds_personal, stored))

    @property
    def own_snapshot(self) -> Any:
        """The annotation of the class's own ``snapshot()``; None if it has none."""
        snapshot = inspect.getattr_static(self.cls, "snapshot", None)
        if not isinstance(snapshot, FunctionType):
            return None
        owner = next(base for base in self.cls.__mro__ if "snapshot" in vars(base))
        return self.hints(snapshot, owner, f"{self.cls.__qualname__}.snapshot").get("return", Any)

    @functools.cached_property
    def _state(self) -> AttributeState | OwnState:
        wanted, what = self.own_snapshot, self.cls.__qualname__
        if wanted is None:
            return AttributeState(self.state_types, what, self.snapshot_version)
        return OwnState(self.cls.snapshot, self.cls.restore, wanted, what)

    def hints(self, thing: Any, owner: type, what: str) -> dict[str, Any]:
        """Return the annotations of a method, or of a class itself, as this type sees them."""
        names: dict[str, Any] = {}
        for base in reversed(owner.__mro__):
            names.update(type_names(vars(base)))
        scope = self._scopes.get(owner)
        if scope is not None:
            names.update(scope.names())
        names.setdefault(owner.__name__, owner)
        names.update({param.__name__: param for param in getattr(owner, "__type_params__", ())})
        module = owner.__module__ if isinstance(thing, type) else thing.__module__
        found = resolved(thing, module, names, what)
        arguments = type_arguments(self.cls).get(owner, {})
        return {key: substituted(value, arguments) for key, value in found.items()}

    def unrecoverable(self, entity_id: str, error: BaseException) -> ShardingError:
        """Make the error for callers of an entity that cannot be rebuilt from its stored data."""
        kinds: tuple[type[ShardingError], ...] = (UnreadableState, HistoryTooLong)
        kind = next((each for each in kinds if isinstance(error, each)), UnreadableEvent)
        params: object = {"error": type(error).__qualname__}
        what = told(error)
        if isinstance(error, ShardingError):
            # An error of the user's may raise when its text is asked for.
            params, what = error.params, to_wire(error).message
        given = params if isinstance(params, dict) else {}
        return kind(
            f"{self.name} {entity_id!r} cannot be recovered: {what}",
            params={"type": self.name, "entity_id": entity_id, **given},
        )

    def failed(self, entity_id: str, command: str, error: BaseException) -> ShardingError:
        """Make the error for the caller when a handler raised: a `Rejected` as itself, all else by
        name.

        For example an `AskTimeout` of a handler's own ask is its failure, not the caller's timeout.
        """
        if isinstance(error, Rejected):
            return error
        failure = NotSerializable if isinstance(error, NotSerializable) else EntityFailed
        # By name: nothing here imports Django.
        blocked = type(error).__name__ == "SynchronousOnlyOperation"
        hint = SYNC_ORM.format(command=command) if blocked else ""
        return failure(
            f"{self.name} {entity_id!r}: {command} raised {told(error)}{hint}",
            params={
                "type": self.name,
                "entity_id": entity_id,
                "command": command,
                "error": type(error).__qualname__,
            },
        )

    def __repr__(self) -> str:
        return f"<{self.kind} entity type of {self.cls.__qualname__}>"


def _snapshot_version(cls: type[Any], kind: Kind) -> int:
    """Return the version that a class gives its snapshots."""
    given = getattr(cls, "snapshot_version", 1)
    if type(given) is not int or given < 1:
        raise DeclarationError(
            f"{cls.__qualname__}.snapshot_version must be an int of at least 1, not {given!r}"
        )
    if given == 1:
        return 1
    if kind != "event_sourced":
        raise DeclarationError(
            f"{cls.__qualname__}.snapshot_version: only an EventSourced entity can skip a snapshot, since its events"
            " are there. Define restore(state) instead"
        )
    if isinstance(inspect.getattr_static(cls, "snapshot", None), FunctionType):
        raise DeclarationError(
            f"{cls.__qualname__} has its own snapshot(): let it return a version, instead of snapshot_version"
        )
    return given
