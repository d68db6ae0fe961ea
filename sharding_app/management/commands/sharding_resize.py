"""`manage.py sharding_resize`: change the number of shards of a type in a running cluster, and wait
until it holds.
"""

import asyncio
from argparse import ArgumentParser
from typing import Any

from sharding_app.management.base import seconds
from sharding_app.management.operator_command import OperatorCommand, refused, signed
from sharding_app.operations.connectivity import joined, secure
from sharding_app.operations.resizes import told, why_refused
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.records import TypeConfig
from sharding_app.wiring import new_loop

LOOK_SECONDS = 0.25
SAY_SECONDS = 5.0


class Command(OperatorCommand):
    help = (
        "Change the number of shards of an entity type while the cluster works. The new number is a multiple or a\n"
        "divisor of the present one. Shards change in groups, one after the other: each is handed off, and its\n"
        "entities' messages, timers and remembered ids get their new shards. Messages to them wait meanwhile.\n"
        "The number is kept over restarts of the cluster. A resize that has begun goes on by itself.\n\n"
        "Examples:\n"
        "  manage.py sharding_resize shop.Cart --shards 400\n"
        "  manage.py sharding_resize shop.Cart             show how many there are\n\n"
        "Exit codes: 0 done, 1 refused or not finished in time, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="the type's name, as sharding_status shows it")
        parser.add_argument("--shards", type=int, metavar="N", help="how many shards there are to be")
        parser.add_argument("--timeout", type=seconds, default=600.0, metavar="SECONDS",
            help="wait at most N seconds (default: 600); the resize goes on after that")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        if options["timeout"] <= 0:
            raise refused("--timeout must be greater than 0.")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._run(options))

    async def _run(self, options: dict[str, Any]) -> None:
        async with joined() as process:
            await self._resize(process.ports.store, options)

    async def _resize(self, store: ClusterStore, options: dict[str, Any]) -> None:
        config = await _config(store, options["type"])
        wanted: int | None = options["shards"]
        if wanted is not None:
            await self._ask(store, config, wanted)
            config = await self._wait(store, config.name, wanted, options["timeout"])
        self.say(f"{config.name} {told(config.numbering)}.")
        self.result(
            type=config.name, shards=config.number_of_shards, wanted=config.wanted,
            groups_done=config.resized, groups=config.numbering.groups,
        )  # fmt: skip

    async def _ask(self, store: ClusterStore, config: TypeConfig, wanted: int) -> None:
        if wanted == (config.wanted or config.number_of_shards):
            return  # it goes on, or it is done and a standby may lack it: `_wait` waits for that
        if why := why_refused(config, wanted):
            raise refused(why)
        if apart := await _lie_apart(store, config, wanted):
            raise refused(
                f"Shards {', '.join(map(str, apart))} of {config.name} would become one, and lie in different journals"
                " (SHARDING['JOURNALS']). More shards are possible, or a divisor that joins none of these."
            )
        if not await store.resize(config.name, config.number_of_shards, wanted, signed("sharding_resize")):
            raise refused(
                f"Another resize of {config.name} has just begun, or its data was removed, or shards of it move to another journal"
                f" or have left copies there: end that first (manage.py sharding_move_journal {config.name} --delete-source, or"
                " --cancel)."
            )

    async def _wait(self, store: ClusterStore, name: str, wanted: int, timeout: float) -> TypeConfig:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        say_at = loop.time() + SAY_SECONDS
        while True:
            config = await _config(store, name)
            if config.wanted == 0 and config.number_of_shards == wanted:
                if await secure(max(LOOK_SECONDS, deadline - loop.time())):
                    return config
                raise refused(
                    f"{name} {told(config.numbering)}, but a synchronous standby does not have that within {timeout:g} s: a failover"
                    " may take it back. Run this again when the standby is there."
                )
            if config.wanted != wanted:
                raise refused(
                    f"Another resize has taken the place of this one: {name} {told(config.numbering)}."
                )
            if loop.time() >= deadline:
                raise refused(
                    f"Not finished within {timeout:g} s: {name} {told(config.numbering)}. The resize goes on;"
                    " sharding_doctor says what holds it up."
                )
            if loop.time() >= say_at:
                self.say(f"{name} {told(config.numbering)}.")
                say_at += SAY_SECONDS
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, deadline - loop.time())))


async def _lie_apart(store: ClusterStore, config: TypeConfig, wanted: int) -> list[ShardId]:
    """Return shards of one group, of the first that has some in different journals."""
    groups: dict[int, dict[str, ShardId]] = {}
    for row in await store.homes(config.name, range(config.number_of_shards)):
        places = groups.setdefault(row.shard % min(wanted, config.number_of_shards), {})
        places.setdefault(row.journal, row.shard)
    return next((sorted(places.values()) for _, places in sorted(groups.items()) if len(places) > 1), [])


async def _config(store: ClusterStore, name: str) -> TypeConfig:
    known = {each.name: each for each in await store.types()}
    if name not in known:
        raise refused(f"There is no type {name!r} (types: {', '.join(sorted(known)) or 'none'}).")
    return known[name]
