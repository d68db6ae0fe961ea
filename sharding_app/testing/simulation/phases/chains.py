"""Entities that call each other in calm: a chain ends, and a circle is refused (promise 8).

One within a chain is refused at once. Of one between two chains one call is refused soon, and the
other chain ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharding_app.errors import EntityFailed
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.particular import PAIRS, RELAY
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.topology import Named

ENDS_SECONDS = 1.5
FOUND_SECONDS = 3.5


def chains(stage: Stage) -> None:
    world = stage.world
    relay = next((each for each in world.cast.entities if each[0] is RELAY), None)
    if relay is None or world.failure is not None:
        return
    chain, circle = stage.call(relay, "hand_on"), stage.call(relay, "go_round")
    stage.until(lambda: chain.acknowledged, ENDS_SECONDS, "a chain of calls comes to its end", promise=8)
    stage.until(lambda: circle.ended is not None, ENDS_SECONDS, "a circle of calls is refused", promise=8)
    if not stage.is_over and not (
        isinstance(circle.error, EntityFailed) and circle.given[0] in world.witness.cycles_refused
    ):
        detail = f"a circle of calls ended with {circle.error!r}, {circle.value!r}"
        world.broke(PromiseBroken(8, "errors_are_true", detail, circle.entity))
    world.transition("chain of calls", "closes", "refused")

    for pair in PAIRS:
        _cross(stage, [(RELAY, each) for each in pair])


def _cross(stage: Stage, pair: Sequence[Named]) -> None:
    world = stage.world
    crossing = stage.calls(pair, "cross")
    ended = "a circle between two chains of calls ends"
    stage.until(lambda: all(each.ended is not None for each in crossing), FOUND_SECONDS, ended, promise=8)
    refused = [each for each in crossing if each.given and each.given[0] in world.witness.cycles_refused]
    served = [each for each in crossing if each.acknowledged]
    if not stage.is_over and not (len(refused) == len(served) == 1):
        detail = f"two calls that waited for each other ended with {[each.error for each in crossing]!r}"
        world.broke(PromiseBroken(8, "errors_are_true", detail, crossing[0].entity))
    world.transition("crossing chains of calls", "close", "one refused")
