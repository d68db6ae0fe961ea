"""Timers of entities: each that is started rings once, not too early, and not after its object.

The entities report to it (`particular.Alarm`), by the clock of their process. A command that a
timer has put into the mailbox outlives its object. So a ring counts as a mistake only if the timer
was not due while its object lived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.entities.base import Entity

ROUNDING_SECONDS = 1e-6


@dataclass(slots=True)
class Timer:
    token: str
    object: Entity
    loop: asyncio.AbstractEventLoop
    due: float
    stopped: bool = False
    "It was put off, or replaced, before its time."
    rung: bool = False


class Timers:
    def __init__(self, broke: Callable[[PromiseBroken], None]) -> None:
        self._broke = broke
        self._all: dict[str, Timer] = {}
        self._present: dict[Entity, Timer] = {}
        "Timers that will ring, by their object."
        self._made: dict[Entity, float] = {}
        "Time at which each object came into memory."

    def object_is_made(self, entity: Entity) -> None:
        self._made[entity] = asyncio.get_running_loop().time()

    def is_started(self, entity: Entity, token: str, seconds: float) -> str:
        """Note that a handler has started its object's timer, in the place of any former one.

        Return the token for its ring. A command that stores nothing may run again after its node
        has died, and then its timer rings again: as another one.
        """
        loop = asyncio.get_running_loop()
        self._stop(entity)
        former = self._all.get(token)
        if former is not None and former.loop is not loop:
            token = f"{token}, started again {loop.time():.6f}"
        timer = Timer(token, entity, loop, loop.time() + seconds)
        self._all[token] = self._present[entity] = timer
        return token

    def is_put_off(self, entity: Entity) -> None:
        """Note that a handler has cancelled its timer, which will not ring."""
        self._stop(entity)

    def rings(self, entity: Entity, token: str) -> None:
        timer, loop = self._all[token], asyncio.get_running_loop()
        if timer.loop is not loop or (timer.object is not entity and self._made[entity] < timer.due):
            self._fail("a_timer_ends_with_its_object", timer, entity)
        elif timer.rung:
            self._fail("a_timer_rings_once", timer, entity)
        elif timer.stopped:
            self._fail("a_timer_is_put_off", timer, entity)
        elif loop.time() < timer.due - ROUNDING_SECONDS:
            self._fail("a_timer_rings_in_time", timer, entity)
        timer.rung = True

    def has_rung(self, token: str) -> bool:
        return token in self._all and self._all[token].rung

    def _stop(self, entity: Entity) -> None:
        former = self._present.pop(entity, None)
        if former is not None and asyncio.get_running_loop().time() < former.due - ROUNDING_SECONDS:
            former.stopped = True

    def _fail(self, name: str, timer: Timer, entity: Entity) -> None:
        detail = f"the timer of {timer.token!r} rings at {asyncio.get_running_loop().time():.3f}, due at {timer.due:.3f}"
        made = type(entity)._sharding_type
        about = f"{made.name}/{entity.entity_id}" if made is not None else None
        self._broke(PromiseBroken(0, name, detail, about))
