"""A blocked loop in calm, in some seeds: it costs no lease at first, and the node in the end."""

from __future__ import annotations

from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.virtual_node import DRIFT, STALL_SECONDS, TTL_SECONDS

SHORT_SECONDS = TTL_SECONDS + 1.2
"""Longer than a lease that nothing renews, shorter than the limit of a stalled loop."""
AGAIN_SECONDS = 2.0
LONG_SECONDS = (STALL_SECONDS + TTL_SECONDS) / (1 - DRIFT) + 1.0
"""Until the lifeline gives the loop up, then until the server ends its sessions, then the others'
time.
"""


def blocked(stage: Stage) -> None:
    """Block a loop, first shortly, then for long (promises 10 and 13).

    Its lifeline goes on beside it until the loop has stood still for too long.
    """
    world = stage.world
    if world.seed % 10 != 1 or world.failure is not None:
        return
    slot = world.nodes[world.scheduler.random.randrange(len(world.nodes))]
    incarnation, process = slot.incarnations[-1], slot.process
    node = slot.node
    if node is None:
        return
    lapses = node.lifeline.lease.generation
    world.trace.note("world", None, "the loop of %s is blocked", incarnation)
    process.block()
    stage.pass_time(SHORT_SECONDS)
    process.unblock()
    stage.pass_time(AGAIN_SECONDS)
    if node.lifeline.lease.generation != lapses:
        detail = (
            f"the lease of {incarnation} has lapsed beside a loop that was blocked for {SHORT_SECONDS:g} s"
        )
        world.broke(PromiseBroken(10, "a_blocked_loop_costs_no_lease", detail))
    process.block()

    def replaced() -> bool:
        rows = world.server.cluster
        return incarnation not in rows.members and all(
            row.home != incarnation for row in rows.shards.values()
        )

    stage.until(replaced, LONG_SECONDS, "a node whose loop stands for long is replaced", promise=13)
    process.unblock()
    stage.settle("it heals after a blocked loop")
