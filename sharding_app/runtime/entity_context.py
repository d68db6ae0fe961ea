"""`self.context`: what an entity may ask of its host."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Slot, Work
from sharding_app.core.words import MESSAGE
from sharding_app.errors import BadCall
from sharding_app.model.message import encode_message
from sharding_app.model.registry import registry
from sharding_app.model.types import EntityType
from sharding_app.runtime import calls

Call = Callable[[Slot, str, bytes], None]
"""Delivers a command to an entity here, through its mailbox."""


class HostContext:
    """One for each object in memory; timers are made only when used and end with the object."""

    __slots__ = ("_call", "_slot", "_timers", "_type")

    def __init__(self, entity_type: EntityType, slot: Slot, call: Call) -> None:
        self._type = entity_type
        self._slot = slot
        self._call = call
        self._timers: dict[str, asyncio.TimerHandle] | None = None

    @property
    def type_name(self) -> str:
        return self._type.name

    @property
    def sender(self) -> Any:
        """A ref of the entity whose command led to this one, or None."""
        chain = calls.chain()
        if len(chain) < 2:
            return None
        type_name, _, entity_id = chain[-2].partition("/")
        return registry.get(type_name).ref_class(entity_id)

    def stop(self) -> None:
        self._slot.ended = True

    def passivate(self, stop_message: object | None = None) -> None:
        message = self._type.settings.stop_message if stop_message is None else stop_message
        self._slot.shard.passivate(self._slot, None if message is None else last_word(self._slot, message))

    def start_timer(self, key: str, seconds: float, call: Any, /, *args: Any, **kwargs: Any) -> None:
        name = getattr(call, "name", None)
        if not isinstance(name, str) or name not in self._type.commands:
            raise BadCall(
                f"start_timer takes a command of {self._type.name}, such as {self._type.cls.__name__}.expire"
            )
        if not 0 <= seconds < float("inf"):
            raise BadCall(f"seconds must be a number from 0 on, not {seconds!r}")
        data = self._type.commands[name].encode(args, kwargs)
        self.cancel_timer(key)
        if self._timers is None:
            self._timers = {}
        self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._fire, key, name, data)

    def cancel_timer(self, key: str) -> bool:
        timer = self._timers.pop(key, None) if self._timers else None
        if timer is None:
            return False
        timer.cancel()
        return True

    def close(self) -> None:
        """The object is thrown away."""
        for timer in (self._timers or {}).values():
            timer.cancel()
        self._timers = None

    def _fire(self, key: str, command: str, data: bytes) -> None:
        if self._timers and self._timers.pop(key, None) is not None:
            self._call(self._slot, command, data)


def last_word(slot: Slot, message: object) -> Work:
    """A stop message as an envelope that nobody waits for."""
    shard = slot.shard
    args = msgspec.msgpack.encode(encode_message(message))
    return "", Deliver(shard.type, shard.number, shard.epoch, slot.id, 0, MESSAGE, args)
