"""Everything stops, by a power failure or in order, and remembered entities run again by
themselves.
"""

from __future__ import annotations

from sharding_app.testing.simulation.harness import HEALED_SECONDS, QUIET_SECONDS, Stage
from sharding_app.testing.simulation.phases.boot import BOOT_SECONDS, start_nodes
from sharding_app.testing.simulation.phases.messages import set_timers
from sharding_app.testing.simulation.phases.scheduled import (
    MISSED_SECONDS,
    goes_on,
    has_a_schedule,
    is_caught_up,
)
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.topology import Named

CALM_SECONDS = 5.0
DOWN_SECONDS = 0.2
STOP_SECONDS = 30.0
CROWDED_SECONDS = 30.0
_BEFORE_THE_LIFELINE = 5
"""Connections that a node here opens first: its rows, its leases, and three of its journal."""


def all_down_and_up(stage: Stage) -> None:
    world = stage.world
    if not world.cast.whole_protocol:
        return
    resting = next(each for each in world.cast.entities if each[0].settings.remember_entities)
    _send_to_rest(stage, resting)
    set_timers(stage)
    is_scheduled = has_a_schedule(stage)
    if is_scheduled:
        goes_on(stage)
    _all_down(stage)
    if is_scheduled:
        stage.pass_time(MISSED_SECONDS)
    started_at = world.now
    world.calm = True
    _start_in_a_crowd(stage)
    start_nodes(stage)
    stage.until(lambda: all(each.is_up for each in world.nodes), BOOT_SECONDS, "every node comes up again")
    stage.runs_without_a_message("after a restart of everything")
    if is_scheduled:
        is_caught_up(stage, started_at)
    stage.until(
        lambda: not world.witness.messages.waiting(), HEALED_SECONDS, "timers fire after a restart of everything", promise=16
    )  # fmt: skip
    stage.pass_time(QUIET_SECONDS)
    if world.failure is None and (wrong := world.registry.running_at_rest()):
        world.broke(PromiseBroken(0, "rests_until_it_is_asked", f"{', '.join(wrong)} run again"))
    world.registry.at_rest.clear()
    stage.reach_all("every entity answers after a restart of everything")
    stage.settle("every shard has a live home again")
    world.calm = False


def _send_to_rest(stage: Stage, entity: Named) -> None:
    """Send an entity to rest before everything stops. It must not run afterwards."""
    world, client = stage.world, stage.world.clients[0]
    stage.job(client.loop, client.send_to_rest(entity))
    stage.until(
        lambda: stage.is_idle and not world.registry.is_stored(*entity),
        CALM_SECONDS,
        "an entity goes to rest",
    )
    world.registry.at_rest[entity] = None


def _start_in_a_crowd(stage: Stage) -> None:
    """Start two nodes where the server has room for little more than one (promise 13)."""
    world = stage.world
    if world.seed % 4 != 3:
        return
    both, server = world.nodes[:2], world.server
    server.room = server.sessions.count()
    for each in both:
        server.room += _BEFORE_THE_LIFELINE
        each.boot()
        stage.until(lambda: server.sessions.count() == server.room, CROWDED_SECONDS, "all room is taken", 13)
        each.process.pause()  # so that it does not take the connections of the next one
    for each in both:
        each.process.resume()
    stage.until(
        lambda: any(each.is_up for each in both), CROWDED_SECONDS, "a node comes up where there is room for one", 13
    )  # fmt: skip
    server.room = None


def _all_down(stage: Stage) -> None:
    world = stage.world
    if world.seed % 4 == 1:
        world.crash_all()
    else:
        stop_nodes(stage, "all stop in order")
        world.judge.everything_is_down()
    world.trace.note("world", None, "everything is down")
    stage.pass_time(DOWN_SECONDS)


def stop_nodes(stage: Stage, what: str) -> None:
    for each in stage.world.nodes:
        each.leave()
    stage.until(lambda: not any(each.runs for each in stage.world.nodes), STOP_SECONDS, what)
