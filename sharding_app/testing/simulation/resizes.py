"""An operator who changes the number of shards of the workload's types, in some seeds."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.numbering import why_not
from sharding_app.testing.simulation.workload import TILL

if TYPE_CHECKING:
    from sharding_app.testing.simulation.world import World

SEEDS = (21, 22, 25, 26, 31, 41, 47)
"""Of 48 seeds those with resizes, and none with further journals."""
BESIDE_JOURNALS = (64, 72, 81, 88, 93)
"""Of 96 seeds those with resizes beside further journals: of both kinds, with two journals and with
three, some with closings of shards too."""
RESIZES = 12
NUMBERS = (1, 2, 3, 4, 6, 8, 12)
AT_ONCE = 2
"""Shards of a step: most resizes take several."""


def is_resized(seed: int) -> bool:
    return seed % 48 in SEEDS or seed % 96 in BESIDE_JOURNALS


async def resize_now_and_then(world: World) -> None:
    """Wish other numbers of shards, now of one type, now of another."""
    random = Random(f"resizes {world.seed}")
    types = [each for each in world.cast.types if _can_be_resized(each)]
    for _ in range(RESIZES):
        await asyncio.sleep(random.random() * 2.0)
        name = random.choice(types).name
        config = world.server.cluster.types.get(name)
        if config is None or config.wanted:
            continue
        shards = config.number_of_shards
        if name == TILL.name and not _lies_in_the_cluster(world, shards):
            continue
        wanted = random.choice([each for each in NUMBERS if not why_not(shards, each)])
        try:
            world.server.cluster.check_journals(world.server.identity.lineage)
        except ServerError:
            continue
        if world.server.cluster.resize(name, shards, wanted):
            world.trace.note("world", None, "%d shards are wished for %s", wanted, name)
            world.transition("shards", "are there", "are multiplied" if wanted > shards else "are merged")


def _lies_in_the_cluster(world: World, shards: int) -> bool:
    """Tell whether all shards of tills have a row. Of one that has none the weights say where new
    ones lie, and tills have to lie beside the application's rows.
    """
    rows = world.server.cluster.shards
    return not world.journals or all((TILL.name, each) in rows for each in range(shards))


def under_way(world: World) -> list[str]:
    """Return the types that are being resized."""
    return [name for name, config in world.server.cluster.types.items() if config.wanted]


def _can_be_resized(made: EntityType) -> bool:
    return made.singleton_id is None and not made.workers and made.extractor is None
