"""`ShardingSettings`: the settings of one entity type."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from typing import Any

from sharding_app.errors import DeclarationError
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.call import LONGEST_SECONDS
from sharding_app.protocol.passivation.strategy import Passivation, passivation
from sharding_app.protocol.supervision import Supervision

LONGEST_DAYS = 365_000
"""The server's timestamps can take it off the present time."""
LARGEST_NUMBER = 2**63 - 1
"""PostgreSQL takes no larger whole number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardingSettings:
    """Settings of an entity type. Those that are None are taken from ``SHARDING`` in Django's
    settings.

    Assign it as ``settings = ShardingSettings(...)`` in the class body or pass it to
    ``ClusterSharding.start``.
    """

    #: Only nodes with this role host the type; other processes are proxies.
    role: str | None = None
    #: Number of shards. Must be equal on all nodes; can change only after `sharding_remove_data`.
    number_of_shards: int | None = None
    #: Take a snapshot after this many events (0: never).
    snapshot_every: int | None = None
    #: Called after each commit with the entity, its last event and number; True takes a snapshot.
    snapshot_when: Callable[[Any, object, int], bool] | None = None
    #: Number of snapshots kept per entity.
    keep_snapshots: int | None = None
    #: Delete events that precede the oldest kept snapshot.
    delete_events: bool | None = None
    #: With `delete_events`: keep events that are younger than this number of days (0: no age).
    keep_events_days: int | None = None
    #: With `delete_events`: keep this number of the newest events of each entity.
    keep_events: int | None = None
    #: Stop an entity that has received no message for this time (0: never).
    passivate_after_seconds: float | None = None
    #: Maximum number of entities of the type in one node's memory (0: no limit).
    active_entity_limit: int | None = None
    #: Which entities are passivated at the limit: the name of a strategy, or a ``Passivation``.
    passivation: str | Passivation | None = None
    #: Run the next command while the reply to the previous one still waits for its commit.
    pipelined: bool | None = None
    #: Start entities again after a move or a restart, without waiting for a message.
    remember_entities: bool | None = None
    #: Message that an entity gets before it is stopped; None stops it at once.
    stop_message: object | None = None
    #: Reaction to an exception in a handler, by exception type; None restarts the entity.
    supervision: Supervision | None = None
    #: Seconds that an ask waits for its reply.
    ask_timeout_seconds: float | None = None
    #: Lease of a shard or singleton: "postgres", the dotted path of a factory, or "" (none).
    use_lease: str | None = None
    #: Allocation strategy, such as ``ConsistentHashAllocation()``, or an object of your own class.
    allocation: ShardAllocationStrategy | None = None

    def __post_init__(self) -> None:
        role: object = self.role
        _need(role is None or (isinstance(role, str) and role), "role", "a name")
        _whole(self.number_of_shards, "number_of_shards", 1)
        _whole(self.snapshot_every, "snapshot_every", 0)
        _need(self.snapshot_when is None or callable(self.snapshot_when), "snapshot_when", "a function")
        _whole(self.keep_snapshots, "keep_snapshots", 1)
        _flag(self.delete_events, "delete_events")
        _whole(self.keep_events_days, "keep_events_days", 0, LONGEST_DAYS)
        _whole(self.keep_events, "keep_events", 1, LARGEST_NUMBER)
        _seconds(self.passivate_after_seconds, "passivate_after_seconds", zero=True)
        _whole(self.active_entity_limit, "active_entity_limit", 0, LARGEST_NUMBER)
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
        """Return these settings, with None replaced by the values of `base`."""
        said = {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) is not None
        }
        return dataclasses.replace(base, **said)


_NAMES = tuple(field.name for field in dataclasses.fields(ShardingSettings))
_plain_init = ShardingSettings.__init__


def _init(self: ShardingSettings, *args: Any, **kwargs: Any) -> None:
    """Replace the generated __init__: the error for an unknown keyword suggests the right one."""
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
        raise DeclarationError(f"ShardingSettings: {name} must be {what}")


def _whole(value: object, name: str, least: int, most: int | None = None) -> None:
    fits = value is None or (type(value) is int and value >= least and (most is None or value <= most))
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    _need(fits, name, f"an int {limits}, not {value!r}")


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
        and value <= LONGEST_SECONDS
    )
    least = "from 0" if zero else "above 0,"
    _need(fits, name, f"a number of seconds {least} to {LONGEST_SECONDS:.0f}, not {value!r}")
