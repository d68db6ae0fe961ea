"""Entities that call each other in calm: a chain ends, and a circle is refused (promise 8).

One within a chain is refused at once. Of one between two chains one call is refused soon, and the
other chain ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sharding_app.errors import EntityFailed, Unavailable
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.liveness import Place, place_of
from sharding_app.testing.simulation.particular import PAIRS, RELAY
from sharding_app.testing.simulation.promises import Call, PromiseBroken
from sharding_app.testing.simulation.topology import Named

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

Places = Mapping[Named, Place]

ENDS_SECONDS = 1.5
MOVES_SECONDS = 1.5
"""A rebalance waits 0.3 s, and gives a shard 1 s for its hand-off (`topology`)."""
FOUND_SECONDS = 3.5
CROSSED_AT_MOST = 3
"""How often calls cross until one of them is refused, and not stopped with a shard that moves."""


def chains(stage: Stage) -> None:
    world = stage.world
    relay = next((each for each in world.cast.entities if each[0] is RELAY), None)
    if relay is None or world.failure is not None:
        return
    places = {each: place_of(world, each) for each in world.cast.entities if each[0] is RELAY}
    chain, circle = stage.call(relay, "hand_on"), stage.call(relay, "go_round")
    _ends(stage, chain, places, "a chain of calls comes to its end")
    if not stage.is_over and not (chain.acknowledged or _is_forced(chain, places, world)):
        detail = f"a chain of calls ended with {chain.error!r}"
        world.broke(PromiseBroken(8, "errors_are_true", detail, chain.entity))
    _ends(stage, circle, places, "a circle of calls is refused")
    if not stage.is_over and not (
        _is_forced(circle, places, world)
        or (isinstance(circle.error, EntityFailed) and circle.given[0] in world.witness.cycles_refused)
    ):
        detail = f"a circle of calls ended with {circle.error!r}, {circle.value!r}"
        world.broke(PromiseBroken(8, "errors_are_true", detail, circle.entity))
    world.transition("chain of calls", "closes", "refused")

    for pair in PAIRS:
        _cross(stage, [(RELAY, each) for each in pair])


def _ends(stage: Stage, call: Call, places: Places, what: str) -> None:
    """Wait until a call has ended. If a shard of these moves, its hand-off has its time too."""

    def is_over() -> bool:
        return call.ended is not None

    stage.until(lambda: is_over() or _have_moved(places, stage.world), ENDS_SECONDS, what, promise=8)
    stage.until(is_over, ENDS_SECONDS + MOVES_SECONDS, f"{what}, while a shard of it moves", promise=8)


def _have_moved(places: Places, world: World) -> bool:
    return any(place_of(world, each) != before for each, before in places.items())


def _is_forced(call: Call, places: Places, world: World) -> bool:
    """Whether the move of a shard has stopped a call."""
    return (
        isinstance(call.error, Unavailable)
        and call.error.code == "stopped_by_force"
        and _have_moved(places, world)
    )


def _cross(stage: Stage, pair: Sequence[Named]) -> None:
    """Let two calls wait for each other until one of them is refused.

    A shard that has to move meanwhile does not wait for the circle to be found: it stops its
    command by force, which ends the circle too. If that happens each time, nothing is said of this
    pair.
    """
    for _ in range(CROSSED_AT_MOST):
        places = [place_of(stage.world, each) for each in pair]
        crossing = _crossed(stage, pair)
        if stage.is_over or _one_refused(stage, crossing):
            return
        moved = [before != place_of(stage.world, each) for before, each in zip(places, pair, strict=True)]
        if not _stopped_with_shards(crossing, moved):
            detail = f"two calls that waited for each other ended with {[each.error for each in crossing]!r}"
            stage.world.broke(PromiseBroken(8, "errors_are_true", detail, crossing[0].entity))
            return


def _crossed(stage: Stage, pair: Sequence[Named]) -> list[Call]:
    crossing = stage.calls(pair, "cross")
    ended = "a circle between two chains of calls ends"
    stage.until(lambda: all(each.ended is not None for each in crossing), FOUND_SECONDS, ended, promise=8)
    return crossing


def _one_refused(stage: Stage, crossing: Sequence[Call]) -> bool:
    world = stage.world
    refused = [each for each in crossing if each.given and each.given[0] in world.witness.cycles_refused]
    served = [each for each in crossing if each.acknowledged]
    if not (len(refused) == len(served) == 1):
        return False
    world.transition("crossing chains of calls", "close", "one refused")
    return True


def _stopped_with_shards(crossing: Sequence[Call], moved: Sequence[bool]) -> bool:
    """Tell whether a shard that has moved has stopped its call, and all others were served."""
    forced = [
        has_moved and isinstance(each.error, Unavailable) and each.error.code == "stopped_by_force"
        for each, has_moved in zip(crossing, moved, strict=True)
    ]
    return any(forced) and all(
        was_forced or each.acknowledged for each, was_forced in zip(crossing, forced, strict=True)
    )
