"""The judge of a singleton's `@every`: each of its times is taken once, and none is lost.

It learns from the commits of the server's table which timers are set, when one fires, and when it
is due next. The times themselves follow from the class alone: one timer repeats after an interval,
the other one fires daily at a time of day. Both make up once for the times that they missed.

* A timer is set at the first start, for the first of its times. No later start sets it anew.
* A firing takes a time that has come, and leaves the next one that has not: no other one is skipped
  or taken twice. A late firing may take the next time too, if that comes within the time by which a
  node may take the server's clock to be ahead.
* Nothing stays due. When all is calm, a time that was missed is made up for at once, one time.

A firing of a singleton in memory stores nothing: a statement of its own gives the timer's row its
next time, once the handler has ended. Such a statement without a handler is no firing: it has lost
a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking
from sharding_app.runtime.hosting.starting import EVERY
from sharding_app.testing.simulation.message_checker import AHEAD_SECONDS
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.entities.entity_type import EntityType
    from sharding_app.testing.simulation.world import World

TICK_SECONDS = 4.0
DAY_AT = "05:45:15"
"""In the zone of the world's schedules: 15 s after the world begins."""
DAY_AT_SECONDS = 15.0
DAY_SECONDS = 86_400.0
SET_SECONDS = 20.0
"""A first time counts from a moment that is at most this time before the commit that stores it."""
ROUNDING_SECONDS = 1e-4
TICK = f"{EVERY}tick"
"Key of the timer that repeats after an interval."
FIRINGS = ("tick ", "day ")
"""With these the tokens of firings begin."""
SCHEDULE = "schedule"


class Schedules:
    def __init__(self, world: World) -> None:
        self._world = world
        self._began: datetime = world.server.date()
        self._due: dict[str, float] = {}
        "When each timer is due next, by its key."
        self._fired: list[float] = []
        "When timers have fired."
        self._handled: dict[str, float | None] = {}
        "Timers in memory whose handler has begun, and when they were due, if that was known."

    def changed(self, changes: MessageChanges, now: datetime) -> None:
        """Check what a commit does with timers of `@every`."""
        try:
            for row in changes.sends:
                if row.key is not None and row.key.startswith(EVERY) and row.due is not None:
                    self._is_set(row.key, self._seconds(row.due))
            for each in changes.takes:
                if each.timer is not None and each.timer[2].startswith(EVERY) and each.again is not None:
                    self._fires(each.timer[2], self._seconds(each.again[1]))
        except PromiseBroken as error:
            self._world.broke(error)

    def is_handled(self, name: str) -> None:
        """Note that the handler of a timer in memory begins."""
        key = f"{EVERY}{name}"
        self._handled[key] = self._due.get(key)

    def goes_on(self, takes: Iterable[Taking]) -> None:
        """Check the rows of timers in memory that get their next time."""
        try:
            for each in takes:
                if each.timer is not None and each.timer[2].startswith(EVERY) and each.again is not None:
                    self._was_handled(each.timer[2])
                    self._fires(each.timer[2], self._seconds(each.again[1]))
        except PromiseBroken as error:
            self._world.broke(error)

    def is_discarded(self, key: str) -> None:
        """Note that an operator has deleted the row of a timer: its next start sets it anew."""
        self._due.pop(key, None)

    def went_back(self) -> None:
        """Forget what is set: the server may lack the last commits."""
        self._due.clear()

    @property
    def may_be_parked(self) -> bool:
        """Whether the server has refused a firing's row: its timer may have failed for good."""
        return any(each.startswith(FIRINGS) for each in self._world.obstacles.refused)

    def are_set(self) -> bool:
        return bool(self._due)

    def overdue(self) -> bool:
        """Whether a timer has not fired though its time has come."""
        return any(due <= self._world.now for due in self._due.values())

    def rows_of(self, made: EntityType, entity: str) -> list[MessageRow]:
        """Return the rows of an entity's `@every`."""
        world = self._world
        server = world.server_of_entity(made.name, entity)
        rows = (each.row for each in server.messages.rows.values())
        return [
            row
            for row in rows
            if (world.witness.name_of(row.type_id), row.entity) == (made.name, entity)
            and (row.key or "").startswith(EVERY)
        ]

    def fired_since(self, at: float) -> int:
        return sum(each >= at for each in self._fired)

    # -- Inside ------------------------------------------------------------------------------------

    def _was_handled(self, key: str) -> None:
        # After the server went back in time, the times of its rows are not known.
        due, known = self._due.get(key), self._handled.get(key, float("-inf"))
        if due is not None and known is not None and known != due:
            raise PromiseBroken(16, "schedules_lose_no_time", f"{key}, due at {due:.3f}, goes on unhandled")
        if known is None:
            self._handled[key] = float("-inf")

    def _is_set(self, key: str, due: float) -> None:
        now = self._world.now
        if key in self._due and not self.may_be_parked:
            detail = f"{key} is set anew for {due:.3f}, and was due at {self._due[key]:.3f}"
            raise PromiseBroken(16, "schedules_stay", detail)
        in_time = now - SET_SECONDS < due <= now + _interval(key) + ROUNDING_SECONDS
        if not in_time or (key != TICK and (due - DAY_AT_SECONDS) % DAY_SECONDS > ROUNDING_SECONDS):
            raise PromiseBroken(16, "schedules_keep_their_times", f"{key} is set at {now:.3f} for {due:.3f}")
        self._due[key] = due
        self._count("stored", "set")

    def _fires(self, key: str, again: float) -> None:
        now, due = self._world.now, self._due.get(key)
        self._fired.append(now)
        self._due[key] = again
        self._count("due", "fired")
        if due is None:
            return
        if now < due - ROUNDING_SECONDS:
            detail = f"{key} fired at {now:.4f}, and was due at {due:.4f}"
            raise PromiseBroken(16, "timers_fire_in_time", detail)
        times = (again - due) / _interval(key)
        if round(times) < 1 or abs(times - round(times)) * _interval(key) > ROUNDING_SECONDS:
            detail = f"{key} was due at {due:.3f}, and is due again at {again:.3f}"
            raise PromiseBroken(16, "schedules_keep_their_times", detail)
        if again > max(now + AHEAD_SECONDS, due) + _interval(key) + ROUNDING_SECONDS:
            detail = f"{key} fired at {now:.3f}, and is due again at {again:.3f}"
            raise PromiseBroken(16, "schedules_lose_no_time", detail)

    def _seconds(self, at: datetime) -> float:
        """Return a date as the world's time."""
        return (at - self._began).total_seconds()

    def _count(self, before: str, after: str) -> None:
        self._world.transition(SCHEDULE, before, after)


def _interval(key: str) -> float:
    return TICK_SECONDS if key == TICK else DAY_SECONDS
