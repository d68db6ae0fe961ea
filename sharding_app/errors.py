"""All errors that this app raises, in one tree, and their form on the wire.

::

    ShardingError
     +-- Rejected              the entity said no: nothing was changed
     +-- AskTimeout            no reply in time (also a TimeoutError)
     +-- BufferFull            a bounded buffer is full
     +-- Unavailable           no node can take the call now
     +-- EntityFailed          the handler raised another exception
     |    +-- PartiallyApplied ... after an intermediate commit
     +-- InvalidCall           wrong command or arguments (also a TypeError)
     +-- InvalidEntityId       not an id (also a TypeError and a ValueError)
     +-- NotSerializable       a value that cannot be sent or stored exactly (also a ValueError)
     |    +-- SubjectErased    ... since it belongs to a person who was erased
     +-- UnreadableEvent       the journal has an event that this code cannot read
     |    +-- HistoryTooLong   ... or more events than a recovery may read
     +-- UnreadableState       a stored state that this code cannot read
     +-- EventsGone            a follower's next events are not in the journal
     |    +-- EntityErased     ... since the entity was erased
     +-- ProjectionError       a projection cannot go on, or does not show an entity
     +-- WrongContext          a valid call in the wrong place (also a RuntimeError)
     +-- DeclarationError      a wrong declaration of an entity, event or message (also a TypeError)

An error crosses the wire as ``(kind, message, params)``: see `to_wire` and `from_wire`. Only
classes of this tree can come out at the other side, and subclasses of `Rejected` that are already
imported there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from sharding_app.redaction import told

__all__ = [
    "STORED",
    "AskTimeout",
    "BufferFull",
    "DeclarationError",
    "EntityErased",
    "EntityFailed",
    "EventsGone",
    "HistoryTooLong",
    "InvalidCall",
    "InvalidEntityId",
    "NotSerializable",
    "PartiallyApplied",
    "ProjectionError",
    "Rejected",
    "ShardingError",
    "Stored",
    "SubjectErased",
    "Unavailable",
    "UnreadableEvent",
    "UnreadableState",
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
    "arguments_too_large": "nothing",
    "not_encodable": "nothing",
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
    "overtaken": "nothing",
    "home_died": "unknown",
    "poisonous": "unknown",
    "event_unreadable": "nothing",
    "history_too_long": "nothing",
    "state_unreadable": "nothing",
    "subject_erased": "nothing",
    "events_gone": "nothing",
    "entity_erased": "nothing",
    "projection": "nothing",
    "other_server": "nothing",
    "parked": "nothing",
    "paused": "nothing",
    "sources_changed": "nothing",
    "not_cleared": "nothing",
    "being_reset": "nothing",
    "no_commits": "nothing",
    "unknown_projection": "nothing",
    "wrong_context": "nothing",
    "state_changed": "nothing",
    "call_cycle": "nothing",
    "deadlock": "nothing",
    "declaration_error": "nothing",
    "sharding_error": "unknown",
}
"""The effect on the journal of a call that failed with this code. An earlier call with the same
command id may have stored more. An unlisted code is from a later release: its effect is unknown."""


class WireError(NamedTuple):
    """An error on the wire: plain values only."""

    kind: str
    message: str
    params: dict[str, Any]


class ShardingError(Exception):
    """The base of all errors of this app."""

    kind: ClassVar[str] = "sharding_error"
    retryable: ClassVar[bool] = False
    speaks_for_itself: ClassVar[bool] = True
    "The text is this app's and quotes no user data: it may be shown anywhere."
    _came_by_wire = False

    def __init__(
        self, message: str = "", code: str | None = None, params: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.kind if code is None else code
        self.params: dict[str, Any] = {} if params is None else params

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # A user's class may have a constructor that never calls ours.
            if name not in _FRAMEWORK:
                raise AttributeError(f"{type(self).__qualname__!r} has no attribute {name!r}")
            return {"message": "", "code": self.kind, "params": {}}[name]

    @property
    def stored(self) -> Stored:
        """The effect of this call on the journal: "nothing", "partly" or "unknown".

        If it is "unknown", ask again with the same command id.
        """
        return STORED.get(self.code, "unknown")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with `args`, which a subclass's own __init__ may not
        # take.
        return _rebuild, (type(self), self.message, self.code, self.params, _own_attributes(self))


class Rejected(ShardingError):
    """The entity refused the command; nothing was changed. `message` is meant for the user.

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
    """No reply arrived in time; the command may or may not have taken effect.

    Ask again with the same ``command_id`` to find out, or use a longer ``timeout``.
    """

    kind = "ask_timeout"
    retryable = True


class BufferFull(ShardingError):
    """A bounded buffer was full and the message was not accepted. Slow down and try again."""

    kind = "buffer_full"
    retryable = True


class Unavailable(ShardingError):
    """The call cannot be handled now: no node hosts the type, or a server cannot be reached."""

    kind = "unavailable"
    retryable = True


class EntityFailed(ShardingError):
    """The entity's handler raised an exception; nothing that it staged was stored.

    The message names type, id, command and the exception's class. It contains the exception's text
    only if `QUOTE_ERRORS` (default: as DEBUG) allows it, since the text may be confidential.
    """

    kind = "entity_failed"


class PartiallyApplied(EntityFailed):
    """The command failed after it had committed some of its events; these stay."""

    kind = "partly_applied"


class InvalidCall(ShardingError, TypeError):
    """The call does not fit the entity: an unknown command, or wrong arguments."""

    kind = "bad_call"


class InvalidEntityId(ShardingError, TypeError, ValueError):
    """Not an entity id: use a str, int or UUID of 1 to 512 bytes of UTF-8 without NUL."""

    kind = "bad_entity_id"


class NotSerializable(ShardingError, ValueError):
    """A value that cannot be sent or stored without change. The message names the field."""

    kind = "not_storable"


class SubjectErased(NotSerializable):
    """A command stored personal data of a person who was erased (`erase_subject`): nothing of it is
    stored.

    Erasing is for good. A person who comes back needs another id.
    """

    kind = "subject_erased"


class UnreadableEvent(ShardingError):
    """The journal has an event that this code cannot read or apply; the entity does not start.

    Restore the event class, add an upcaster, or list its name in the class's ``ignore_events``.
    """

    kind = "event_unreadable"


class HistoryTooLong(UnreadableEvent):
    """An entity has more events after its last snapshot than a recovery may read; it does not
    start.

    The message names the setting to raise. ``snapshot_every`` avoids this: a recovery reads only
    the events after the last snapshot.
    """

    kind = "history_too_long"


class UnreadableState(ShardingError):
    """A stored state or snapshot does not fit the class's annotated attributes."""

    kind = "state_unreadable"


class EventsGone(ShardingError):
    """The events after a follower's last one are deleted (``delete_events``): it was away too long.

    `params["first"]` is the number of the first event that is left.
    """

    kind = "events_gone"


class EntityErased(EventsGone):
    """The history that was followed is gone: the entity was erased or archived, or the server
    lost its tail.

    Follow it from the start, ``events(after=0)``, after dropping what was made of its events.
    """

    kind = "entity_erased"


class ProjectionError(ShardingError):
    """A projection cannot go on, or does not show an entity: the code and the message say why."""

    kind = "projection"
    stored: Stored = "nothing"  # it reads the journal, and writes none of it


class WrongContext(ShardingError, RuntimeError):
    """A valid call in the wrong place, such as ``.sync`` on a thread with a running event loop."""

    kind = "wrong_context"


class DeclarationError(ShardingError, TypeError):
    """A wrong declaration of an entity, event or message class; the message names the fix."""

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
        PartiallyApplied,
        InvalidCall,
        InvalidEntityId,
        NotSerializable,
        SubjectErased,
        UnreadableEvent,
        HistoryTooLong,
        UnreadableState,
        EventsGone,
        EntityErased,
        ProjectionError,
        WrongContext,
        DeclarationError,
    )
}
_FRAMEWORK = frozenset({"message", "code", "params"})
_DEPTH = 8


def to_wire(error: BaseException) -> WireError:
    """Return the wire form of `error`; another class becomes an `EntityFailed` with its name.

    So does an error of ours that cannot be read: its params may hold an object that raises when it
    is shown, for example.
    """
    if isinstance(error, ShardingError):
        try:
            return _ours_to_wire(error)
        except BaseException as unreadable:  # noqa: BLE001  (a user's code may raise anything)
            why = f"{told(error)}, which cannot be sent: {told(unreadable)}"
            return _failed_to_wire(error, why)
    return _failed_to_wire(error, told(error))


def _failed_to_wire(error: BaseException, text: str) -> WireError:
    return WireError(EntityFailed.kind, _text(text), {"params": {"error": _text(type(error).__qualname__)}})


def _ours_to_wire(error: ShardingError) -> WireError:
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
    """Return the error of that wire form, without imports and without running user constructors."""
    extra = params or {}
    cls: type[ShardingError] = _KINDS.get(kind, ShardingError)
    own: Any = None
    if cls is Rejected and "class" in extra:
        cls = _rejected_class(extra["class"])
        own = extra.get("own") if cls is not Rejected else None
    code = extra.get("code")
    if code is None and kind not in _KINDS:
        code = kind
    try:
        error = _rebuild(cls, message, code, extra.get("params"), own)
        error._came_by_wire = True
    except BaseException:  # noqa: BLE001  (a user's class may refuse to be made, or to be written to)
        error = _rebuild(Rejected, message, code, extra.get("params"), None)
        error._came_by_wire = True
    return error


def came_by_wire(error: ShardingError) -> bool:
    """Tell whether the node of the called entity has told the error. Others are made here."""
    return error._came_by_wire


def _rejected_class(path: object) -> type[Rejected]:
    """Return the imported subclass of that path, or `Rejected` if it is not imported here."""
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
    """Return `value` as text that every codec accepts, so that every error can be sent."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: Any, depth: int) -> Any:
    """Return `value` made of plain values; others become text."""
    if value is None or type(value) in (bool, float, bytes):
        return value
    if type(value) is int and -(2**63) <= value < 2**64:
        return value
    if depth and isinstance(value, dict):
        return {_text(key): _plain(item, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth - 1) for item in value]
    return _text(value)
