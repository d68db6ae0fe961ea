"""`manage.py sharding_doctor`: what is wrong with the cluster and its surroundings, and what to do about it."""

import json
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand

from sharding_app.doctor import text
from sharding_app.doctor.finding import Finding
from sharding_app.doctor.gather import gather
from sharding_app.doctor.judging import judge
from sharding_app.doctor.look import Look
from sharding_app.management.console import style_for
from sharding_app.management.operating import refused
from sharding_app.management.progress import Progress
from sharding_app.management.reach import HEALTHY, PROBLEMS, UNREACHABLE

CLEAR = "\x1b[H\x1b[2J"


class Command(BaseCommand):
    help = (
        "Examine settings, servers, nodes, shards and a sample of the journals; say what is wrong and how to mend it.\n"
        "Nothing is changed. docs/operating.md has a section for each id; SILENCED_SYSTEM_CHECKS silences those that do not\n"
        "apply to you.\n\n"
        "Examples:\n"
        "  manage.py sharding_doctor                       once, all of it\n"
        "  manage.py sharding_doctor --watch 60            every minute, until Ctrl-C\n"
        "  manage.py sharding_doctor --json | jq '.findings[].id'\n\n"
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
            "--watch", nargs="?", type=float, const=30.0, metavar="SECONDS",
            help="look again every so many seconds (default: 30); a page on a terminal, else lines",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        every = options["watch"]
        if every is not None and every <= 0:
            raise refused("--watch needs a number of seconds greater than 0.")
        self.style = style_for(self.stdout, no_color=options["no_color"], force_color=options["force_color"])
        self._as_json: bool = options["json"]
        progress = Progress(self.stderr, quiet=self._as_json or every is not None)
        code = HEALTHY
        try:
            while True:
                code = self._once(progress, every)
                if every is None:
                    break
                time.sleep(every)
        except KeyboardInterrupt:
            progress.done()
        if code:
            sys.exit(code)

    def _once(self, progress: Progress, every: float | None) -> int:
        look = gather(progress)
        progress.done()
        findings = judge(look, getattr(django_settings, "SILENCED_SYSTEM_CHECKS", ()))
        if self._as_json:
            shown = json.dumps(_report(look, findings), indent=2 if every is None else None)
        elif every is None:
            shown = text.page(findings, self.style)
        elif self.stdout.isatty():
            shown = f"{CLEAR}{text.page(findings, self.style)}\n\nEvery {every:g} s; Ctrl-C ends."
        else:
            shown = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text.line(findings)}"
        self.stdout.write(shown)
        self.stdout.flush()
        return exit_code(look, findings)


def exit_code(look: Look, findings: list[Finding]) -> int:
    if look.database_trouble or look.nodes_trouble:
        return UNREACHABLE
    return PROBLEMS if any(each.is_problem for each in findings) else HEALTHY


def _report(look: Look, findings: list[Finding]) -> dict[str, Any]:
    return {
        "healthy": exit_code(look, findings) == HEALTHY,
        "findings": [each.as_json() for each in findings],
        "records_sampled": sum(each.looked_at for each in look.journals),
    }
