"""From a class body to an `EntityType`: the work of ``Entity.__init_subclass__``, and all its
errors.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, get_origin

from sharding_app.entities import identifiers
from sharding_app.entities.codecs.annotations import Scope, is_classvar, raw_annotations
from sharding_app.entities.entity_type import EntityType, Kind
from sharding_app.entities.event_codec import Apply
from sharding_app.entities.events import APPLIES
from sharding_app.entities.handlers import Command
from sharding_app.entities.refs import EntityRef
from sharding_app.entities.settings import ShardingSettings
from sharding_app.entities.starting import start_methods
from sharding_app.errors import DeclarationError

RESERVED = (
    "ref",
    "refs",
    "ask_many",
    "sync",
    "persist",
    "exists",
    "events",
    "entity_id",
    "settings",
    "context",
)
#: Names that mean something else on an entity or on a ref's class.
_TAKEN = ("receive", "type_name", "entity_type", "sync_class")
THE = "the"
"""The id of a singleton."""
_MUTABLE = (list, dict, set, bytearray)


def declare(
    cls: type[Any], framework: tuple[type, ...], kind: Kind, name: str | None, *, singleton: bool = False
) -> EntityType:
    """Make the type of `cls`, not registered yet; `framework` are the classes that are not the
    user's.
    """
    what = cls.__qualname__
    space = vars(cls)
    annotations = raw_annotations(cls)
    _check_reserved(cls, annotations)
    users = [base for base in cls.__mro__ if base not in framework and base is not object]
    users = [base for base in users if base.__module__ != "typing"]
    commands = _commands(users)
    things = [space["snapshot"]] if isinstance(space.get("snapshot"), FunctionType) else []
    things += [inspect.unwrap(v.function) for v in space.values() if isinstance(v, Command)]
    cls._sharding_scope = Scope.around(cls.__qualname__, [cls, *things])
    settings = getattr(cls, "settings", None)
    if settings is None:
        settings = ShardingSettings()
    elif not isinstance(settings, ShardingSettings):
        raise DeclarationError(f"{what}.settings must be ShardingSettings(...), not {settings!r}")
    _check_state(cls, annotations)
    _check_init(cls)
    _check_may_watch(cls)
    if has_method(cls, "snapshot") != has_method(cls, "restore"):
        raise DeclarationError(f"{what} needs both snapshot() and restore(state), or neither")
    appliers = _appliers(cls, users)
    if appliers and kind != "event_sourced":
        raise DeclarationError(f"{what} has @applies methods: use EventSourced as its base")
    if singleton:
        settings = _of_singleton(what, settings)
    elif timed := [found.name for found, _ in commands.values() if found.every is not None]:
        raise DeclarationError(
            f"{what}.{timed[0]}: @every is for a Singleton. Elsewhere let a command start the timer:"
            f" self.schedule(self.ref.{timed[0]}, key=..., every=...)"
        )
    made = EntityType(
        cls,
        kind=kind,
        name=None if name is None else identifiers.declared_name(name, "an entity type"),
        settings=settings,
        commands=commands,
        appliers=appliers,
        scopes={base: vars(base).get("_sharding_scope") or Scope.nowhere() for base in users},
        on_start=start_methods(cls, users),
    )
    made.singleton_id = THE if singleton else None
    return made


def _of_singleton(what: str, settings: ShardingSettings) -> ShardingSettings:
    """Return the settings of a singleton: one shard, which never leaves memory for idleness."""
    if settings.number_of_shards not in (None, 1):
        raise DeclarationError(f"{what} is a singleton: it has one shard, not {settings.number_of_shards}")
    return ShardingSettings(number_of_shards=1, passivate_after_seconds=0).over(settings)


def has_method(cls: type, name: str) -> bool:
    """Tell whether `cls` has a plain method of that name, not a handler or an attribute."""
    return isinstance(inspect.getattr_static(cls, name, None), FunctionType)


def _check_reserved(cls: type, annotations: dict[str, Any]) -> None:
    what = cls.__qualname__
    for name in RESERVED:
        if name in annotations and not (name == "settings" and name in vars(cls)):
            raise DeclarationError(f"{what}.{name}: {name!r} is reserved: choose another name")
        if name in vars(cls) and name != "settings":
            raise DeclarationError(f"{what}.{name}: {name!r} is reserved: choose another name")


def _commands(users: list[type]) -> dict[str, tuple[Command[Any, Any], type]]:
    found: dict[str, tuple[Command[Any, Any], type]] = {}
    for base in reversed(users):
        for name, value in vars(base).items():
            if isinstance(value, Command):
                if name in _TAKEN or hasattr(EntityRef, name):
                    raise DeclarationError(
                        f"{base.__qualname__}.{name}: a {value.word} cannot be named {name!r}"
                    )
                found[name] = value, base
            elif name in found:
                if isinstance(value, FunctionType):
                    word = found[name][0].word
                    raise DeclarationError(
                        f"{base.__qualname__}.{name} overrides a {word}: decorate it with @{word}"
                    )
                del found[name]
    return found


def _appliers(cls: type, users: list[type]) -> dict[type, Apply]:
    """Return the appliers by event class; a subclass wins, and an overridden method counts by its
    name.
    """
    names: dict[type, str] = {}
    for base in reversed(users):
        own: dict[type, str] = {}
        for name, value in vars(base).items():
            for event_class in getattr(value, APPLIES, ()) if callable(value) else ():
                if event_class in own:
                    raise DeclarationError(
                        f"{base.__qualname__} applies {event_class.__qualname__} twice:"
                        f" in {own[event_class]} and {name}"
                    )
                own[event_class] = name
        names.update(own)
    found: dict[type, Apply] = {}
    for event_class, name in names.items():
        method = getattr(cls, name)
        if not isinstance(method, FunctionType):
            raise DeclarationError(f"{cls.__qualname__}.{name} applies events: it must be a plain method")
        if (
            inspect.iscoroutinefunction(method)
            or inspect.isgeneratorfunction(method)
            or inspect.isasyncgenfunction(method)
        ):
            raise DeclarationError(
                f"{cls.__qualname__}.{name} applies events: use a plain def, which recovery can run again"
            )
        code = method.__code__
        if code.co_argcount != 2 or code.co_kwonlyargcount:
            raise DeclarationError(f"{cls.__qualname__}.{name} must take self and the event only")
        found[event_class] = method
    return found


def _check_state(cls: type, annotations: dict[str, Any]) -> None:
    for name, annotation in annotations.items():
        default = vars(cls).get(name)
        if isinstance(default, _MUTABLE) and not is_classvar(annotation):
            raise DeclarationError(
                f"{cls.__qualname__}.{name}: all entities would share this {type(default).__name__}:"
                f" set self.{name} in __init__"
            )
        if isinstance(default, Command) or get_origin(annotation) is Command:
            raise DeclarationError(f"{cls.__qualname__}.{name} is both a handler and an attribute")


def _check_may_watch(cls: type[Any]) -> None:
    hook = inspect.getattr_static(cls, "may_watch", None)
    plain = hook.__func__ if isinstance(hook, classmethod) else None
    code = plain.__code__ if isinstance(plain, FunctionType) else None
    if code is None or inspect.iscoroutinefunction(plain) or code.co_argcount != 4 or code.co_kwonlyargcount:
        raise DeclarationError(
            f"{cls.__qualname__}.may_watch must be a classmethod, and a plain def:"
            " def may_watch(cls, user, entity_id, view) -> bool"
        )


def _check_init(cls: type[Any]) -> None:
    init = cls.__init__
    if not isinstance(init, FunctionType):
        return
    code = init.__code__
    needed = code.co_argcount - 1 - len(init.__defaults__ or ())
    needed += code.co_kwonlyargcount - len(init.__kwdefaults__ or {})
    if needed > 0 or inspect.iscoroutinefunction(init):
        raise DeclarationError(
            f"{cls.__qualname__}.__init__ is called without arguments: pass data with the first"
            " command; the id is self.entity_id"
        )
