"""`Remote`: one handler of one entity, callable from any process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import msgspec

from sharding_app.entities import gateway, transactions
from sharding_app.errors import InvalidCall, WrongContext

if TYPE_CHECKING:
    from sharding_app.entities.handler import Handler
    from sharding_app.entities.refs import BoundRef

P = ParamSpec("P")
R = TypeVar("R")


class Remote(msgspec.Struct, Generic[P, R], eq=False):
    """A handler of an entity: a call returns a coroutine with the reply; ``tell`` wants none."""

    _handler: Handler
    _ref: BoundRef

    @property
    def name(self) -> str:
        """The handler's name."""
        return self._handler.name

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
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

    def __repr__(self) -> str:
        return f"<{self._ref!r}.{self._handler.name}>"


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

    def __repr__(self) -> str:
        return f"<{self._ref!r}.{self._handler.name}>"


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
