"""A refused row in calm, with others of its entity under way behind it (promises 2, 3, 4 and 8)."""

from __future__ import annotations

from sharding_app.errors import NotSerializable, Unavailable
from sharding_app.ports.journal import EventRow
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.particular import TURNSTILE
from sharding_app.testing.simulation.promises import PromiseBroken

COMMANDS = ("add", "add", "add_slowly", "add")
"""The last one comes while the handler behind the refused row still runs, and has to wait for
it.
"""
ENDS_SECONDS = 1.5


def pipelines(stage: Stage) -> None:
    """Have a row refused: it fails as refused, and those behind it fail as not stored.

    The witness checks that none of these is stored.
    """
    world = stage.world
    gate = next((each for each in world.cast.entities if each[0] is TURNSTILE), None)
    if gate is None or world.failure is not None:
        return
    first: list[bytes] = []

    def refuses(row: EventRow) -> bool:
        if row.entity == gate[1] and not first:
            first.append(row.payload)
        return row.payload in first

    allow = world.obstacles.refuse(refuses)
    calls = stage.calls([gate] * len(COMMANDS), *COMMANDS)
    stage.until(
        lambda: all(call.ended is not None for call in calls), ENDS_SECONDS, "all are told", promise=8
    )
    allow()
    if stage.is_over:
        return
    refused, *behind = calls
    if not isinstance(refused.error, NotSerializable):
        detail = f"the refused one ended with {refused.error!r}, {refused.value!r}"
        world.broke(PromiseBroken(8, "errors_are_true", detail, refused.entity))
    for call in behind:
        if isinstance(call.error, Unavailable):
            world.transition("pipelined", "behind a refused row", "failed")
    stage.reach_all("it answers again", ENDS_SECONDS, [gate])
