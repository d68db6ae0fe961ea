"""`manage.py sharding_status`: what the cluster is doing now, for people and for scripts."""

import asyncio
import dataclasses
from argparse import ArgumentParser
from typing import Any

from django.db import DatabaseError

from sharding_app.bootstrap import new_loop
from sharding_app.conf import get_settings
from sharding_app.management import status_text
from sharding_app.management.looking import LookingCommand, Seen
from sharding_app.management.observer import read_facts
from sharding_app.management.operating import refused
from sharding_app.management.reach import HEALTHY, PROBLEMS, CannotReach, joined, trouble
from sharding_app.management.status import Report, judge, still_missing
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.process import Process

WAIT_SECONDS = 0.5


class Command(LookingCommand):
    help = (
        "Show nodes, coordinator, types, where shards live, and how many entities are in memory.\n\n"
        "Examples:\n"
        "  manage.py sharding_status                      one page\n"
        "  manage.py sharding_status --watch 5            every five seconds, until Ctrl-C\n"
        "  manage.py sharding_status --json | jq .problems\n"
        "  manage.py sharding_status --wait --timeout 60  until the cluster is healthy and no shard moves\n"
        "  manage.py sharding_status --wait --node web-3  until that node is up, and no shard moves\n\n"
        "Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached. With --wait, 1 means that the time is over."
    )
    every_seconds = 2.0

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--wait", action="store_true", help="look again until the cluster is healthy and no shard moves"
        )
        parser.add_argument(
            "--node",
            metavar="NAME",
            help="with --wait: until this node is up, and no shard moves, whatever else there is",
        )
        parser.add_argument(
            "--timeout", type=float, default=60.0, metavar="SECONDS", help="for --wait (default: 60)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.wait: bool = options["wait"]
        self.node: str | None = options["node"]
        self.timeout: float = options["timeout"]
        if self.node is not None and not self.wait:
            raise refused("--node goes with --wait.")
        if self.wait and (options["watch"] is not None or self.timeout <= 0):
            raise refused("--wait needs a --timeout greater than 0, and no --watch.")
        super().handle(*args, **options)

    def look(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._look(self.every))

    async def _look(self, every: float | None) -> None:
        process = await joined()
        try:
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
        finally:
            await process.close()

    async def _wait(self, process: Process) -> None:
        """Show the last look only: it is what was waited for, or what is still missing."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.timeout
        while True:
            missing = "a server cannot be reached"
            try:
                report = await self._report(process)
                missing = still_missing(report, self.node)
            except CannotReach:
                if loop.time() >= until:
                    raise
            else:
                if not missing or loop.time() >= until:
                    self.show(dataclasses.replace(self._seen(report), code=PROBLEMS if missing else HEALTHY))
                    if missing:
                        self.stderr.write(f"Not so within {self.timeout:g} s: {missing}")
                    return
            await asyncio.sleep(min(WAIT_SECONDS, max(0.0, until - loop.time())))

    async def _once(self, process: Process) -> Seen:
        return self._seen(await self._report(process))

    async def _report(self, process: Process) -> Report:
        try:
            return judge(await read_facts(process, get_settings().database))
        except (StoreUnavailable, DatabaseError) as error:
            raise trouble(error) from error

    def _seen(self, report: Report) -> Seen:
        return Seen(
            code=HEALTHY if report.healthy else PROBLEMS,
            at=report.at,
            page=lambda: status_text.page(report, self.style),
            line=lambda: status_text.line(report),
            facts=report.as_json,
        )
