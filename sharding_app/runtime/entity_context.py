"""`self.context`: what an entity may ask of its host."""

import asyncio
from collections.abc import Callable
from typing import Any

from sharding_app.core.shard import Slot
from sharding_app.errors import BadCall
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
        self._slot.passivating = True

    def passivate(self, stop_message: object | None = None) -> None:
        self._slot.passivating = True

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
