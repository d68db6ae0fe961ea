"""An obstacle to one entity or shard in calm: nothing else waits for it, and none of it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.errors import NotSerializable
from sharding_app.protocol.ids import ShardKey
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.promises import Call, PromiseBroken
from sharding_app.testing.simulation.topology import Named

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

WAYS = ("closed", "refused", "locked")
"""A trigger that raises, a constraint that names the refused row, another session's lock."""
OTHERS_SECONDS = 1.5
"""The server gets all of them a few times, then parts."""
FREE_SECONDS = 2.0


def in_the_way(stage: Stage) -> None:
    """Put each kind of obstacle in the way in turn (promises 8 and 10, in some seeds)."""
    world = stage.world
    if world.seed % 5 != 4 or world.failure is not None:
        return
    way = WAYS[world.seed // 5 % len(WAYS)]
    concerned = world.cast.entities[0]
    others = [
        each
        for each in dict.fromkeys(world.cast.entities)
        if each != concerned and (way != "locked" or _shard(world, each) != _shard(world, concerned))
    ]
    world.trace.note("world", None, "%s is %s", concerned[1], way)
    _stand(stage, way, concerned)
    calls = stage.calls([concerned, *others], "add")
    stage.until(
        lambda: all(call.acknowledged for call in calls[1:]),
        OTHERS_SECONDS, f"others are stored while {concerned[1]} is {way}",
    )  # fmt: skip
    if way == "refused":
        # The others need not wait until the server has named the refused row.
        stage.until(
            lambda: calls[0].ended is not None, OTHERS_SECONDS, f"the caller of {concerned[1]} is told"
        )
    if world.failure is None:
        _is_told(stage, way, calls[0])
    world.obstacles.heal()
    if way == "refused":
        calls = stage.calls([concerned], "add")
    stage.until(
        lambda: calls[0].acknowledged, FREE_SECONDS, f"{concerned[1]} is stored once nothing is in its way",
    )  # fmt: skip


def _stand(stage: Stage, way: str, entity: Named) -> None:
    world, name = stage.world, entity[0].name
    if way == "closed":
        world.obstacles.close(entity[1])
    elif way == "refused":
        world.obstacles.refuse(lambda row: row.entity == entity[1])
    else:
        shard = world.shard_of(name, entity[1])
        server = world.server_of(name, shard)
        world.obstacles.lock(world.server.cluster.type_ids[name], shard, server)
    world.transition("one entity", "is stored", way)


def _is_told(stage: Stage, way: str, call: Call) -> None:
    expected = isinstance(call.error, NotSerializable) if way == "refused" else call.ended is None
    if not expected:
        detail = f"{call.command} of an entity that is {way} ended with {call.error!r}, {call.value!r}"
        stage.world.broke(PromiseBroken(8, "errors_are_true", detail, call.entity))


def _shard(world: World, entity: Named) -> ShardKey:
    entity_type, entity_id = entity
    return entity_type.name, world.shard_of(entity_type.name, entity_id)
