"""Timers in calm: each that is set rings once, and none that was replaced rings."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.particular import ALARM, RINGS_SECONDS
from sharding_app.testing.simulation.promises import Call
from sharding_app.testing.simulation.virtual_node import DRIFT

SET_SECONDS = 0.5
RUNG_SECONDS = RINGS_SECONDS * (1 + 2 * DRIFT) + 0.1
"""By the slowest clock, with some time until it is handled."""


def alarms(stage: Stage) -> None:
    world = stage.world
    entities = [each for each in world.cast.entities if each[0] is ALARM]
    if not entities or world.failure is not None:
        return
    calls: list[Call] = [stage.call(each, "set_anew") for each in entities]
    stage.until(lambda: all(each.acknowledged for each in calls), SET_SECONDS, "timers are set")
    tokens = [call.given[-1] for call in calls if call.given]
    timers = world.witness.timers
    stage.until(
        lambda: all(timers.has_rung(token) for token in tokens), RUNG_SECONDS, "timers ring in calm", promise=0
    )  # fmt: skip
    world.transition("timer", "set", "rung")
