"""A shard moves to another journal in calm, with its rows: it is away for a short time, others
serve meanwhile, projections go on with it, and the copy that it leaves behind is deleted.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from sharding_app.protocol.moving import Wanted
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.move_seeds import has_moves
from sharding_app.testing.simulation.moves import MOVE, Mover, clean_up, movable, under_way
from sharding_app.testing.simulation.phases.projecting import SHOWN_SECONDS

if TYPE_CHECKING:
    from sharding_app.testing.simulation.topology import Named
    from sharding_app.testing.simulation.world import World

ENDED_SECONDS = 20.0
MOVED_SECONDS = 6.0
SERVED_SECONDS = 3.0
AGAIN_SECONDS = 0.5
OTHERS = 6


def moving(stage: Stage) -> None:
    world = stage.world
    if not has_moves(world.seed) or world.failure is not None:
        return
    entities = [each for each in world.cast.entities if each[0].name in movable(world)]
    entity = entities[0]
    name, shard = key = entity[0].name, world.shard_of(entity[0].name, entity[1])
    stage.job(world.outside, end_moves(world, name))
    stage.until(
        lambda: stage.is_idle, ENDED_SECONDS, "former moves of a type come to their end, and leave nothing"
    )
    if stage.is_over:
        return
    source = world.where.is_in(key)
    target = next(each for each in sorted(world.servers) if each != source)
    others = [each for each in entities if (each[0].name, world.shard_of(*_named(each))) != key][:OTHERS]
    stage.reach_all("an entity answers before its shard moves", entities=[entity])
    if world.projections.are_there:  # one may fill after a journal has failed over, and holds moves up
        through = "projections are through before a shard moves"
        stage.until(lambda: not world.projections.behind(), ENDED_SECONDS, through, promise=17)
    mover = Mover(world, -1, Random(f"calm move {world.seed}"), dies=False)
    stage.job(world.outside, _moves(mover, Wanted(name, source, target, [shard])))
    calls = stage.calls([entity, *others], "add")
    stage.until(lambda: world.where.is_in(key) == target, MOVED_SECONDS, "a shard moves to another journal")
    stage.until(
        lambda: all(each.ended is not None for each in calls),
        SERVED_SECONDS, "callers have an answer while a shard moves",
    )  # fmt: skip
    stage.until(lambda: stage.is_idle, ENDED_SECONDS, "a move comes to its end")
    stage.reach_all("a shard serves in its new journal", SERVED_SECONDS, [entity])
    if world.projections.are_there:
        stage.calls([entity], "add")
        shown = lambda: not world.projections.behind()  # noqa: E731
        stage.until(shown, SHOWN_SECONDS, "projections follow a shard to another journal", promise=17)
    stage.job(world.outside, end_moves(world, name))
    stage.until(lambda: stage.is_idle, ENDED_SECONDS, "a copy that was left behind is deleted")
    world.transition(MOVE, "done", "in calm")
    stage.settle("it heals after a move")


def _named(entity: Named) -> tuple[str, str]:
    return entity[0].name, entity[1]


async def _moves(mover: Mover, wanted: Wanted) -> None:
    while True:
        if await mover.move(wanted):
            return
        await asyncio.sleep(AGAIN_SECONDS)


async def end_moves(world: World, type_name: str) -> None:
    """Go on with all moves of a type to their end, and delete what they have left behind."""
    mover = Mover(world, -2, Random(f"end of moves {world.seed}"), dies=False)
    while True:
        wanted = under_way(world, type_name)
        if wanted is None:
            if await clean_up(world, "cleaner-end", type_name):
                return
        elif await mover.move(wanted) or await mover.move(wanted, takes_back=True):
            continue
        else:
            world.where.have_left(wanted)
        await asyncio.sleep(AGAIN_SECONDS)
