"""A remembered entity that does not start, in calm (promise 10).

Others start, it is tried again by itself, and its callers get an error.
"""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.particular import MULE
from sharding_app.testing.simulation.stubborn import LONGEST_BACKOFF_SECONDS
from sharding_app.testing.simulation.virtual_node import DRIFT, RESTART_BACKOFF_SECONDS

QUIT_SECONDS = 1.0
STARTED_SECONDS = RESTART_BACKOFF_SECONDS * (1 + 2 * DRIFT) + 0.3
AGAIN_SECONDS = LONGEST_BACKOFF_SECONDS * (1 + 2 * DRIFT) + 0.3


def stubbornness(stage: Stage) -> None:
    world = stage.world
    mules = [each for each in world.cast.entities if each[0] is MULE]
    if not mules or world.failure is not None:
        return
    stubborn, registry = world.witness.stubborn, world.registry
    (_, first), others = mules[0], mules[1:]
    calls = [stage.call(each, "quit") for each in mules]
    stage.until(lambda: all(each.ended is not None for each in calls), QUIT_SECONDS, "entities quit")
    refused = stubborn.refused
    stubborn.begins(first)
    stage.until(
        lambda: stubborn.refused > refused + 1, STARTED_SECONDS + AGAIN_SECONDS, f"{first} is tried again"
    )  # fmt: skip
    stage.until(
        lambda: not any(f"{made.name}/{entity}" in registry.missing() for made, entity in others),
        STARTED_SECONDS, f"others run though {first} does not start",
    )  # fmt: skip
    calls = [stage.call(each, "quit") for each in others]
    stage.until(lambda: all(each.ended is not None for each in calls), QUIT_SECONDS, "entities quit again")
    stage.reach_all(f"others answer though {first} does not start", QUIT_SECONDS, others)
    told = stage.call(mules[0], "total")
    stage.until(lambda: told.error is not None, QUIT_SECONDS, "its caller is told why", promise=8)
    stubborn.ends(first)
    # Of this entity alone: a worker may have failed at random, after others, and wait for longer.
    stage.until(
        lambda: f"{MULE.name}/{first}" not in registry.missing(), AGAIN_SECONDS, f"{first} starts by itself in the end"
    )  # fmt: skip
    world.transition("remembered", "does not start", "starts")
