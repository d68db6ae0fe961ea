"""Durable messages and timers when all is calm: everything that was set in motion arrives."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.promises import PromiseBroken

ARRIVED_SECONDS = 25.0
"""Twice the longest time until an overdue row is noticed, and the pauses after failures."""


def messages(stage: Stage) -> None:
    world = stage.world
    if not world.cast.senders or world.failure is not None:
        return
    motions = world.witness.motions
    stage.until(
        lambda: not motions.waiting(), ARRIVED_SECONDS, "all that was set in motion arrives", promise=15
    )
    if stage.is_over:
        return
    try:
        motions.look_back()
    except PromiseBroken as error:
        world.broke(error)
