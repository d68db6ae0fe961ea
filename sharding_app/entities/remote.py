"""`Remote`: one handler of one entity, callable from any process."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import msgspec
from asgiref.sync import markcoroutinefunction

from sharding_app.entities import following, gateway, schedules, transactions
from sharding_app.entities.staging import StagedMessage
from sharding_app.errors import InvalidCall, WrongContext
from sharding_app.redaction import shown

if TYPE_CHECKING:
    from sharding_app.entities.handler import Handler
    from sharding_app.entities.refs import BoundRef

LATER = "?later:"
"""Begins the keys of timers from outside. No key of a user's begins with a question mark."""

P = ParamSpec("P")
R = TypeVar("R")


class Bound(msgspec.Struct, eq=False):
    """A command of an entity with its arguments, for a timer: ``self.ref.remind.bind("x")``.

    Two are equal if they mean the same call.
    """

    handler: Handler
    ref: BoundRef
    args: bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bound):
            return NotImplemented
        return (self.ref, self.handler.name, self.args) == (other.ref, other.handler.name, other.args)

    def __hash__(self) -> int:
        return hash((self.ref, self.handler.name, self.args))

    def __repr__(self) -> str:
        given = ", ".join(shown(each) for each in self.handler.decode(self.args))
        return f"{self.ref!r}.{self.handler.name}.bind({given})"


class Remote(msgspec.Struct, Generic[P, R], eq=False):
    """A handler of an entity: a call returns a coroutine with the reply; ``tell`` wants none."""

    _handler: Handler
    _ref: BoundRef

    @property
    def name(self) -> str:
        """The handler's name."""
        return self._handler.name

    if TYPE_CHECKING:

        async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    else:

        def __call__(self, *args, **kwargs):
            asked = self._ask(args, kwargs)
            # Python's warning about a forgotten await then names the command.
            asked.__qualname__ = self._handler.label
            return asked

    async def _ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        ref, handler = self._ref, self._handler
        call = ref._ref_ask(handler.name, handler.encode(args, kwargs))
        if (connection := transactions.find_open()) is not None:
            transactions.warn(connection, ref, handler.name)
        reply = await gateway.current().ask(call)
        return handler.decode_result(reply)  # type: ignore[no-any-return]

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send without waiting for a reply, from any thread.

        Inside ``transaction.atomic()`` it is sent at commit, unless the ref says
        ``on_commit=False``.
        """
        ref, handler = self._ref, self._handler
        call = ref._ref_tell(handler.name, handler.encode(args, kwargs))

        def send() -> None:
            gateway.current().tell(call)

        if not (ref._ref_on_commit and transactions.at_commit(send)):
            send()

    def durably(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[None]:
        """Store the call as a durable message: it takes effect exactly once.

        Inside ``transaction.atomic()`` on the cluster's database it commits with it. In async code
        await it: it is stored then.
        """
        return _stored(StagedMessage(*_message(self._ref, self._handler, args, kwargs)))

    @overload
    def later(self: Callable[[], object], /, *, at: datetime) -> Awaitable[None]: ...
    @overload
    def later(self: Callable[[], object], /, *, after: float | timedelta) -> Awaitable[None]: ...
    @overload
    def later(self, when: datetime | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[None]: ...
    def later(self, /, *args: Any, **kwargs: Any) -> Awaitable[None]:
        """Store the call as a durable timer: ``close.later(at=...)``, ``close.later(after=60)``.

        A command with arguments takes the time first: ``remind.later(when, "x")``. Otherwise as
        `durably`.
        """
        return _stored(_timer(self._ref, self._handler, args, kwargs))

    def changes(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        """Follow a query: its value now, and again whenever it is another one, for ever.

        The query is asked again after each commit of the entity (in-memory entities: after each
        command). Values in between may be left out, the latest comes.
        """
        ref, handler = self._ref, self._handler
        _check_query(ref, handler)
        raw = handler.encode(args, kwargs)
        return following.changes(ref, handler.decode_result, lambda: ref._ref_ask(handler.name, raw))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound:
        """Return the command with these arguments, for ``self.schedule(call=...)``."""
        return Bound(self._handler, self._ref, encoded(self._handler, args, kwargs))

    def __repr__(self) -> str:
        return f"<{self._ref!r}.{self._handler.name}>"


# `async_to_sync(ref.add)` asks for it.
markcoroutinefunction(Remote.__call__)


class SyncRemote(msgspec.Struct, eq=False):
    """The same for code without an event loop: a call returns the reply."""

    _handler: Handler
    _ref: BoundRef

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ref, handler = self._ref, self._handler
        refuse_on_loop(ref, handler.name)
        call = ref._ref_ask(handler.name, handler.encode(args, kwargs))
        if (connection := transactions.find_open()) is not None:
            transactions.warn(connection, ref, handler.name)
        reply = gateway.current().ask_sync(call)
        return handler.decode_result(reply)

    def durably(self, *args: Any, **kwargs: Any) -> None:
        """Store the call as a durable message, as `Remote.durably` does."""
        refuse_on_loop(self._ref, f"{self._handler.name}.durably")
        message = StagedMessage(*_message(self._ref, self._handler, args, kwargs))
        gateway.current().store_sync(message)

    def later(self, /, *args: Any, **kwargs: Any) -> None:
        """Store the call as a durable timer, as `Remote.later` does."""
        refuse_on_loop(self._ref, f"{self._handler.name}.later")
        gateway.current().store_sync(_timer(self._ref, self._handler, args, kwargs))

    def changes(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Iterator[Any]:
        """Follow a query, as `Remote.changes` does, until its value stays the same for `timeout`
        seconds.
        """
        ref, handler = self._ref, self._handler
        refuse_on_loop(ref, f"{handler.name}.changes")
        _check_query(ref, handler)
        raw = handler.encode(args, kwargs)
        return following.changes_sync(
            ref, handler.decode_result, lambda: ref._ref_ask(handler.name, raw), timeout
        )

    def __repr__(self) -> str:
        return f"<{self._ref!r}.{self._handler.name}>"


def encoded(handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Encode arguments that are stored: one that does not fit raises now, not at the target."""
    data = handler.encode(args, kwargs)
    handler.decode(data)
    return data


def refuse_undurable(ref: BoundRef, handler: Handler) -> None:
    """Raise `InvalidCall` if that cannot be a durable message."""
    if handler.is_query:
        raise InvalidCall(
            f"{ref!r}.{handler.name} is a query, whose answer would reach no caller:"
            " a durable message calls a command"
        )
    if ref._ref_command_id is not None:
        raise InvalidCall(
            f"{ref!r} has a command_id, but a durable message has an id of its own,"
            " and takes effect exactly once without one"
        )


def _message(
    ref: BoundRef, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, str, str, bytes]:
    refuse_undurable(ref, handler)
    return ref.type_name, ref.entity_id, handler.name, encoded(handler, args, kwargs)


def _timer(ref: BoundRef, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StagedMessage:
    """Return the timer of ``later(when, *args, **kwargs)``, ``later(at=...)`` or
    ``later(after=...)``.
    """
    at: object = kwargs.pop("at", None) if not args else None
    after: object = kwargs.pop("after", None) if not args else None
    if args:
        when, args = args[0], args[1:]
        at, after = (None, when) if isinstance(when, timedelta) else (when, None)
    elif kwargs:
        raise InvalidCall(
            f"{ref!r}.{handler.name}.later: a command with arguments takes the time first:"
            f" {handler.name}.later(when, ...), with a datetime or a timedelta"
        )
    moment, delay = schedules.moment(at, after)
    # A key of its own: a message would hold up those that are staged after it.
    key = LATER + secrets.token_hex(16)
    return StagedMessage(*_message(ref, handler, args, kwargs), key=key, at=moment, delay=delay)


def _stored(message: StagedMessage) -> Awaitable[None]:
    carrier = gateway.current()
    if asyncio._get_running_loop() is not None:
        return carrier.store(message)
    carrier.store_sync(message)
    return Done()


class Done:
    """Awaited, it returns at once: the work is done."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


def refuse_on_loop(ref: BoundRef, name: str) -> None:
    """Refuse a blocking ask on a thread whose loop runs: it would stop that loop, and often wait
    for itself.
    """
    if asyncio._get_running_loop() is not None:
        plain = f"{ref.entity_type.cls.__qualname__}.ref({ref.entity_id!r})"
        raise WrongContext(
            f"{plain}.sync.{name}() would block the event loop of this thread:"
            f" use `await {plain}.{name}(...)`"
        )


class Unbound:
    """``Cart.add`` without a ref: a name for timers, an error when it is called."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: type[Any], name: str) -> None:
        self.owner = owner
        self.name = name

    def __call__(self, *args: object, **kwargs: object) -> Coroutine[Any, Any, Any]:
        raise InvalidCall(self._message())

    def tell(self, *args: object, **kwargs: object) -> None:
        """Raise an error: there is no entity to tell."""
        raise InvalidCall(self._message())

    def _message(self) -> str:
        cls = self.owner.__qualname__
        return f"{cls}.{self.name} needs an id: call {cls}.ref(id).{self.name}(...)"

    def __repr__(self) -> str:
        return f"<{self.owner.__qualname__}.{self.name}, of no entity yet>"


def _check_query(ref: BoundRef, handler: Handler) -> None:
    """Refuse to follow a command."""
    if not handler.is_query:
        raise InvalidCall(f"{ref!r}.{handler.name} is a command: only the value of a query can be followed")
