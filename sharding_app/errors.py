"""Every error this app raises, in one tree, and how each one travels.

::

    ShardingError
     +-- Rejected              the entity said no: nothing was changed
     +-- AskTimeout            no reply in time (also a TimeoutError)
     +-- BufferFull            a bounded buffer had no room
     +-- Unavailable           no node can take the call now
     +-- EntityFailed          the handler raised something else
     |    +-- PartlyApplied    ... after an intermediate commit
     +-- BadCall               wrong command or arguments (also a TypeError)
     +-- BadEntityId           not an id (also a TypeError and a ValueError)
     +-- NotStorable           a value that cannot be sent or stored exactly (also a ValueError)
     +-- EventUnreadable       a journal holds an event that this code cannot read
     |    +-- HistoryTooLong   ... or more of them than a recovery may read
     +-- StateUnreadable       a stored state that this code cannot read
     +-- WrongContext          right call, wrong place (also a RuntimeError)
     +-- DeclarationError      an entity, event or message is declared wrongly (also a TypeError)

An error crosses the wire as ``(kind, message, params)``: see `to_wire` and `from_wire`. Only classes of
this tree can come out at the other side, and subclasses of `Rejected` that are already imported there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, NamedTuple

from sharding_app.quoting import told

__all__ = [
    "STORED",
    "AskTimeout",
    "BadCall",
    "BadEntityId",
    "BufferFull",
    "DeclarationError",
    "EntityFailed",
    "EventUnreadable",
    "HistoryTooLong",
    "NotStorable",
    "PartlyApplied",
    "Rejected",
    "ShardingError",
    "StateUnreadable",
    "Stored",
    "Unavailable",
    "WireError",
    "WrongContext",
    "from_wire",
    "to_wire",
]


Stored = Literal["nothing", "partly", "unknown"]

STORED: Final[Mapping[str, Stored]] = {
    "rejected": "nothing",
    "entity_failed": "nothing",
    "partly_applied": "partly",
    "not_storable": "nothing",
    "reply_too_large": "nothing",
    "state_too_large": "nothing",
    "bad_call": "nothing",
    "too_old": "nothing",
    "command_id_reused": "nothing",
    "no_such_shard": "nothing",
    "bad_entity_id": "nothing",
    "ask_timeout": "unknown",
    "expired": "unknown",
    "reply_dropped": "unknown",
    "buffer_full": "nothing",
    "unavailable": "nothing",
    "no_host": "nothing",
    "refused": "nothing",
    "stopped": "nothing",
    "stopped_by_force": "nothing",
    "stopped_under_way": "unknown",
    "fate_unknown": "unknown",
    "poisonous": "unknown",
    "event_unreadable": "nothing",
    "history_too_long": "nothing",
    "state_unreadable": "nothing",
    "wrong_context": "nothing",
    "call_cycle": "nothing",
    "declaration_error": "nothing",
    "sharding_error": "unknown",
}
"""What a call that failed with this code has stored in the journal. It is about this call: one that was made before with the
same command id may have stored more. A code that is not here is a later release's, and says nothing."""


class WireError(NamedTuple):
    """An error as it travels: plain values only."""

    kind: str
    message: str
    params: dict[str, Any]


class ShardingError(Exception):
    """Anything that goes wrong in sharding; catch this to catch all of it."""

    kind: ClassVar[str] = "sharding_error"
    retryable: ClassVar[bool] = False
    speaks_for_itself: ClassVar[bool] = True
    "Its text is ours and quotes nothing: it may be repeated anywhere."

    def __init__(
        self, message: str = "", code: str | None = None, params: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.kind if code is None else code
        self.params: dict[str, Any] = {} if params is None else params

    @property
    def stored(self) -> Stored:
        """What this call has stored: "nothing", a part ("partly"), or "unknown": ask again with the same command id."""
        return STORED.get(self.code, "unknown")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with `args`, which a subclass's own __init__ may not take.
        return _rebuild, (type(self), self.message, self.code, self.params, _own_attributes(self))


class Rejected(ShardingError):
    """The entity refuses the command: nothing was changed. Show `message` to the user who asked.

    Raise it, or a subclass, in a handler: ``raise Rejected("sold out", code="sold_out")``.
    """

    kind = "rejected"
    speaks_for_itself = False
    stored: Stored = "nothing"  # whatever code the user has given it
    _known: ClassVar[dict[str, type[Rejected]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Rejected._known[_path(cls)] = cls


class AskTimeout(ShardingError, TimeoutError):
    """No reply came in time; the command may or may not have taken effect.

    Ask again with the same ``command_id`` to learn which, or raise ``timeout``.
    """

    kind = "ask_timeout"
    retryable = True


class BufferFull(ShardingError):
    """A bounded buffer was full, so the message was not taken. Slow down and try again."""

    kind = "buffer_full"
    retryable = True


class Unavailable(ShardingError):
    """Nobody can take the call now: no node hosts the type, or a server is not reachable."""

    kind = "unavailable"
    retryable = True


class EntityFailed(ShardingError):
    """The entity's handler raised; nothing it had staged was kept. The message names type, id, command and the
    exception's class; its text, which may hold anything, only where `QUOTE_ERRORS` (as DEBUG) allows it."""

    kind = "entity_failed"


class PartlyApplied(EntityFailed):
    """The command failed after it had committed a part of its events; that part stays."""

    kind = "partly_applied"


class BadCall(ShardingError, TypeError):
    """The call does not fit the entity: an unknown command, or wrong arguments."""

    kind = "bad_call"


class BadEntityId(ShardingError, TypeError, ValueError):
    """Not an entity id: use a str, int or UUID of 1 to 512 bytes of UTF-8 without NUL."""

    kind = "bad_entity_id"


class NotStorable(ShardingError, ValueError):
    """A value that cannot be sent or stored without changing it. The message names the field."""

    kind = "not_storable"


class EventUnreadable(ShardingError):
    """The journal holds an event that this code cannot read or apply; the entity does not start.

    Restore the event class or add an upcaster, or list its name in the class's ``ignore_events``.
    """

    kind = "event_unreadable"


class HistoryTooLong(EventUnreadable):
    """An entity has more events after its last snapshot than a recovery may read; it does not start.

    The message names the setting to raise. With ``snapshot_every`` only what follows a snapshot is read.
    """

    kind = "history_too_long"


class StateUnreadable(ShardingError):
    """A stored state or snapshot does not fit the class's annotated attributes."""

    kind = "state_unreadable"


class WrongContext(ShardingError, RuntimeError):
    """A right call in the wrong place, such as ``.sync`` on a thread with a running event loop."""

    kind = "wrong_context"


class DeclarationError(ShardingError, TypeError):
    """An entity, event or message class is declared wrongly; the message names the fix."""

    kind = "declaration_error"


_KINDS: dict[str, type[ShardingError]] = {
    cls.kind: cls
    for cls in (
        ShardingError,
        Rejected,
        AskTimeout,
        BufferFull,
        Unavailable,
        EntityFailed,
        PartlyApplied,
        BadCall,
        BadEntityId,
        NotStorable,
        EventUnreadable,
        HistoryTooLong,
        StateUnreadable,
        WrongContext,
        DeclarationError,
    )
}
_FRAMEWORK = frozenset({"message", "code", "params"})
_DEPTH = 8


def to_wire(error: BaseException) -> WireError:
    """What is sent for `error`. One that is not of this tree becomes an `EntityFailed` by name."""
    if not isinstance(error, ShardingError):
        name = type(error).__qualname__
        return WireError(EntityFailed.kind, _text(told(error)), {"params": {"error": _text(name)}})
    params: dict[str, Any] = {}
    if error.code != error.kind:
        params["code"] = _text(error.code)
    if error.params:
        params["params"] = _plain(error.params, _DEPTH)
    if isinstance(error, Rejected) and type(error) is not Rejected:
        params["class"] = _path(type(error))
        own = _own_attributes(error)
        if own:
            params["own"] = _plain(own, _DEPTH)
    return WireError(error.kind, _text(error.message), params)


def from_wire(kind: str, message: str, params: dict[str, Any] | None = None) -> ShardingError:
    """The error that `to_wire` described. Nothing is imported and no constructor of the user is run."""
    extra = params or {}
    cls: type[ShardingError] = _KINDS.get(kind, ShardingError)
    own: Any = None
    if cls is Rejected and "class" in extra:
        cls = _rejected_class(extra["class"])
        own = extra.get("own") if cls is not Rejected else None
    code = extra.get("code")
    if code is None and kind not in _KINDS:
        code = kind
    return _rebuild(cls, message, code, extra.get("params"), own)


def _rejected_class(path: object) -> type[Rejected]:
    """The imported subclass of that path; its nearest name may be unknown here, then `Rejected`."""
    known = Rejected._known.get(path) if isinstance(path, str) else None
    if known is None or known.__module__ not in sys.modules:
        return Rejected
    return known


def _rebuild(
    cls: type[ShardingError], message: str, code: object, params: object, own: object
) -> ShardingError:
    error = cls.__new__(cls, message)
    if isinstance(own, dict):
        fits = {k: v for k, v in own.items() if isinstance(k, str) and k.isidentifier() and k[0] != "_"}
        error.__dict__.update(fits)
    ShardingError.__init__(
        error,
        message,
        code if isinstance(code, str) else None,
        params if isinstance(params, dict) else None,
    )
    return error


def _own_attributes(error: ShardingError) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(error).items()
        if name not in _FRAMEWORK and not name.startswith("_")
    }


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _text(value: object) -> str:
    """`value` as text that every codec takes: an error must never fail to travel."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: Any, depth: int) -> Any:
    """`value` from plain parts only; what is not plain goes as its text."""
    if value is None or type(value) in (bool, float, bytes):
        return value
    if type(value) is int and -(2**63) <= value < 2**64:
        return value
    if depth and isinstance(value, dict):
        return {_text(key): _plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth - 1) for item in value]
    return _text(value)
