"""A server goes back in time, in calm, and entities in memory go on (promise 18).

Remembered ones have their rows stored again, and a singleton its schedule. When a node dies after
that, the next home starts what was there. A further journal loses as well that their shards were
taken by their present homes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sharding_app.runtime.hosting.journal_part import LOOK_SECONDS
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.hosts import home_of as at_home
from sharding_app.testing.simulation.in_memory import BELL, LAMP
from sharding_app.testing.simulation.liveness import home_of, is_taken, key_of, place_of
from sharding_app.testing.simulation.operators import discard
from sharding_app.testing.simulation.phases.scheduled import goes_on
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.virtual_node import DRIFT, RESTART_BACKOFF_SECONDS

if TYPE_CHECKING:
    from sharding_app.testing.simulation.topology import Named

RESTED_SECONDS = 2.0
LIT_SECONDS = 2.0
STARTED_SECONDS = RESTART_BACKOFF_SECONDS * (1 + 2 * DRIFT) + 1.0
AGAIN_SECONDS = 8.0
"""Two times the longest lease, and the pauses of the lifeline."""
NOTICED_SECONDS = 0.2
LOOKED_SECONDS = 2 * LOOK_SECONDS
"""Each node has looked at a further journal."""
ANSWERED_SECONDS = 5.0


def going_back(stage: Stage) -> None:
    world = stage.world
    entities = world.cast.in_memory
    if not entities or world.failure is not None:
        return
    lamps, bells = ([each for each in entities if each[0] is made] for made in (LAMP, BELL))
    _rest(stage, lamps)
    # A caller may still know a home that has died in turmoil, and is told so once.
    stage.reach_all("singletons answer in calm", entities=bells)
    for bell in bells:
        _forget_the_schedule(stage, bell)
    world.server.standby.part(asynchronous=True)
    for bell in bells:
        _start_again(stage, bell)
    _light(stage, entities)
    before = _objects(stage, entities)
    rows = _epochs(stage, entities)
    world.witness.is_losing_its_tail()
    world.server.fail_over()
    are_moved = _epochs(stage, entities) != rows
    _is_noticed(stage)
    if are_moved:  # the coordinator has moved a shard meanwhile, and the server has lost that
        stage.reach_all("entities in memory answer after a failover", AGAIN_SECONDS, entities, promise=18)
        return
    _stay(stage, before)
    _are_stored_again(stage, lamps)
    if bells:
        goes_on(stage)
    stage.reach_all("entities in memory answer after a failover", AGAIN_SECONDS, entities, promise=18)
    _stay(stage, before)
    _die(stage, lamps[0])


def losing_takes(stage: Stage) -> None:
    """Let a further journal lose the moves of entities in memory that lie there."""
    world = stage.world
    journals = {each: world.where.is_in(key_of(world, each)) for each in world.cast.in_memory}
    name = next((each for each in journals.values() if each), "")
    if not name or world.failure is not None:
        return
    entities = [each for each in journals if journals[each] == name]
    world.trace.note("world", None, "the journal %s loses that shards were taken", name)
    server = world.journals[name]
    server.standby.part(asynchronous=True)
    _move(stage, entities)
    stage.reach_all("entities in memory answer after a move", AGAIN_SECONDS, entities)
    _light(stage, entities)
    stage.settle("every shard has a live home after a move")
    before = _objects(stage, entities)
    epochs = {each: place_of(world, each).epoch for each in entities}
    world.registry.is_losing_its_tail(server)
    server.fail_over()
    stage.pass_time(LOOKED_SECONDS)
    stage.settle("every shard has a live home after a failover of its journal")
    _are_stored_again(stage, [each for each in entities if each[0] is LAMP])
    for bell in (each for each in entities if each[0] is BELL):
        _has_its_timers(stage, bell, AGAIN_SECONDS)
        goes_on(stage)
    stage.reach_all("entities in memory answer after a failover of their journal", AGAIN_SECONDS, entities)
    # A singleton's shard is never moved for the balance.
    stays = [each for each in entities if each[0] is BELL or place_of(world, each).epoch == epochs[each]]
    _stay(stage, {each: before[each] for each in stays})


def _move(stage: Stage, entities: Sequence[Named]) -> None:
    """Move the shards of these entities, or let them come home anew."""
    world = stage.world
    rows, keys = world.server.cluster.shards, list(dict.fromkeys(key_of(world, each) for each in entities))
    stage.until(lambda: all(is_taken(world, rows[key]) for key in keys), AGAIN_SECONDS, "shards are at home")
    before = {key: rows[key].epoch for key in keys}
    world.injector.move(keys, None)
    stage.until(
        lambda: all(rows[key].epoch > before[key] and is_taken(world, rows[key]) for key in keys),
        AGAIN_SECONDS, "shards of entities in memory are moved",
    )  # fmt: skip


def _rest(stage: Stage, lamps: list[Named]) -> None:
    world, client = stage.world, stage.world.clients[0]
    for each in lamps:
        stage.job(client.loop, client.send_to_rest(each))
    stage.until(
        lambda: stage.is_idle and not any(world.registry.is_stored(*each) for each in lamps),
        RESTED_SECONDS, "entities in memory go to rest",
    )  # fmt: skip


def _light(stage: Stage, entities: Sequence[Named]) -> None:
    calls = stage.calls(entities, "add")
    stage.until(lambda: all(call.acknowledged for call in calls), LIT_SECONDS, "entities in memory start")


def _forget_the_schedule(stage: Stage, bell: Named) -> None:
    """Have an operator discard the timers of a singleton: its next start sets them."""
    world, client = stage.world, stage.world.clients[0]
    made, entity = bell
    schedules = world.witness.schedules

    async def operate() -> None:
        while rows := schedules.rows_of(made, entity):
            for row in rows:
                await discard(world, client.asking, row.id)
                # One that fires meanwhile goes on under another id.
                if row.key not in [each.key for each in schedules.rows_of(made, entity)]:
                    schedules.is_discarded(str(row.key))

    client.loop.call_soon_threadsafe(lambda: stage.job(client.loop, operate()))
    stage.until(
        lambda: stage.is_idle and not schedules.rows_of(made, entity), RESTED_SECONDS, "a schedule is discarded"
    )  # fmt: skip


def _start_again(stage: Stage, bell: Named) -> None:
    stage.call(bell, "quit")
    _has_its_timers(stage, bell, STARTED_SECONDS)


def _has_its_timers(stage: Stage, bell: Named, seconds: float) -> None:
    made, entity = bell
    stage.until(
        lambda: len(stage.world.witness.schedules.rows_of(made, entity)) == len(made.recurring),
        seconds, "a singleton sets its timers at its start", promise=16,
    )  # fmt: skip


def _objects(stage: Stage, entities: Sequence[Named]) -> dict[Named, object]:
    """Return the objects that are at home now."""
    found: dict[Named, object] = {}
    for each in entities:
        home, (made, entity) = home_of(stage.world, each), each
        shard = None if home is None or home.node is None else at_home(home.node, made.name, entity)
        found[each] = None if shard is None else shard.slots[entity].entity
    return found


def _epochs(stage: Stage, entities: Sequence[Named]) -> list[int]:
    return [place_of(stage.world, each).epoch for each in entities]


def _is_noticed(stage: Stage) -> None:
    world = stage.world

    def noticed() -> bool:
        nodes = [each.node for each in world.nodes]
        return all(node is not None and world.has_heard(node) and world.is_valid(node) for node in nodes)

    stage.until(noticed, AGAIN_SECONDS, "all nodes notice a failover", promise=18)
    stage.pass_time(NOTICED_SECONDS)


def _stay(stage: Stage, before: dict[Named, object]) -> None:
    world = stage.world
    gone = [each for each, now in _objects(stage, list(before)).items() if now is not before[each]]
    if gone and not stage.is_over:
        names = ", ".join(f"{made.name}/{entity}" for made, entity in gone)
        world.broke(PromiseBroken(18, "objects_in_memory_stay", f"a failover has ended {names}"))


def _are_stored_again(stage: Stage, lamps: list[Named]) -> None:
    registry = stage.world.registry
    stage.until(
        lambda: all(registry.is_stored(*each) for each in lamps),
        AGAIN_SECONDS, "what runs in memory is remembered again after a failover",
    )  # fmt: skip


def _die(stage: Stage, lamp: Named) -> None:
    """Kill a home that has handled a command and not answered it yet, and start its process again.

    The command is not sent again.
    """
    node = home_of(stage.world, lamp)
    if node is None or stage.is_over:
        return
    call = stage.call(lamp, "add")
    stage.until(
        lambda: stage.world.witness.memory.has_noted(call), LIT_SECONDS, "an entity in memory is called"
    )
    node.crash()
    node.boot()
    stage.until(lambda: call.ended is not None, ANSWERED_SECONDS, "the caller of a dead home is told", 8)
    stage.settle("it heals after a failover and the death of a node")
    stage.runs_without_a_message("after a failover and the death of a node")
    # A caller that sends a command to a dead home may be told that its fate is unknown.
    stage.reach_all("entities in memory answer after a death", entities=stage.world.cast.in_memory)
