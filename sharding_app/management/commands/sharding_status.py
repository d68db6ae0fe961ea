"""`manage.py sharding_status`: the current state of the cluster, for people and for scripts."""

import asyncio
import dataclasses
from argparse import ArgumentParser
from typing import Any

from django.db import DatabaseError

from sharding_app.management import status_text
from sharding_app.management.base import seconds
from sharding_app.management.operator_command import refused
from sharding_app.management.report_command import LookingCommand, Seen
from sharding_app.operations.connectivity import HEALTHY, PROBLEMS, CannotReach, joined, trouble
from sharding_app.operations.snapshot import read_cluster
from sharding_app.operations.status import Report, report, still_missing
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.node.process import Process
from sharding_app.settings.load import get_settings
from sharding_app.wiring import new_loop

WAIT_SECONDS = 0.5


class Command(LookingCommand):
    help = (
        "Show nodes, coordinator, types, homes of shards, and the number of entities in memory.\n\n"
        "Examples:\n"
        "  manage.py sharding_status                      one page\n"
        "  manage.py sharding_status --watch 5            every five seconds, until Ctrl-C\n"
        "  manage.py sharding_status --json | jq '.problems[].id'\n"
        "  manage.py sharding_status --wait --timeout 60  until the cluster is healthy and no shard moves\n"
        "  manage.py sharding_status --wait --node web-3  until that node is up, and no shard moves\n\n"
        "Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached. With --wait, 1 means a timeout."
    )
    every_seconds = 2.0

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--wait", action="store_true", help="wait until the cluster is healthy and no shard moves"
        )
        parser.add_argument(
            "--node",
            metavar="NAME",
            help="with --wait: wait only until this node is up and no shard moves",
        )
        parser.add_argument(
            "--timeout",
            type=seconds,
            default=60.0,
            metavar="SECONDS",
            help="time limit of --wait (default: 60)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.wait: bool = options["wait"]
        self.node: str | None = options["node"]
        self.timeout: float = options["timeout"]
        if self.node is not None and not self.wait:
            raise refused("--node requires --wait.")
        if self.wait and (options["watch"] is not None or self.timeout <= 0):
            raise refused("--wait requires a --timeout greater than 0, and excludes --watch.")
        super().handle(*args, **options)

    def look(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._look(self.every))

    async def _look(self, every: float | None) -> None:
        async with joined() as process:
            if self.wait:
                await self._wait(process)
                return
            if every is None:
                self.show(await self._once(process))
                return
            while True:
                try:
                    self.show(await self._once(process))
                except CannotReach as error:
                    self.show_unreachable(error)
                await asyncio.sleep(every)

    async def _wait(self, process: Process) -> None:
        """Show only the last report: the awaited state, or the condition that is still missing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.timeout
        while True:
            missing = "a server cannot be reached"
            try:
                found = await self._report(process)
                missing = still_missing(found, self.node)
            except CannotReach:
                if loop.time() >= until:
                    raise
            else:
                if not missing or loop.time() >= until:
                    self.show(dataclasses.replace(self._seen(found), code=PROBLEMS if missing else HEALTHY))
                    if missing:
                        self.stderr.write(f"Not ready within {self.timeout:g} s: {missing}")
                    return
            await asyncio.sleep(min(WAIT_SECONDS, max(0.0, until - loop.time())))

    async def _once(self, process: Process) -> Seen:
        return self._seen(await self._report(process))

    async def _report(self, process: Process) -> Report:
        try:
            return report(*await read_cluster(process, get_settings().database))
        except (StoreUnavailable, DatabaseError) as error:
            raise trouble(error) from error

    def _seen(self, found: Report) -> Seen:
        return Seen(
            code=HEALTHY if found.healthy else PROBLEMS,
            at=found.at,
            page=lambda: status_text.page(found, self.style),
            line=lambda: status_text.line(found),
            facts=found.as_json,
        )
