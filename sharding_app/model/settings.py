"""`ShardingSettings`: what one entity type may say about how it is hosted."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any

from sharding_app.core.allocation import ShardAllocationStrategy
from sharding_app.core.passivation import Passivation, passivation
from sharding_app.core.supervision import Supervision
from sharding_app.errors import DeclarationError


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardingSettings:
    """Settings of a type; each one that is None is taken from ``SHARDING`` in Django's settings.

    Give it as ``settings = ShardingSettings(...)`` in the class body or to ``ClusterSharding.start``.
    """

    #: Only nodes of this role host the type; others are proxies.
    role: str | None = None
    #: Into how many shards the ids are hashed. The same on all nodes, fixed for the life of the data.
    number_of_shards: int | None = None
    #: A snapshot after this number of events (0: never).
    snapshot_every: int | None = None
    #: Asked after each commit with the entity, the last event and its number: True takes a snapshot.
    snapshot_when: Callable[[Any, object, int], bool] | None = None
    #: How many snapshots are kept.
    keep_snapshots: int | None = None
    #: Delete the events that lie behind the oldest kept snapshot.
    delete_events: bool | None = None
    #: An entity without messages for this time is stopped (0: never).
    passivate_after_seconds: float | None = None
    #: So many entities of the type may be in one node's memory (0: any number); the others are recovered when needed.
    active_entity_limit: int | None = None
    #: Which ones leave when there are more: the name of a strategy, or a ``Passivation`` of one's own.
    passivation: str | Passivation | None = None
    #: The next command runs while the reply of the former still waits for its commit.
    pipelined: bool | None = None
    #: Entities that ran are started again after a move or a restart, without a message.
    remember_entities: bool | None = None
    #: What an entity gets when it has to stop; None stops it at once.
    stop_message: object | None = None
    #: What becomes of an entity whose handler raises, by exception type; None restarts it.
    supervision: Supervision | None = None
    #: How long an ask waits for its reply.
    ask_timeout_seconds: float | None = None
    #: A shard, or a singleton, starts only with its lease: "postgres", or the dotted path of a factory; "": none.
    use_lease: str | None = None
    #: Where the shards go, and which ones move: ``ConsistentHashAllocation()``, say, or a class of your own.
    allocation: ShardAllocationStrategy | None = None

    def __post_init__(self) -> None:
        role: object = self.role
        _need(role is None or (isinstance(role, str) and role), "role", "a name")
        _whole(self.number_of_shards, "number_of_shards", 1)
        _whole(self.snapshot_every, "snapshot_every", 0)
        _need(self.snapshot_when is None or callable(self.snapshot_when), "snapshot_when", "a function")
        _whole(self.keep_snapshots, "keep_snapshots", 1)
        _flag(self.delete_events, "delete_events")
        _seconds(self.passivate_after_seconds, "passivate_after_seconds", zero=True)
        _whole(self.active_entity_limit, "active_entity_limit", 0)
        _strategy(self.passivation)
        _flag(self.pipelined, "pipelined")
        _flag(self.remember_entities, "remember_entities")
        _need(
            self.supervision is None or isinstance(self.supervision, Supervision),
            "supervision",
            "a Supervision, such as Supervision({KeyError: 'resume'})",
        )
        _seconds(self.ask_timeout_seconds, "ask_timeout_seconds", zero=False)
        _need(
            self.use_lease is None or isinstance(self.use_lease, str),
            "use_lease",
            f"'postgres' or the dotted path of a factory, not {self.use_lease!r}",
        )
        _need(
            self.allocation is None or _decides(self.allocation),
            "allocation",
            f"an object with allocate() and rebalance(), not {self.allocation!r}",
        )

    def over(self, base: ShardingSettings) -> ShardingSettings:
        """These settings, completed by `base` where they say nothing."""
        said = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(base, **said)


_NAMES = tuple(field.name for field in dataclasses.fields(ShardingSettings))
_plain_init = ShardingSettings.__init__


def _init(self: ShardingSettings, *args: Any, **kwargs: Any) -> None:
    """The generated __init__, whose error for an unknown keyword suggests the right one."""
    for name in kwargs:
        if name not in _NAMES:
            close = difflib.get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_NAMES)}"
            raise DeclarationError(f"ShardingSettings has no {name!r}: {hint}")
    if args:
        raise DeclarationError("ShardingSettings takes keywords only, such as role='backend'")
    _plain_init(self, **kwargs)


ShardingSettings.__init__ = _init  # type: ignore[method-assign]


def _decides(strategy: object) -> bool:
    methods = (getattr(strategy, name, None) for name in ("allocate", "rebalance"))
    return not isinstance(strategy, type) and all(callable(each) for each in methods)


def _need(fits: object, name: str, what: str) -> None:
    if not fits:
        raise DeclarationError(f"ShardingSettings: {name} is {what}")


def _whole(value: object, name: str, least: int) -> None:
    fits = value is None or (type(value) is int and value >= least)
    _need(fits, name, f"an int of at least {least}, not {value!r}")


def _strategy(value: str | Passivation | None) -> None:
    try:
        _need(value is None or isinstance(value, str | Passivation), "passivation", "a name or a Passivation")
        if value is not None:
            passivation(value)
    except ValueError as error:
        raise DeclarationError(f"ShardingSettings: {error}") from None


def _flag(value: object, name: str) -> None:
    _need(value is None or type(value) is bool, name, f"True or False, not {value!r}")


def _seconds(value: object, name: str, *, zero: bool) -> None:
    fits = value is None or (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and (value >= 0 if zero else value > 0)
        and value < float("inf")
    )
    _need(fits, name, f"a number of seconds{' or 0' if zero else ' above 0'}, not {value!r}")
