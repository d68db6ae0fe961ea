"""Faults of every kind, while users call from clients and from inside nodes.

Users of clients go on until the last fault has ended: later calls would meet a cluster in calm,
which has phases of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from sharding_app.runtime.hosting.erasure import UnderWay
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.simulation.clients import Caller, Client
from sharding_app.testing.simulation.closings import has_closings, move_now_and_then
from sharding_app.testing.simulation.harness import Stage
from sharding_app.testing.simulation.hosts import host_at
from sharding_app.testing.simulation.loop import SimLoop
from sharding_app.testing.simulation.move_seeds import has_moves
from sharding_app.testing.simulation.moves import (
    delete_copies_now_and_then,
    erase_copies,
    move_rows_now_and_then,
)
from sharding_app.testing.simulation.particular import MULE
from sharding_app.testing.simulation.projections import Operator
from sharding_app.testing.simulation.resizes import is_resized, resize_now_and_then
from sharding_app.testing.simulation.virtual_node import VirtualNode
from sharding_app.testing.simulation.workload import SNAPPED

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

USERS_OF_A_CLIENT = 3
CALLS_OF_A_NODE = 12
TURMOIL_SECONDS = 180.0
EVENTS_AT_ONCE = 8
"""The end may be noticed this number of events late: each question takes time."""
RESTS = 15
ERASURES = 7
ARCHIVES = 24
FILE_SECONDS = 1.0
"""Longest time in which a file is written, synced and read again."""
STUBBORN_TIMES = 4


def turmoil(stage: Stage) -> None:
    world = stage.world
    world.injector.plan(world.faults)
    if world.seed % 4 < 2:
        world.injector.forget_streams()
    for client in world.clients:
        for user in range(USERS_OF_A_CLIENT):
            stage.users(client, _user(client, Random(f"user {world.seed} {client.name} {user}")))
    if world.cast.looked_on:
        for client in world.clients:
            stage.users(client, _onlooker(client, Random(f"onlooker {world.seed} {client.name}")))
    if world.cast.whole_protocol:
        stage.users(world.clients[1], _restless(stage, world.clients[1]))
    _operate(stage)
    stage.job(world.outside, _be_stubborn_now_and_then(stage))
    if world.projections.are_there:
        _operate_projections(stage)
    # A user of a node outlives it; the calls do not.
    for each in world.nodes:
        stage.job(world.outside, _use_node(stage, each))
    stage.until(
        lambda: stage.is_idle and not world.injector.pending,
        TURMOIL_SECONDS, "all calls end", at_once=EVENTS_AT_ONCE,
    )  # fmt: skip
    for client in world.clients:
        client.on_boot.clear()


def _operate(stage: Stage) -> None:
    """Let operators give their commands."""
    world = stage.world
    stage.job(world.outside, _erase_now_and_then(stage))
    if world.witness.archives.are_there:
        stage.job(world.outside, _archive_now_and_then(world))
    stage.job(world.outside, world.witness.workers.rescale_now_and_then())
    if is_resized(world.seed):
        stage.job(world.outside, resize_now_and_then(world))
    if has_closings(world.seed):
        stage.job(world.outside, move_now_and_then(world))
    if has_moves(world.seed):
        stage.job(world.outside, move_rows_now_and_then(world))
        stage.job(world.outside, delete_copies_now_and_then(world))


def _operate_projections(stage: Stage) -> None:
    world = stage.world
    stage.job(world.outside, Operator(world).now_and_then())
    if world.journals:  # to the end of the world
        world.outside.create_task(Operator(world).reset_what_is_refused())


def _user(client: Client, random: Random) -> Callable[[], Coroutine[Any, Any, None]]:
    turns = client.world.injector.turns()
    return lambda: client.caller.use(random, turns)


def _onlooker(client: Client, random: Random) -> Callable[[], Coroutine[Any, Any, None]]:
    turns = client.world.injector.turns()
    return lambda: client.caller.look_on(random, turns)


def _restless(stage: Stage, client: Client) -> Callable[[], Coroutine[Any, Any, None]]:
    random, turns = Random(f"restless {stage.world.seed}"), iter(range(RESTS))
    return lambda: _wake_and_rest(stage, client, random, turns)


async def _wake_and_rest(stage: Stage, client: Client, random: Random, turns: Iterable[int]) -> None:
    """Have remembered entities go to rest, and wake them up soon after."""
    restless = [each for each in stage.world.cast.entities if each[0].settings.remember_entities]
    for _ in turns:
        await asyncio.sleep(random.random() * 0.4)
        entity = random.choice(restless)
        for command in ("rest", "total", "rest", "add"):
            await client.caller.call(client.asking, entity, command, 0.5)


async def _use_node(stage: Stage, node: VirtualNode) -> None:
    """Have calls made inside of a node's process, on its own loop."""
    random = Random(f"user {stage.world.seed} {node.name}")
    caller = Caller(stage.world, node.name, lambda: node.node if node.is_up else None)
    for _ in range(CALLS_OF_A_NODE):
        await asyncio.sleep(random.random())
        if node.is_up and not node.process.stopped:
            loop = node.process.loops[0]
            loop.call_soon_threadsafe(_start, loop, caller.use(random, (1,)))


async def _be_stubborn_now_and_then(stage: Stage) -> None:
    """Have a remembered entity refuse to start, for a while each time."""
    world = stage.world
    mules = [each for each in world.cast.entities if each[0] is MULE]
    random = Random(f"mules {world.seed}")
    for _, entity in mules[:1] * STUBBORN_TIMES:
        await asyncio.sleep(random.random() * 1.5)
        world.witness.stubborn.begins(entity)
        await asyncio.sleep(random.random() * 3.0)
        world.witness.stubborn.ends(entity)


async def _erase_now_and_then(stage: Stage) -> None:
    """Have an operator erase an entity, and wait until it is done or its home is gone."""
    world = stage.world
    random = Random(f"operator {world.seed}")
    for _ in range(ERASURES):
        await asyncio.sleep(random.random() * 3.0)
        entity_type, entity = random.choice([each for each in world.cast.entities if each[0] is SNAPPED])
        number = world.shard_of(entity_type.name, entity)
        if at_home := _home_of(world, entity_type.name, number):
            loop, host = at_home
            loop.call_soon_threadsafe(_start, loop, erase(stage, host, number, entity))


async def _archive_now_and_then(world: World) -> None:
    """Have an operator write an entity to a file, and then its home remove it."""
    random = Random(f"archives {world.seed}")
    for _ in range(ARCHIVES):
        await asyncio.sleep(random.random())
        entity_type, entity = random.choice([each for each in world.cast.entities if each[0] is SNAPPED])
        mark = world.witness.archives.write(entity_type.name, entity)
        await asyncio.sleep(random.random() * FILE_SECONDS)
        number = world.shard_of(entity_type.name, entity)
        if mark and (at_home := _home_of(world, entity_type.name, number)):
            loop, host = at_home
            loop.call_soon_threadsafe(_start, loop, _archive(host, number, entity, mark))


def _home_of(world: World, type_name: str, shard: int) -> tuple[SimLoop, TypeHost] | None:
    """Return the loop of a shard's home, and the host of the type there; None: it has no live
    one.
    """
    row = world.server.cluster.shards.get((type_name, shard))
    home = next((each for each in world.nodes if row is not None and row.home in each.incarnations), None)
    if home is None or home.node is None or not home.is_up or home.process.stopped:
        return None
    host = host_at(home.node, type_name, shard)
    return None if host is None else (home.process.loops[0], host)


async def _archive(host: TypeHost, number: int, entity: str, mark: str) -> None:
    answer: object = UnderWay(begun=False, events=0)
    while isinstance(answer, UnderWay):
        answer = await host.erasing.archive(number, entity, mark)


async def erase(stage: Stage, host: TypeHost, number: int, entity: str) -> None:
    witness = stage.world.witness
    name = f"{host.type.name}/{entity}"
    awaited = witness.erasing.setdefault(name, [])
    answer: object = UnderWay(begun=False, events=0)
    epoch = 0
    while isinstance(answer, UnderWay):
        shard = host.shards.get(number)
        epoch = epoch if shard is None else shard.epoch
        awaited.append(epoch)
        answer = await host.erasing.erase(number, entity, "operator")
        awaited.remove(epoch)
    if answer == "away" and epoch:
        witness.cut_short[name] = epoch, stage.world.now
    else:
        await erase_copies(stage.world, host.type.name, entity)


def _start(loop: SimLoop, job: Coroutine[Any, Any, None]) -> None:
    loop.create_task(job)
