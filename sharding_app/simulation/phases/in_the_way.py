"""In calm something stands in the way of one entity, or of one shard: nothing else waits for it, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Sequence

from sharding_app.core.ids import ShardId, shard_of
from sharding_app.errors import NotStorable
from sharding_app.simulation.cast import Named
from sharding_app.simulation.promises import Call, PromiseBroken
from sharding_app.simulation.stage import Stage

WAYS = ("closed", "refused", "locked")
"""A trigger that raises, a constraint that names what it refuses, another session's lock."""
OTHERS_SECONDS = 1.5
"""The server is asked some times with all of them, then with parts."""
FREE_SECONDS = 2.0


def in_the_way(stage: Stage) -> None:
    """Promises 8 and 10, in some seeds, each way in its turn."""
    world = stage.world
    if world.seed % 5 != 4 or world.failure is not None:
        return
    way = WAYS[world.seed // 5 % len(WAYS)]
    concerned = world.cast.entities[0]
    others = [
        each
        for each in dict.fromkeys(world.cast.entities)
        if each != concerned and (way != "locked" or _shard(each) != _shard(concerned))
    ]
    world.trace.note("world", None, "%s is %s", concerned[1], way)
    _stand(stage, way, concerned)
    calls = _add_to(stage, [concerned, *others])
    stage.until(lambda: len(calls) == len(others) + 1, OTHERS_SECONDS, "calls are made")
    stage.until(
        lambda: all(call.acknowledged for call in calls[1:]),
        OTHERS_SECONDS, f"others are stored while {concerned[1]} is {way}",
    )  # fmt: skip
    if way == "refused":
        # The others need not wait until the server has named the row that it refuses.
        stage.until(
            lambda: calls[0].ended is not None, OTHERS_SECONDS, f"the caller of {concerned[1]} is told"
        )
    if world.failure is None:
        _is_told(stage, way, calls[0])
    world.obstacles.heal()
    if way == "refused":
        calls = _add_to(stage, [concerned])
    stage.until(
        lambda: bool(calls) and calls[0].acknowledged, FREE_SECONDS, f"{concerned[1]} is stored once nothing is in its way",
    )  # fmt: skip


def _stand(stage: Stage, way: str, entity: Named) -> None:
    world, (name, number) = stage.world, _shard(entity)
    if way == "closed":
        world.obstacles.close(entity[1])
    elif way == "refused":
        world.obstacles.refuse(lambda row: row.entity == entity[1])
    else:
        world.obstacles.lock(world.server.cluster.type_ids[name], number)
    world.transition("one entity", "is stored", way)


def _add_to(stage: Stage, entities: Sequence[Named]) -> list[Call]:
    """Have all of them called at once; the calls are in the list when they are made."""
    client, calls = stage.world.clients[0], stage.world.witness.calls
    made: list[Call] = []

    def call() -> None:
        for entity in entities:
            client.caller.call(client.asking, entity, "add")
            made.append(calls[-1])

    client.loop.call_soon_threadsafe(call)
    return made


def _is_told(stage: Stage, way: str, call: Call) -> None:
    expected = isinstance(call.error, NotStorable) if way == "refused" else call.ended is None
    if not expected:
        detail = f"{call.command} of an entity that is {way} ended with {call.error!r}, {call.value!r}"
        stage.world.broke(PromiseBroken(8, "errors_are_true", detail, call.entity))


def _shard(entity: Named) -> tuple[str, ShardId]:
    entity_type, entity_id = entity
    return entity_type.name, shard_of(entity_id, entity_type.settings.number_of_shards or 1)
