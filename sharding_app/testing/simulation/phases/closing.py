"""A shard is closed for a move in calm: it has no home soon, the others serve, and it serves again
when it is opened, or when nothing renews its closing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.testing.simulation.closings import ELSEWHERE, MOVE, has_closings
from sharding_app.testing.simulation.harness import Stage

if TYPE_CHECKING:
    from sharding_app.protocol.ids import ShardKey
    from sharding_app.testing.simulation.world import World

LONG_SECONDS = 600.0
SHORT_SECONDS = 0.5
NOTICED_SECONDS = 4.0
"""The news come every second, and a hand-off takes a moment."""
SERVED_SECONDS = 4.0
OTHERS = 6


def closing(stage: Stage) -> None:
    world = stage.world
    if not has_closings(world.seed) or world.failure is not None:
        return
    cluster = world.server.cluster
    entity = world.cast.entities[0]
    key = entity[0].name, world.shard_of(entity[0].name, entity[1])
    others = [
        each
        for each in world.cast.entities
        if (each[0].name, world.shard_of(each[0].name, each[1])) != key and each[0].singleton_id is None
    ]
    stage.reach_all("an entity answers before its shard is closed", entities=[entity])
    cluster.begin_move(key[0], [key[1]], ELSEWHERE)
    _close(world, key, LONG_SECONDS)
    stage.until(
        lambda: cluster.shards[key].home is None, NOTICED_SECONDS, "a closed shard has no home", promise=10
    )
    stage.reach_all("others answer while a shard is closed", SERVED_SECONDS, others[:OTHERS])
    cluster.open(key[0], [key[1]])
    cluster.count_closing(key[0])
    stage.reach_all("a shard serves that was opened", NOTICED_SECONDS, [entity])
    _close(world, key, SHORT_SECONDS)
    world.transition(MOVE, "copying", "closed")
    stage.until(lambda: not cluster.closed(), NOTICED_SECONDS, "a closing that nothing renews lapses")
    world.transition(MOVE, "closed", "lapsed")
    stage.reach_all("a shard serves whose closing has lapsed", NOTICED_SECONDS, [entity])
    stage.settle("it heals after closings")


def _close(world: World, key: ShardKey, seconds: float) -> None:
    cluster = world.server.cluster
    cluster.close_until(key[0], cluster.at_step(key[0], [key[1]], "copying"), world.now + seconds)
    cluster.count_closing(key[0])
