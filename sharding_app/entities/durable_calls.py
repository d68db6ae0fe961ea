"""``self.send``, ``self.schedule``, ``self.cancel``: durable messages and timers of a command are
checked and staged.

All errors are raised at the call, in the handler: what is staged can be stored, and delivered.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from sharding_app.entities import schedules
from sharding_app.entities.failure import Failure
from sharding_app.entities.handlers import OnSelf
from sharding_app.entities.identifiers import timer_key
from sharding_app.entities.refs import EntityRef
from sharding_app.entities.registry import registry
from sharding_app.entities.remote import Bound, Remote, Unbound, encoded, refuse_undurable
from sharding_app.entities.staging import STAGED_LIMIT, StagedMessage, Staging
from sharding_app.errors import InvalidCall, WrongContext

if TYPE_CHECKING:
    from sharding_app.entities.context import EntityContext
    from sharding_app.entities.entity_type import EntityType
    from sharding_app.entities.handler import Handler

R = TypeVar("R")


class Entity(Protocol):
    """An entity (`entities.base.Entity`), as far as it is used here."""

    entity_id: str
    context: EntityContext
    _sharding_staging: Staging | None

    @property
    def _sharding_type(self) -> EntityType | None: ...


class Sent(Generic[R]):
    """A staged message: it can be told where its answer goes, until it is committed."""

    __slots__ = ("_entity", "_message", "_messages", "_staging")

    def __init__(self, entity: Entity, staging: Staging, message: StagedMessage) -> None:
        self._entity = entity
        self._staging = staging
        self._messages = staging.messages
        self._message = message

    def reply_to(self, command: Callable[[R], object] | Callable[[], object]) -> Self:
        """Have a command of this entity called with the target's result, as in
        ``.reply_to(self.paid)``.

        The call is a durable message too. A command without arguments is only called.
        """
        handler = own_command(self._entity, command, "reply_to")
        return self._change(self._message._replace(reply_to=handler.name))

    def on_failure(self, command: Callable[[Failure], object] | Callable[[], object]) -> Self:
        """Have a command of this entity called with a `Failure` if the target refuses the message,
        or fails too often.

        Without one the message is parked, where an operator sees it.
        """
        handler = own_command(self._entity, command, "on_failure")
        return self._change(self._message._replace(on_failure=handler.name))

    def _change(self, changed: StagedMessage) -> Self:
        messages, staging = self._messages, self._staging
        # Mostly it is the last one.
        for place in reversed(range(len(messages))):
            if messages[place] is self._message and messages is staging.messages:
                self._message = messages[place] = changed
                return self
        raise WrongContext(
            f"the message to {self._message.target_type} {self._message.target!r} is committed already:"
            " name its handlers where it is sent"
        )

    def __repr__(self) -> str:
        message = self._message
        return f"<{message.command} sent to {message.target_type} {message.target!r}>"


def send(entity: Entity, call: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sent[Any]:
    """Stage a durable message."""
    staging = _staging(entity, "send")
    if not isinstance(call, Remote):
        raise InvalidCall(_not_a_target(entity, call))
    ref, handler = call._ref, call._handler
    _refuse_unknown(ref)
    refuse_undurable(ref, handler)
    message = StagedMessage(ref.type_name, ref.entity_id, handler.name, encoded(handler, args, kwargs))
    _stage(staging, message)
    return Sent(entity, staging, message)


def schedule(
    entity: Entity,
    call: object,
    key: str,
    at: datetime | None,
    after: float | timedelta | None,
    every: object,
    missed: str,
) -> None:
    """Stage a durable timer. It takes the place of one with the same key."""
    staging = _staging(entity, "schedule")
    key = timer_key(key)
    handler, args = _own_call(entity, call)
    moment: datetime | None = None
    delay, spec = 0.0, None
    if every is not None:
        if at is not None or after is not None:
            raise InvalidCall("say when in one way: every= alone repeats, at= and after= fire once")
        spec = schedules.recurrence(every, missed).encode()
    else:
        if missed != "once":
            raise InvalidCall("missed= is about timers that repeat: use it with every=")
        moment, delay = schedules.moment(at, after)
    put_timer(entity, staging, handler.name, args, key, moment, delay, spec)


def put_timer(
    entity: Entity,
    staging: Staging,
    command: str,
    args: bytes,
    key: str,
    at: datetime | None,
    delay: float,
    every: str | None,
) -> None:
    """Stage a timer, in the place of one with the same key that this command has staged."""
    own = own_ref(entity)
    _forget(staging, key)
    if key in staging.cancelled:
        staging.cancelled.remove(key)
    _stage(
        staging,
        StagedMessage(own.type_name, own.entity_id, command, args, key=key, at=at, delay=delay, every=every),
    )


def cancel(entity: Entity, key: str) -> None:
    """Stage the end of a timer; there may be none with that key."""
    staging = _staging(entity, "cancel")
    drop_timer(staging, timer_key(key))


def drop_timer(staging: Staging, key: str) -> None:
    """Stage the end of a timer, staged just now or stored before."""
    _forget(staging, key)
    if key not in staging.cancelled:
        _refuse_too_many(staging)
        staging.cancelled.append(key)


def after_commit(entity: Entity, function: Callable[[], object]) -> None:
    """Stage a function that runs after the commit."""
    staging = _staging(entity, "after_commit")
    given: object = function
    if not callable(given):
        raise InvalidCall(f"after_commit() takes a function without arguments, not {function!r}")
    if isinstance(given, (Remote, OnSelf, Unbound)):
        raise InvalidCall(
            f"after_commit({given!r}) would be lost with its node: use self.send(...), which is"
            " stored with the events"
        )
    _refuse_too_many(staging)
    staging.after_commit.append(function)


def own_ref(entity: Entity) -> EntityRef[Any]:
    """Return the ref of an entity to itself."""
    context: EntityContext | None = entity.context
    if context is not None:
        return context.ref  # type: ignore[no-any-return]
    made = entity._sharding_type
    if made is None:
        raise InvalidCall(f"{type(entity).__qualname__} is abstract: it has no refs")
    return made.ref_class(entity.entity_id)


def own_command(entity: Entity, call: object, what: str) -> Handler:
    """Return the command of this entity that `call` names, however it is written."""
    own = own_ref(entity)
    name = ""
    if isinstance(call, (OnSelf, Unbound)) and issubclass(type(entity), call.owner):
        name = call.name
    elif isinstance(call, Remote) and call._ref == own:
        name = call._handler.name
    handler = own.entity_type.commands.get(name)
    if handler is None:
        cls = type(entity).__qualname__
        raise InvalidCall(
            f"{what} names a command of {cls} itself, such as self.{_example(own)}, not {call!r}"
        )
    if handler.is_query:
        raise InvalidCall(f"{what}: {handler.name} is a query, which can change nothing: name a command")
    return handler


def _own_call(entity: Entity, call: object) -> tuple[Handler, bytes]:
    if isinstance(call, Bound):
        remote: Remote[..., Any] = Remote(call.handler, call.ref)
        return own_command(entity, remote, "call="), call.args
    handler = own_command(entity, call, "call=")
    try:
        return handler, encoded(handler, (), {})
    except InvalidCall as error:
        raise InvalidCall(
            f"{error}. For a command with arguments use call=self.ref.{handler.name}.bind(...)"
        ) from error


def _staging(entity: Entity, what: str) -> Staging:
    staging = entity._sharding_staging
    if staging is None:
        raise WrongContext(
            f"{what}() can only be called while a command handler runs: not in a query, an applier, __init__"
            " or @on_start, and not after the handler has returned"
        )
    return staging


def _stage(staging: Staging, message: StagedMessage) -> None:
    _refuse_too_many(staging)
    staging.messages.append(message)


def _refuse_too_many(staging: Staging) -> None:
    staged = len(staging.messages) + len(staging.cancelled) + len(staging.after_commit)
    if staged >= STAGED_LIMIT:
        raise InvalidCall(
            f"more than {STAGED_LIMIT:,} messages, timers and cancellations in one commit: split the work, for"
            " example with a message to this entity itself that goes on with the rest"
        )


def _forget(staging: Staging, key: str) -> None:
    for place, each in enumerate(staging.messages):
        if each.key == key:
            del staging.messages[place]
            return


def _refuse_unknown(ref: Any) -> None:
    """Refuse a ref whose type has been given another name since: no node hosts the old one."""
    known = ref.entity_type.cls._sharding_type
    if (known is None or known.name != ref.type_name) and ref.type_name not in registry.all():
        raise InvalidCall(
            f"{ref!r} is of {ref.type_name!r}, which is not declared here any more: make the ref again"
        )


def _not_a_target(entity: Entity, call: object) -> str:
    if isinstance(call, OnSelf):
        return f"send(self.{call.name}): name yourself as the target: self.send(self.ref.{call.name}, ...)"
    if isinstance(call, Unbound):
        return (
            call._message().partition(":")[0]
            + f": self.send({call.owner.__qualname__}.ref(id).{call.name}, ...)"
        )
    if isinstance(call, Bound):
        return f"send({call!r}): give the arguments to send() itself, after the command"
    cls = type(entity).__qualname__
    return f"send() takes a command of a ref and its arguments, such as {cls}.ref(id).{_example(own_ref(entity))}, not {call!r}"


def _example(own: EntityRef[Any]) -> str:
    commands = own.entity_type.commands.items()
    return next((name for name, handler in commands if not handler.is_query), "close")
