"""Servers that are slow and well, in calm, after a time in which they have answered no look-up.

An entity handles nothing while the journal is asked for an earlier attempt of a command. Such
look-ups are asked few at a time once they have failed. They become many again although each takes
its time, so no entity waits behind all others of its node (promise 10).
"""

from __future__ import annotations

from sharding_app.testing.simulation.fault_policy import LOOK_UPS_FAIL
from sharding_app.testing.simulation.harness import HEALED_SECONDS, Stage
from sharding_app.testing.simulation.promises import Call
from sharding_app.testing.simulation.workload import TYPES

SEEDS = (2, 11)
"""Of 16 seeds those with this phase."""
ENTITIES = 14
"""Entities of each type. No more calls for a type may be under way in a process."""
PASSIVATED_SECONDS = 2.5
FAILING_SECONDS = 2.0
REQUEST_SECONDS = 0.35
ANSWERED_SECONDS = 2.8
"""Up to ten look-ups of a node, at first one at a time, and a commit take 1.9 s. One at a time to
the end, they take 3.5 s and more.
"""


def slow_server(stage: Stage) -> None:
    world = stage.world
    if world.seed % 16 not in SEEDS or world.failure is not None:
        return
    entities = [(made, f"slow-{number}") for number in range(ENTITIES) for made in TYPES]
    everywhere = world.conditions.everywhere()
    calls = stage.calls(entities, "add")
    stage.until(lambda: all(call.acknowledged for call in calls), HEALED_SECONDS, "new entities answer")
    # A home that reads an entity's events does not know the ids of before.
    stage.pass_time(PASSIVATED_SECONDS)
    for each in everywhere:
        each.trouble = LOOK_UPS_FAIL
    calls = stage.calls(entities, "again")
    stage.pass_time(FAILING_SECONDS)
    for each in everywhere:
        each.trouble, each.steady_seconds = None, REQUEST_SECONDS
    stage.until(
        lambda: all(_is_looked_up(stage, call) for call in calls),
        ANSWERED_SECONDS, "no entity waits for the look-ups of all others",
    )  # fmt: skip
    for each in everywhere:
        each.steady_seconds = 0.0
    stage.settle("every shard has a live home behind a slow server")


def _is_looked_up(stage: Stage, call: Call) -> bool:
    """Tell whether the earlier attempt of a call has been looked for: it has ended, or is stored.

    Its answer may take longer. A connection that an outage of before has ended, and that nothing
    has used since, leaves a commit in doubt.
    """
    entries = stage.world.witness.journal.get(call.entity, ())
    return call.ended is not None or any(each.token in call.tokens for each in entries)
