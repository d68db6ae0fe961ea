"""DATABASE loses in calm that a shard has moved to it: an asynchronous standby takes over. The
former journal knows better, so the shard is nowhere at home, and no command touches its rows. An
operator puts the rows of DATABASE right, and it serves again.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.moving import Wanted
from sharding_app.testing.simulation.harness import HEALED_SECONDS, Stage
from sharding_app.testing.simulation.liveness import key_of
from sharding_app.testing.simulation.move_seeds import loses_a_switch
from sharding_app.testing.simulation.moves import MOVE, LosingMover, Mover, movable
from sharding_app.testing.simulation.phases.moving import ENDED_SECONDS, OTHERS, SERVED_SECONDS, end_moves
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.testing.simulation.topology import Named
    from sharding_app.testing.simulation.world import World

LEFT_SECONDS = 4.0
"""In this time nothing of the shard is handled anywhere."""


def lost_switch(stage: Stage) -> None:
    world = stage.world
    if not loses_a_switch(world.seed) or world.failure is not None:
        return
    for name in movable(world):
        stage.job(world.outside, end_moves(world, name))
    stage.until(lambda: stage.is_idle, ENDED_SECONDS, "former moves come to their end once more")
    entities = [each for each in world.cast.entities if each[0].name in movable(world)]
    entity = next((each for each in entities if world.where.is_in(key_of(world, each)) != CLUSTERS_OWN), None)
    if entity is None:
        stage.settle("shards have homes again after former moves")
        return
    key = key_of(world, entity)
    wanted = Wanted(key[0], world.where.is_in(key), CLUSTERS_OWN, [key[1]])
    stage.reach_all("an entity answers before the move that is lost", entities=[entity])
    stage.job(world.outside, _moves(world, wanted))
    stage.until(lambda: stage.is_idle, ENDED_SECONDS, "a move ends that is to be lost")
    if stage.is_over or world.where.is_in(key) != CLUSTERS_OWN:
        world.server.standby.join()
        return
    calls = stage.calls([entity], "add", "add")
    stage.until(
        lambda: all(call.ended is not None for call in calls), SERVED_SECONDS, "it serves in DATABASE"
    )
    world.witness.is_losing_its_tail()
    world.server.fail_over()
    _is_left_alone(stage, entity, wanted)
    _is_put_right(stage, entity)


def _is_left_alone(stage: Stage, entity: Named, wanted: Wanted) -> None:
    world, key = stage.world, key_of(stage.world, entity)
    entities = [each for each in world.cast.entities if each[0].name in movable(world)]
    others = [each for each in entities if key_of(world, each) != key][:OTHERS]
    away = stage.calls([entity], "add")
    stage.reach_all("others answer while the move of a shard is lost", HEALED_SECONDS, others)
    stage.pass_time(LEFT_SECONDS)
    if any(call.acknowledged for call in away):
        world.broke(PromiseBroken(1, "lost_shards_have_no_home", f"{key} has one", f"{key[0]}/{key[1]}"))
    world.transition(MOVE, "lost", "left alone")
    stage.job(world.outside, _is_refused(world, wanted))
    stage.until(lambda: stage.is_idle, ENDED_SECONDS, "a lost move is gone on with, or not")


def _is_put_right(stage: Stage, entity: Named) -> None:
    world, key = stage.world, key_of(stage.world, entity)
    if stage.is_over:
        return
    world.where.put_right(key)
    world.transition(MOVE, "lost", "put right")
    stage.reach_all("a shard serves where an operator has put it", entities=[entity])
    stage.job(world.outside, end_moves(world, key[0]))
    stage.until(lambda: stage.is_idle, ENDED_SECONDS, "what a lost move has left is deleted")
    stage.settle("it heals after a move was lost")


async def _moves(world: World, wanted: Wanted) -> None:
    await LosingMover(world, -3, Random(f"lost move {world.seed}"), dies=False).move(wanted)


async def _is_refused(world: World, wanted: Wanted) -> None:
    """Call the command again, and take the move back: its source has no messages any more."""
    for takes_back in (False, True):
        mover = Mover(world, -4, Random(f"lost move {world.seed}"), dies=False)
        if await mover.move(wanted, takes_back=takes_back):
            detail = f"the move of {wanted} went on, though its source has been left"
            world.broke(PromiseBroken(15, "lost_moves_are_left_alone", detail, f"{wanted.type}"))
