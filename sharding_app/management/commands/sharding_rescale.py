"""`manage.py sharding_rescale`: change the number of workers of a set, and wait until it holds."""

import asyncio
from argparse import ArgumentParser
from typing import Any

from sharding_app.entities.sharding.workers import checked_number
from sharding_app.errors import InvalidCall
from sharding_app.management.base import seconds
from sharding_app.management.operator_command import OperatorCommand, refused, signed
from sharding_app.operations.connectivity import joined, secure
from sharding_app.ports.store import ClusterStore
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.records import NumberOfWorkers
from sharding_app.wiring import new_loop

LOOK_SECONDS = 0.25


class Command(OperatorCommand):
    help = (
        "Change the number of workers of a set (ShardedDaemonProcess). All old workers are stopped before the\n"
        "first new one starts. The number is kept over restarts of the cluster.\n\n"
        "Examples:\n"
        "  manage.py sharding_rescale imports --workers 8\n"
        "  manage.py sharding_rescale imports              show how many there are\n\n"
        "Exit codes: 0 done, 1 refused or not finished in time, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", metavar="NAME", help="the set's name, as sharding_status shows it")
        parser.add_argument("--workers", type=int, metavar="N", help="how many workers there are to be")
        parser.add_argument("--timeout", type=seconds, default=60.0, metavar="SECONDS",
            help="wait at most N seconds for the old workers' end (default: 60); the rescale goes on after that")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        if options["timeout"] <= 0:
            raise refused("--timeout must be greater than 0.")
        if options["workers"] is not None:
            try:
                checked_number(options["workers"])
            except InvalidCall as error:
                raise refused(f"--{error.message}.") from None
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._run(options))

    async def _run(self, options: dict[str, Any]) -> None:
        async with joined() as process:
            await self._rescale(process.ports.store, options)

    async def _rescale(self, store: ClusterStore, options: dict[str, Any]) -> None:
        name = WORKERS + options["name"].removeprefix(WORKERS)
        before = await _numbers(store, name)
        wanted: int | None = options["workers"]
        if wanted is not None:
            await store.rescale(name, wanted, signed("sharding_rescale"))
            before = await self._wait(store, name, wanted, options["timeout"])
        self.say(_told(before))
        self.result(
            name=name.removeprefix(WORKERS), workers=before.workers, wanted=before.wanted,
            revision=before.revision,
        )  # fmt: skip

    async def _wait(self, store: ClusterStore, name: str, wanted: int, timeout: float) -> NumberOfWorkers:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            found = await _numbers(store, name)
            if found.wanted != wanted:
                raise refused(f"Another rescale has taken the place of this one: to {found.wanted}.")
            if not found.rescaling:
                if await secure(max(LOOK_SECONDS, deadline - loop.time())):
                    return found
                raise refused(
                    f"{_told(found)} A synchronous standby does not have that within {timeout:g} s: a failover may take it back."
                    " Run this again when the standby is there."
                )
            if loop.time() >= deadline:
                raise refused(
                    f"The {found.workers} old workers have not all stopped within {timeout:g} s. The rescale to"
                    f" {wanted} goes on; sharding_status shows who is left."
                )
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, deadline - loop.time())))


async def _numbers(store: ClusterStore, name: str) -> NumberOfWorkers:
    known = {each.type: each for each in await store.workers()}
    if name not in known:
        there = ", ".join(each.removeprefix(WORKERS) for each in known) or "none"
        raise refused(f"There is no set of workers {name.removeprefix(WORKERS)!r} (sets: {there}).")
    return known[name]


def _told(numbers: NumberOfWorkers) -> str:
    name = numbers.type.removeprefix(WORKERS)
    if numbers.rescaling:
        return f"{name} has {numbers.workers} workers, and is being rescaled to {numbers.wanted}."
    return f"{name} has {numbers.workers} worker{'s' if numbers.workers > 1 else ''}."
