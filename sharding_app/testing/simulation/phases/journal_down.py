"""A further journal that is down in calm: its shards wait for it, and nothing else does.

Shards that lie elsewhere answer in time. They are moved, and taken over from a node that dies; a
node comes up meanwhile. Afterwards the shards of the journal go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.testing.simulation.fault_policy import TROUBLES
from sharding_app.testing.simulation.harness import HEALED_SECONDS, Stage
from sharding_app.testing.simulation.journals import SEEDS
from sharding_app.testing.simulation.liveness import is_taken, key_of, place_of
from sharding_app.testing.simulation.overlaps import FENCED
from sharding_app.testing.simulation.phases.boot import BOOT_SECONDS
from sharding_app.testing.simulation.phases.projecting import SHOWN_SECONDS

if TYPE_CHECKING:
    from sharding_app.testing.simulation.topology import Named
    from sharding_app.testing.simulation.world import World

WAYS = ("is down", "is silent", "refuses", "fails over", "lacks its standby", "goes back")
"""No process listens there; no request is answered; each write is answered with an error; a standby
takes over after a while; none confirms a commit, and it takes over in the end; one takes over at
once that lacks acknowledged commits.
"""
OTHERS_SECONDS = 1.5
MOVED_SECONDS = 1.2
TAKEN_OVER_SECONDS = 6.0
ASKED_SECONDS = 0.5
JOURNAL = "journal"


def journal_down(stage: Stage) -> None:
    world = stage.world
    if not world.journals or world.failure is not None:
        return
    turn = world.seed // 48 + SEEDS.index(world.seed % 48)
    name, way = sorted(world.journals)[turn % len(world.journals)], WAYS[turn % len(WAYS)]
    entities = list(dict.fromkeys(world.cast.entities))
    there = [each for each in entities if world.where.is_in(key_of(world, each)) == name]
    elsewhere = [each for each in entities if each not in there]
    if not there or not elsewhere:
        return
    world.trace.note("world", None, "the journal %s %s", name, way)
    world.transition(JOURNAL, "works", way)
    if way == "goes back":
        _goes_back(stage, name, there)
    else:
        _begins(world, name, way)
    calls = stage.calls([*there, *elsewhere], "add")
    stage.until(
        lambda: all(call.acknowledged for call in calls[len(there) :]),
        OTHERS_SECONDS, f"shards elsewhere answer while {name} {way}",
    )  # fmt: skip
    if world.projections.are_there and way != "goes back":
        shown = lambda: not world.projections.behind_elsewhere(name)  # noqa: E731
        stage.until(
            shown, SHOWN_SECONDS, f"projections show what lies elsewhere while {name} {way}", promise=17
        )
    if world.cast.moves:
        _are_moved(stage, elsewhere, f"shards elsewhere answer after a move while {name} {way}")
    _are_taken_over(stage, elsewhere, f"shards elsewhere are taken over while {name} {way}")
    calls += stage.calls(there, "total")
    stage.pass_time(ASKED_SECONDS)
    _ends(world, name, way)
    stage.until(
        lambda: all(call.ended is not None for call in calls),
        HEALED_SECONDS, f"callers of {name} get an answer",
    )  # fmt: skip
    stage.reach_all(f"the shards of {name} go on")
    stage.settle(f"every shard has a live home after {name} {way}")


def _goes_back(stage: Stage, name: str, entities: list[Named]) -> None:
    """Lose acknowledged commits. A query that asks the rows does not answer from what is lost."""
    server = stage.world.journals[name]
    server.standby.part(asynchronous=True)
    calls = stage.calls(entities, "add")
    stage.until(lambda: all(call.acknowledged for call in calls), OTHERS_SECONDS, "events are stored")
    if not stage.is_over:
        server.fail_over()
        stage.calls([each for each in entities if FENCED in each[0].commands], FENCED)


def _begins(world: World, name: str, way: str) -> None:
    conditions, server = world.conditions_of[name], world.journals[name]
    if way == "is silent":
        conditions.cut_off.update(dict.fromkeys(each.name for each in world.nodes))
    elif way == "refuses":
        conditions.trouble = TROUBLES[0]
    elif way == "lacks its standby":
        server.standby.part()
    else:
        server.stop()


def _ends(world: World, name: str, way: str) -> None:
    world.trace.note("world", None, "the journal %s works again", name)
    world.conditions_of[name].heal()
    server = world.journals[name]
    if way == "fails over":
        server.promote()
    elif way == "lacks its standby":
        server.fail_over()
    server.start()


def _are_moved(stage: Stage, entities: list[Named], what: str) -> None:
    world = stage.world
    rows, keys = world.server.cluster.shards, {key_of(world, each): None for each in entities}
    # A shard that is on its way is not asked to move a second time.
    stage.until(lambda: all(is_taken(world, rows[key]) for key in keys), MOVED_SECONDS, what)
    before = {key: rows[key].epoch for key in keys}
    world.injector.move(list(keys), None)

    def moved() -> bool:
        return all(
            place_of(world, each).step == "home" and place_of(world, each).epoch > before[key_of(world, each)]
            for each in entities
            if each[0].singleton_id is None
        )

    stage.until(moved, MOVED_SECONDS, what)
    calls = stage.calls(entities, "add")
    stage.until(lambda: all(call.acknowledged for call in calls), MOVED_SECONDS, what)


def _are_taken_over(stage: Stage, entities: list[Named], what: str) -> None:
    """Kill a node, and start it again: it comes up, and its shards have homes."""
    world = stage.world
    if stage.is_over:
        return
    node = world.nodes[world.seed % len(world.nodes)]
    node.crash()
    node.boot()
    stage.until(lambda: node.is_up, BOOT_SECONDS, f"a node comes up: {what}")
    stage.reach_all(what, TAKEN_OVER_SECONDS, entities)
