"""A rolling restart in calm, under load: no call fails, no shard moves while versions are mixed."""

from __future__ import annotations

import asyncio
from random import Random

from sharding_app.errors import BufferFull
from sharding_app.testing.simulation.clients import Client
from sharding_app.testing.simulation.harness import HEALED_SECONDS, Stage
from sharding_app.testing.simulation.liveness import is_balanced, is_settled
from sharding_app.testing.simulation.promises import PromiseBroken

POLITE_USERS_OF_A_CLIENT = 2
DEPLOY_SECONDS = 90.0


def deployment(stage: Stage) -> None:
    world = stage.world
    if not world.cast.whole_protocol:
        return
    world.calm = True
    for client in world.clients:
        for user in range(POLITE_USERS_OF_A_CLIENT):
            random = Random(f"polite {world.seed} {client.name} {user}")
            stage.job(client.loop, _use_politely(stage, client, random))
    world.injector.roll(0.3)
    stage.until(lambda: stage.is_idle and not world.injector.pending, DEPLOY_SECONDS, "a deployment ends")
    stage.until(
        lambda: is_settled(world) and is_balanced(world), HEALED_SECONDS, "balanced after a deployment"
    )
    world.calm = False


async def _use_politely(stage: Stage, client: Client, random: Random) -> None:
    """Call and wait for the answer, while there is a deployment."""
    world = stage.world
    calls = 0
    while world.injector.pending or not calls:
        calls += 1
        await asyncio.sleep(random.random() * 0.3)
        entity = random.choice(world.cast.called)
        call = await client.caller.call(client.asking, entity, random.choice(("add", "add", "total")))
        # A singleton's proxy holds few calls. The oldest one gets this error, as it should.
        full = isinstance(call.error, BufferFull) and entity[0].waiting_limit is not None
        if call.error is not None and not full:
            detail = f"{call.command} failed in a rolling restart: {call.error!r}"
            world.broke(PromiseBroken(10, "nothing_fails_in_a_deployment", detail, call.entity))
