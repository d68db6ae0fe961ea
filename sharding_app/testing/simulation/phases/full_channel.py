"""A full channel of one node in calm: others are served, and it is once there is room again."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import HEALED_SECONDS, Stage
from sharding_app.testing.simulation.liveness import home_of, is_at_home, is_settled
from sharding_app.testing.simulation.topology import Named

OTHERS_SECONDS = 0.5
FREE_SECONDS = 1.5
"""A refused frame is tried again every quarter of a second, and unheard ones are sent again."""


def full_channel(stage: Stage) -> None:
    """Fill one node's channel (promise 10, in some seeds)."""
    world = stage.world
    if world.seed % 10 != 8 or world.failure is not None:
        return
    # The last calls before may have made a shard move.
    stage.until(lambda: is_settled(world), HEALED_SECONDS, "every shard is where its row says")
    node = world.nodes[world.scheduler.random.randrange(len(world.nodes))]
    there: list[Named] = []
    elsewhere: list[Named] = []
    for each in dict.fromkeys(world.cast.entities):
        if is_at_home(world, each):
            (there if home_of(world, each) is node else elsewhere).append(each)
    world.conditions.full[node.name] = None
    world.trace.note("world", None, "the channel of %s is full", node.name)
    calls = stage.calls([*there, *elsewhere], "add")
    stage.until(
        lambda: all(each.acknowledged for each in calls[len(there) :]),
        OTHERS_SECONDS, f"other nodes answer while the channel of {node.name} is full",
    )  # fmt: skip
    world.conditions.heal()
    stage.until(
        lambda: all(each.acknowledged for each in calls), FREE_SECONDS, f"{node.name} answers once its channel has room",
    )  # fmt: skip
