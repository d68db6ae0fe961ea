"""`self.context`: the host's services to an entity."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.messages import encode_message
from sharding_app.entities.registry import registry
from sharding_app.entities.remote import Unbound
from sharding_app.errors import InvalidCall
from sharding_app.protocol.builtin_commands import MESSAGE
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.shard import Work
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.base.interfaces import NO_CALLER
from sharding_app.runtime.journal.commits import Resident

T = TypeVar("T")
Call = Callable[[Resident, str, bytes], None]
"""Delivers a command to an entity here, through its mailbox."""


class HostContext:
    """The context of one object in memory.

    Timers are made only when used, and end with the object.
    """

    __slots__ = ("_call", "_finished", "_loop", "_slot", "_timers", "_type", "now", "workers")

    def __init__(
        self,
        entity_type: EntityType,
        slot: Resident,
        call: Call,
        finished: Callable[[Resident], None],
        now: Callable[[], datetime],
        workers: int = 0,
    ) -> None:
        """`finished` goes on with an entity that does nothing, and has to stop."""
        self.now = now
        self.workers = workers
        self._type = entity_type
        self._slot = slot
        self._call = call
        self._finished = finished
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] | None = None

    @property
    def type_name(self) -> str:
        return self._type.name

    @property
    def ref(self) -> Any:
        return self._type.ref_class(self._slot.id)

    @property
    def sender(self) -> Any:
        """Ref of the entity whose command led to this one, or None."""
        found = call_chain.sender()
        return None if found is None else registry.get(found[0]).ref_class(found[1])

    def stop(self) -> None:
        self._slot.ended = True

    def passivate(self, stop_message: object | None = None) -> None:
        message = self._type.settings.stop_message if stop_message is None else stop_message
        self._on_loop(lambda: self._passivate(message))

    def start_timer(self, key: str, seconds: float, call: Any, /, *args: Any, **kwargs: Any) -> None:
        """Start a timer. A timer that a failing handler started is cancelled with its object."""
        if not 0 <= seconds < float("inf"):
            raise InvalidCall(f"seconds must be a number from 0 on, not {seconds!r}")
        name, data = timer_call(self._type, call, args, kwargs)
        self._on_loop(lambda: self._start(key, seconds, name, data))

    def cancel_timer(self, key: str) -> bool:
        return self._on_loop(lambda: self._cancel(key))

    def close(self) -> None:
        """Cancel the timers: the object is dropped.

        Its handler may still run. A timer that this handler starts is not delivered.
        """
        for timer in (self._timers or {}).values():
            timer.cancel()
        self._timers = None
        self._call = _nowhere

    def _passivate(self, message: object | None) -> None:
        slot = self._slot
        if slot.shard.passivate(slot, None if message is None else last_word(slot, message)):
            # No handler of it runs, so none will end: a task that one left behind asks for it.
            self._finished(slot)

    def _start(self, key: str, seconds: float, name: str, data: bytes) -> None:
        self._cancel(key)
        if self._timers is None:
            self._timers = {}
        self._timers[key] = self._loop.call_later(seconds, self._fire, key, name, data)

    def _cancel(self, key: str) -> bool:
        timer = self._timers.pop(key, None) if self._timers else None
        if timer is None:
            return False
        timer.cancel()
        return True

    def _on_loop(self, work: Callable[[], T]) -> T:
        """Work on the loop, also for a handler that runs in a thread."""
        if asyncio._get_running_loop() is self._loop:
            return work()
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  (else the handler would wait for ever)
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result()

    def _fire(self, key: str, command: str, data: bytes) -> None:
        if self._timers and self._timers.pop(key, None) is not None:
            self._call(self._slot, command, data)


def timer_call(
    entity_type: EntityType, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, bytes]:
    """Return the command and the encoded arguments that a timer calls."""
    if isinstance(call, Unbound):
        handler = entity_type.commands.get(call.name)
        if handler is not None and issubclass(entity_type.cls, call.owner):
            data = handler.encode(args, kwargs)
            handler.decode(data)  # a wrong argument raises now, not when the timer fires
            return handler.name, data
    elif entity_type.receives and hasattr(type(call), "__sharding_message__") and not args and not kwargs:
        return MESSAGE, msgspec.msgpack.encode(encode_message(call))
    example = f"{entity_type.cls.__name__}.{next(iter(entity_type.commands), 'expire')}"
    raise InvalidCall(f"start_timer takes a command of {entity_type.name}, such as {example}, not {call!r}")


def _nowhere(slot: Resident, command: str, args: bytes) -> None:
    """Deliver nothing."""


def last_word(slot: Resident, message: object) -> Work:
    """Return a stop message as an envelope without a caller."""
    shard = slot.shard
    args = msgspec.msgpack.encode(encode_message(message))
    return NO_CALLER, Deliver(shard.type, shard.number, shard.epoch, slot.id, 0, MESSAGE, args)


def close_context(entity: object) -> None:
    """Cancel the timers of an object that is dropped, if there is one."""
    context = None
    with contextlib.suppress(BaseException):  # the user's class may have an attribute of that name
        context = getattr(entity, "context", None)
    if isinstance(context, HostContext):
        context.close()
