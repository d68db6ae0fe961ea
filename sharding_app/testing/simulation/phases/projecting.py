"""Projections when all is calm: their rows are the journal, and new events are there at once."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.projections import Operator
from sharding_app.testing.simulation.topology import Named
from sharding_app.testing.simulation.workload import TYPES

LEVEL_SECONDS = 30.0
"""More than the pauses after failures, and a fill."""
LIVE_SECONDS = 25.0
"""Two rounds of tidying."""
SHOWN_SECONDS = 0.6
"""A third of a poll: a lost wake-up is seen."""
SET_SECONDS = 1.0
POLLED_SECONDS = 4.0
"""Two polls: a wake-up may be lost."""
ROUNDS = 3
PARKED_SECONDS = 8.0
"""Some polls: an entity that has failed is tried again by the next turn."""


def projecting(stage: Stage) -> None:
    world, judge = stage.world, stage.world.projections
    if not judge.are_there or world.failure is not None:
        return
    operator = Operator(world)
    judge.heal()
    stage.job(world.outside, operator.stand_by())
    stage.until(lambda: not judge.behind(), LEVEL_SECONDS, "projections have all events", promise=17)
    stage.until(judge.are_live, LIVE_SECONDS, "both versions are live", promise=17)
    # Behind a failover a process may still look for a worker where it was before.
    _are_shown(stage, POLLED_SECONDS)
    for _ in range(ROUNDS - 1):
        _are_shown(stage)
    _one_fails(stage, operator)


def still_projecting(stage: Stage) -> None:
    """After all that: projections have all events again."""
    judge = stage.world.projections
    if judge.are_there and not stage.is_over:
        stage.until(lambda: not judge.behind(), LEVEL_SECONDS, "projections have all events", promise=17)


def _are_shown(stage: Stage, seconds: float = SHOWN_SECONDS) -> None:
    """Commit events, and see that commits wake the workers."""
    if stage.is_over:
        return
    calls = stage.calls(_followed(stage), "add")
    stage.until(lambda: all(each.acknowledged for each in calls), SET_SECONDS, "events are stored")
    shown = stage.world.projections.behind
    stage.until(lambda: not shown(), seconds, "projections show what is committed", promise=17)


def _one_fails(stage: Stage, operator: Operator) -> None:
    """Let the handler fail at one entity: it is parked, and all others go on."""
    if stage.is_over:
        return
    world, judge = stage.world, stage.world.projections
    made, entity = _followed(stage)[0]
    key = world.server.cluster.type_ids[made.name], entity
    judge.close(key)
    for _ in range(2):
        _are_shown(stage)
    stage.until(
        lambda: judge.parked() == [key, key],
        PARKED_SECONDS,
        "an entity whose events fail is parked",
        promise=17,
    )
    judge.open(key)
    stage.job(world.outside, operator.stand_by(skips=0.0))
    stage.until(
        lambda: not judge.behind(), PARKED_SECONDS, "an entity goes on once its handler is right", promise=17
    )


def _followed(stage: Stage) -> list[Named]:
    return [each for each in stage.world.cast.entities if each[0] in TYPES]
