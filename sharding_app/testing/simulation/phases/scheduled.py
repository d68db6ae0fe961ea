"""A singleton's schedule goes on by itself: at its times, and once for those that were missed."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.schedules import SCHEDULE, TICK_SECONDS

MISSED_SECONDS = 5.5 * TICK_SECONDS
CAUGHT_UP_SECONDS = 1.5
AT_ONCE = 2
"""Most firings of two timers that make up for the times that they have missed."""


def has_a_schedule(stage: Stage) -> bool:
    """Whether the seed has a singleton with a schedule, whose timers are not parked."""
    world = stage.world
    return world.cast.is_scheduled and not stage.is_over and not world.witness.schedules.may_be_parked


def goes_on(stage: Stage) -> None:
    """Check that all timers are set, and that none of them stays due."""
    schedules = stage.world.witness.schedules
    stage.until(
        lambda: schedules.are_set() and not schedules.overdue(), TICK_SECONDS + CAUGHT_UP_SECONDS, "a schedule goes on",
        promise=16,
    )  # fmt: skip


def is_caught_up(stage: Stage, since: float) -> None:
    """Check that the times that were missed are made up for, once. `since`: nodes were started."""
    world = stage.world
    schedules = world.witness.schedules
    stage.until(
        lambda: not schedules.overdue(), CAUGHT_UP_SECONDS, "a time that was missed is made up for", promise=16
    )  # fmt: skip
    fired, on_time = schedules.fired_since(since), (world.now - since) // TICK_SECONDS
    if fired > AT_ONCE + on_time:
        world.broke(PromiseBroken(16, "schedules_catch_up_once", f"{fired} firings after a pause"))
    world.transition(SCHEDULE, "missed", "caught up")
