"""Faults of every kind, while users call from clients and from inside of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from sharding_app.simulation.clients import Caller, Client
from sharding_app.simulation.loop import SimLoop
from sharding_app.simulation.stage import Stage
from sharding_app.simulation.virtual_node import VirtualNode

USERS_OF_A_CLIENT = 3
CALLS_OF_A_USER = 26
CALLS_OF_A_NODE = 12
TURMOIL_SECONDS = 180.0
RESTS = 15


def turmoil(stage: Stage) -> None:
    world = stage.world
    world.injector.plan([fault._replace(at=fault.at) for fault in world.faults])
    for client in world.clients:
        for user in range(USERS_OF_A_CLIENT):
            random = Random(f"user {world.seed} {client.name} {user}")  # noqa: S311
            stage.job(client.loop, client.caller.use(random, CALLS_OF_A_USER))
    if world.cast.whole_protocol:
        stage.job(world.clients[1].loop, _wake_and_rest(stage, world.clients[1]))
    # A user of a node lives on a process of his own, so that he outlives the node; his calls do not.
    for each in world.nodes:
        stage.job(world.clients[0].loop, _use_node(stage, each))
    stage.until(lambda: stage.is_idle and not world.injector.pending, TURMOIL_SECONDS, "all calls end")


async def _wake_and_rest(stage: Stage, client: Client) -> None:
    """Have remembered entities go to rest, and wake them up again, one soon after the other."""
    random = Random(f"restless {stage.world.seed}")  # noqa: S311
    restless = [each for each in stage.world.cast.entities if each[0].settings.remember_entities]
    for _ in range(RESTS):
        await asyncio.sleep(random.random() * 0.4)
        entity = random.choice(restless)
        for command in ("rest", "total", "rest", "add"):
            await client.caller.call(client.asking, entity, command, 0.5)


async def _use_node(stage: Stage, node: VirtualNode) -> None:
    """Have calls made inside of a node's process, on its own loop."""
    random = Random(f"user {stage.world.seed} {node.name}")  # noqa: S311
    caller = Caller(stage.world, node.name, lambda: node.node if node.is_up else None)
    for _ in range(CALLS_OF_A_NODE):
        await asyncio.sleep(random.random())
        if node.is_up and not node.process.stopped:
            loop = node.process.loops[0]
            loop.call_soon_threadsafe(_start, loop, caller.use(random, 1))


def _start(loop: SimLoop, job: Coroutine[Any, Any, None]) -> None:
    loop.create_task(job)
