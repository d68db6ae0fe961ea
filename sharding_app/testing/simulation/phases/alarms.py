"""Timers in calm: each that is set rings once, and none that was replaced rings."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.liveness import place_of
from sharding_app.testing.simulation.particular import ALARM, RINGS_SECONDS
from sharding_app.testing.simulation.promises import Call
from sharding_app.testing.simulation.topology import Named
from sharding_app.testing.simulation.virtual_node import DRIFT

SET_SECONDS = 0.5
RUNG_SECONDS = RINGS_SECONDS * (1 + 2 * DRIFT) + 0.1
"""By the slowest clock, with some time until it is handled."""


def alarms(stage: Stage) -> None:
    world = stage.world
    entities = [each for each in world.cast.entities if each[0] is ALARM]
    if not entities or world.failure is not None:
        return
    places = {each: place_of(world, each) for each in entities}
    calls: list[Call] = [stage.call(each, "set_anew") for each in entities]
    stage.until(lambda: all(each.acknowledged for each in calls), SET_SECONDS, "timers are set")
    timers = world.witness.timers

    def has_rung(call: Call) -> bool:
        return not call.given or timers.has_rung(call.given[-1])

    def has_rung_or_moved(call: Call, entity: Named) -> bool:
        # A timer ends with its object. Shards that a resize has added may still be on their way.
        return has_rung(call) or place_of(world, entity) != places[entity]

    stage.until(
        lambda: all(map(has_rung_or_moved, calls, entities)), RUNG_SECONDS, "timers ring in calm", promise=0
    )
    if any(map(has_rung, calls)):
        world.transition("timer", "set", "rung")
