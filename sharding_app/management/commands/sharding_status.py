"""`manage.py sharding_status`: what the cluster is doing now, for people and for scripts."""

import asyncio
import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError

from sharding_app.bootstrap import new_loop
from sharding_app.conf import get_settings
from sharding_app.management import status_text
from sharding_app.management.console import style_for
from sharding_app.management.observer import read_facts
from sharding_app.management.reach import HEALTHY, PROBLEMS, CannotReach, joined, trouble
from sharding_app.management.status import Report, judge
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime.process import Process

CLEAR = "\x1b[H\x1b[2J"


class Command(BaseCommand):
    help = (
        "Show nodes, coordinator, types, where shards live, and how many entities are in memory.\n\n"
        "Examples:\n"
        "  manage.py sharding_status                      one page\n"
        "  manage.py sharding_status --watch 5            every five seconds, until Ctrl-C\n"
        "  manage.py sharding_status --json | jq .problems\n\n"
        "Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached."
    )
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.formatter_class = RawDescriptionHelpFormatter
        return parser

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object (with --watch: one a line)")
        parser.add_argument(
            "--watch", nargs="?", type=float, const=2.0, metavar="SECONDS",
            help="look again every so many seconds (default: 2); a page on a terminal, else lines",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        if options["watch"] is not None and options["watch"] <= 0:
            raise CommandError("--watch needs a number of seconds greater than 0.")
        self.style = style_for(self.stdout, no_color=options["no_color"], force_color=options["force_color"])
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                code = runner.run(self._look(options["json"], options["watch"]))
        except KeyboardInterrupt:
            code = self._last
        except CannotReach as error:
            if options["json"]:
                self._print(json.dumps({"healthy": False, "error": str(error)}))
            raise
        if code:
            sys.exit(code)

    _last = HEALTHY

    async def _look(self, as_json: bool, every: float | None) -> int:
        process = await joined()
        try:
            if every is None:
                report = await self._report(process)
                self._print(_json(report, 2) if as_json else status_text.page(report, self.style))
                return HEALTHY if report.healthy else PROBLEMS
            while True:
                self._last = await self._tick(process, as_json, every)
                await asyncio.sleep(every)
        finally:
            await process.close()

    async def _tick(self, process: Process, as_json: bool, every: float) -> int:
        """One look of many: a server that is away is shown, not the end."""
        try:
            report = await self._report(process)
        except CannotReach as error:
            self._print(json.dumps({"healthy": False, "error": str(error)}) if as_json else str(error))
            return error.returncode
        if as_json:
            self._print(_json(report, None))
        elif self.stdout.isatty():
            footer = f"{report.at:%H:%M:%S} UTC, every {every:g} s; Ctrl-C ends."
            self._print(f"{CLEAR}{status_text.page(report, self.style)}\n\n{footer}")
        else:
            self._print(status_text.line(report))
        return HEALTHY if report.healthy else PROBLEMS

    async def _report(self, process: Process) -> Report:
        try:
            return judge(await read_facts(process, get_settings().database))
        except (StoreUnavailable, DatabaseError) as error:
            raise trouble(error) from error

    def _print(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _json(report: Report, indent: int | None) -> str:
    return json.dumps(report.as_json(), indent=indent, cls=DjangoJSONEncoder)
