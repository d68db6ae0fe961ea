"""`Remote`: one handler of one entity, ready to be called from anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from sharding_app.errors import BadCall, WrongContext
from sharding_app.model import gateway, transactions

if TYPE_CHECKING:
    from sharding_app.model.handler import Handler
    from sharding_app.model.refs import BoundRef

P = ParamSpec("P")
R = TypeVar("R")


class Remote(Generic[P, R]):
    """Call it for a coroutine that gives the reply; ``tell`` wants none."""

    __slots__ = ("_handler", "_ref")

    def __init__(self, ref: BoundRef, handler: Handler) -> None:
        self._ref = ref
        self._handler = handler

    @property
    def name(self) -> str:
        """The handler's name."""
        return self._handler.name

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        ref, handler = self._ref, self._handler
        data = handler.encode(args, kwargs)
        if transactions.may_be_open():
            transactions.warn_if_open(ref, handler.name)
        reply = await gateway.current().ask(
            ref.type_name, ref._ref_id, handler.name, data, ref._ref_timeout, ref._ref_command_id
        )
        return handler.decode_result(reply)  # type: ignore[no-any-return]

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Send without waiting for a reply, from any thread.

        Inside ``transaction.atomic()`` it is sent at commit, unless the ref says ``on_commit=False``.
        """
        ref, handler = self._ref, self._handler
        data = handler.encode(args, kwargs)
        type_name, entity_id, command_id = ref.type_name, ref._ref_id, ref._ref_command_id
        name = handler.name

        def send() -> None:
            gateway.current().tell(type_name, entity_id, name, data, command_id)

        if not (ref._ref_on_commit and transactions.are_used() and transactions.at_commit(send)):
            send()

    def __repr__(self) -> str:
        return f"<{self._ref!r}.{self._handler.name}>"


class SyncRemote:
    """The same for code without an event loop: a call gives the reply itself."""

    __slots__ = ("_handler", "_ref")

    def __init__(self, ref: BoundRef, handler: Handler) -> None:
        self._ref = ref
        self._handler = handler

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ref, handler = self._ref, self._handler
        refuse_on_loop(ref, handler.name)
        data = handler.encode(args, kwargs)
        if transactions.may_be_open():
            transactions.warn_if_open(ref, handler.name)
        reply = gateway.current().ask_sync(
            ref.type_name, ref._ref_id, handler.name, data, ref._ref_timeout, ref._ref_command_id
        )
        return handler.decode_result(reply)

    def __repr__(self) -> str:
        return f"<{self._ref!r}.{self._handler.name}>"


def refuse_on_loop(ref: BoundRef, name: str) -> None:
    """A blocking ask on a thread whose loop runs would stop that loop, and often wait for itself."""
    if asyncio._get_running_loop() is not None:
        plain = f"{ref.entity_type.cls.__qualname__}.ref({ref.entity_id!r})"
        raise WrongContext(
            f"{plain}.sync.{name}() would block the event loop that runs on this thread:"
            f" write `await {plain}.{name}(...)`"
        )


class Unbound:
    """``Cart.add`` without a ref: a name for timers, an error when it is called."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: type[Any], name: str) -> None:
        self.owner = owner
        self.name = name

    def __call__(self, *args: object, **kwargs: object) -> Coroutine[Any, Any, Any]:
        raise BadCall(self._message())

    def tell(self, *args: object, **kwargs: object) -> None:
        """Nobody to tell."""
        raise BadCall(self._message())

    def _message(self) -> str:
        cls = self.owner.__qualname__
        return f"{cls}.{self.name} needs to know which one: call {cls}.ref(id).{self.name}(...)"

    def __repr__(self) -> str:
        return f"<{self.owner.__qualname__}.{self.name}, of no entity yet>"
