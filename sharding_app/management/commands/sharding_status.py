"""`manage.py sharding_status`: what the cluster is doing now, for people and for scripts."""

import asyncio

from django.db import DatabaseError

from sharding_app.bootstrap import new_loop
from sharding_app.conf import get_settings
from sharding_app.management import status_text
from sharding_app.management.looking import LookingCommand, Seen
from sharding_app.management.observer import read_facts
from sharding_app.management.reach import HEALTHY, PROBLEMS, CannotReach, joined, trouble
from sharding_app.management.status import judge
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.process import Process


class Command(LookingCommand):
    help = (
        "Show nodes, coordinator, types, where shards live, and how many entities are in memory.\n\n"
        "Examples:\n"
        "  manage.py sharding_status                      one page\n"
        "  manage.py sharding_status --watch 5            every five seconds, until Ctrl-C\n"
        "  manage.py sharding_status --json | jq .problems\n\n"
        "Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached."
    )
    every_seconds = 2.0

    def look(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._look(self.every))

    async def _look(self, every: float | None) -> None:
        process = await joined()
        try:
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

    async def _once(self, process: Process) -> Seen:
        try:
            report = judge(await read_facts(process, get_settings().database))
        except (StoreUnavailable, DatabaseError) as error:
            raise trouble(error) from error
        return Seen(
            code=HEALTHY if report.healthy else PROBLEMS,
            at=report.at,
            page=lambda: status_text.page(report, self.style),
            line=lambda: status_text.line(report),
            facts=report.as_json,
        )
