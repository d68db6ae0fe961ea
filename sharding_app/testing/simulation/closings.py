"""An operator who moves shards to another journal, as far as the coordinator sees it: the shards
are closed, fenced once they have no home, and opened. In some seeds.

The commands die at every point, or lose the server. Then nothing renews their closings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

import msgspec

from sharding_app.adapters.memory.cluster_writes import shard_key
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.adapters.memory.store import MemoryStore
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.records import ShardRow
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

SEEDS = (13, 32, 33, 36, 40, 45, 46)
"""Of 48 seeds those with closings: of both kinds, with and without further journals."""
MOVES = 12
CLOSED_SECONDS = 1.5
AT_MOST_SECONDS = 6.0
RENEW_SECONDS = 0.2
ELSEWHERE = "elsewhere"
MOVE = "move"
"""The name of its transitions."""


def has_closings(seed: int) -> bool:
    return seed % 48 in SEEDS


async def move_now_and_then(world: World) -> None:
    random = Random(f"closings {world.seed}")
    for number in range(MOVES):
        await asyncio.sleep(random.random() * 1.5)
        move = Move(world, f"mover-{number}", random)
        try:
            await move.run()
        except (StoreUnavailable, ConnectionLost, ServerError) as error:
            world.trace.note("world", None, "a move has to end: %s", error)
        finally:
            await move.store.close()


class Move:
    """One run of the command, which dies at a point of its own."""

    def __init__(self, world: World, client: str, random: Random) -> None:
        self._world = world
        self._random = random
        self._dies = random.choice(("closed", "without a home", "fenced", "", "", ""))
        self.store = MemoryStore(world.server, client)

    async def run(self) -> None:
        world, cluster = self._world, self._world.server.cluster
        name = self._random.choice(world.cast.types).name
        number = cluster.type_ids.get(name)
        known = sorted(shard for type_name, shard in cluster.shards if type_name == name)
        if number is None or not known:
            return
        chosen = self._random.sample(known, min(len(known), self._random.randint(1, 3)))
        await self.store.begin_move(number, chosen, ELSEWHERE)
        closed = await self.store.close_shards(number, chosen, CLOSED_SECONDS)
        self._is(name, closed, "copying", "closed")
        if not closed or self._dies == "closed" or not await self._without_homes(name, number, closed):
            return
        self._is(name, closed, "closed", "without a home")
        if self._dies == "without a home" or not await self._fenced(name, number, closed):
            return
        self._is(name, closed, "without a home", "fenced")
        await asyncio.sleep(self._random.random() * CLOSED_SECONDS)
        if self._dies == "fenced":
            return
        self._is(name, await self.store.open_shards(number, closed), "fenced", "opened")

    async def _without_homes(self, name: str, number: int, closed: Sequence[ShardId]) -> bool:
        """Wait until the shards have no home, and keep them closed. False: one was opened."""
        end = self._world.now + AT_MOST_SECONDS
        while any(row.home is not None for row in await self.store.homes(name, closed)):
            if await self.store.renew_closings(number, closed, CLOSED_SECONDS) != closed:
                return False
            if self._world.now > end:
                await self.store.open_shards(number, closed)
                return False
            await asyncio.sleep(RENEW_SECONDS)
        return await self.store.renew_closings(number, closed, CLOSED_SECONDS) == closed

    async def _fenced(self, name: str, number: int, closed: Sequence[ShardId]) -> bool:
        """Raise the epochs of the shards, so that none of their former homes writes any more."""
        cluster = self._world.server.cluster

        def fence() -> Steps[bool]:
            for shard in closed:
                yield Lock(shard_key(number, shard))
            yield Pause.COMMIT
            still = cluster.at_step(name, closed, "closed") == closed
            rows = [row for row in cluster.homes(name, closed) if row.home is None]
            if not still or len(rows) != len(closed):
                return False
            for row in rows:
                cluster.shards[name, row.shard] = msgspec.structs.replace(
                    cluster.shards[name, row.shard], epoch=row.epoch + 1
                )
                cluster.epochs[number, row.shard] = row.epoch + 1
            return True

        return await self.store.connection.reach("fence_shards", fence)

    def _is(self, name: str, shards: Sequence[ShardId], before: str, after: str) -> None:
        if shards:
            self._world.trace.note("world", None, "%s/%s: %s", name, shards, after)
            self._world.transition(MOVE, before, after)


def check(world: World, before: ShardRow | None, after: ShardRow) -> None:
    """Check that a closed shard gets no home: what that one writes may be left behind."""
    move = world.server.cluster.moves.get((after.type, after.shard))
    gets_one = after.home is not None and (
        before is None or (before.home, before.epoch) != (after.home, after.epoch)
    )
    if gets_one and move is not None and move.step == "closed":
        detail = f"{after.home} is its home at epoch {after.epoch}, and it is closed"
        raise PromiseBroken(1, "closed_shards_get_no_home", detail, f"{after.type}/{after.shard}")
