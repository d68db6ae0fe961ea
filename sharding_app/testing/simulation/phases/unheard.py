"""A living node whose lifelines end towards the server alone, in some seeds (promise 2)."""

from __future__ import annotations

import asyncio

from sharding_app.testing.simulation.clients import Client
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.overlaps import BOUND_SECONDS
from sharding_app.testing.simulation.phases.healing import REPLACED_SECONDS
from sharding_app.testing.simulation.topology import Named
from sharding_app.testing.simulation.virtual_node import VirtualNode

TOLD_SECONDS = 0.05
AFTER_SECONDS = 0.5
ASKS_EVERY_SECONDS = 0.1


def unheard(stage: Stage) -> None:
    """End a node's lifelines unheard, first with working links, then without.

    With links it hears of it from other nodes. Without, it goes on, and not for long.
    """
    world = stage.world
    if world.seed % 10 != 3 or world.failure is not None:
        return
    entity = world.cast.entities[0]
    _is_told(stage, entity)
    if world.failure is None:
        _is_apart(stage, entity)


def _is_told(stage: Stage, entity: Named) -> None:
    """Expect the node to hear of its end, also from a new coordinator whose link is brand-new."""
    node = _home(stage, entity)
    former = node.node
    node.lose_lifelines()
    _is_buried(stage, node)
    told = lambda: former is not None and former.state == "ended"  # noqa: E731
    stage.until(told, TOLD_SECONDS, "a node that is taken for dead is told so", promise=2)
    stage.settle("it heals after lifelines that ended unheard")


def _is_apart(stage: Stage, entity: Named) -> None:
    """Let a caller on the node's side query it, while others change the entity elsewhere."""
    world = stage.world
    node, (with_it, others) = _home(stage, entity), world.clients
    world.conditions.apart.update({node.name: 1, with_it.name: 1})
    node.lose_lifelines()
    end = world.now + BOUND_SECONDS + AFTER_SECONDS
    stage.job(with_it.loop, _go_on(stage, with_it, entity, "total", end))
    stage.job(others.loop, _go_on(stage, others, entity, "add", end))
    _is_buried(stage, node)
    stage.pass_time(end - world.now)
    world.conditions.heal()
    stage.until(lambda: stage.is_idle, REPLACED_SECONDS, "all calls end")
    stage.settle("it heals after lifelines that ended unheard, apart from the others")


def _home(stage: Stage, entity: Named) -> VirtualNode:
    world, (made, entity_id) = stage.world, entity
    home = world.server.cluster.shards[made.name, world.shard_of(made.name, entity_id)].home
    return next(each for each in world.nodes if home in each.incarnations)


def _is_buried(stage: Stage, node: VirtualNode) -> None:
    members, former = stage.world.server.cluster.members, node.incarnations[-1]
    stage.until(lambda: former not in members, REPLACED_SECONDS, "who looks dead is replaced", promise=13)


async def _go_on(stage: Stage, client: Client, entity: Named, command: str, end: float) -> None:
    while stage.world.now < end:
        await client.caller.call(client.asking, entity, command, 1.0)
        await asyncio.sleep(ASKS_EVERY_SECONDS)
