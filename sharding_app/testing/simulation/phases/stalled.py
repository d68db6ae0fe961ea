"""A shard that moves in calm while its handler lasts longer than anything waits (promise 10)."""

from __future__ import annotations

from sharding_app.errors import PartiallyApplied
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.particular import KILN
from sharding_app.testing.simulation.promises import PromiseBroken

BEGUN_SECONDS = 2.0
MOVED_SECONDS = 2.5
"""Regions hold back for 0.3 s, the hand-off waits for the handler for 1 s, and messages take some
time.
"""
TOLD_SECONDS = 0.5


def stalled(stage: Stage) -> None:
    """Have a handler given up: its caller gets an error, and the next home serves later calls."""
    world = stage.world
    kiln = next((each for each in world.cast.entities if each[0] is KILN), None)
    if kiln is None or not world.cast.moves or world.failure is not None:
        return
    entity_type, entity_id = kiln
    call = stage.call(kiln, "bake_and_stall")
    journal = world.witness.journal
    stage.until(
        lambda: any(each.token == call.tokens[0] for each in journal.get(call.entity, ())),
        BEGUN_SECONDS, "a handler that lasts has stored its first part",
    )  # fmt: skip
    key = entity_type.name, world.shard_of(entity_type.name, entity_id)
    former = world.server.cluster.shards[key].epoch
    world.injector.move([key], None)

    def moved() -> bool:
        row = world.server.cluster.shards[key]
        return row.epoch > former and row.step == "home"

    stage.until(moved, MOVED_SECONDS, "a shard moves though a handler of it lasts")
    stage.until(
        lambda: call.ended is not None, TOLD_SECONDS, "the caller of a handler that was given up is told"
    )
    if not stage.is_over and not isinstance(call.error, PartiallyApplied):
        detail = f"a handler was given up after its first part, and told {call.error!r}, {call.value!r}"
        world.broke(PromiseBroken(8, "errors_are_true", detail, call.entity))
    stage.reach_all("calls after a handler that was given up are served", MOVED_SECONDS, [kiln])
    world.transition("handler", "lasts too long", "given up")
