"""`manage.py sharding_simulate`: run clusters in virtual time with faults, checked at each step."""

import json
import os
import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sharding_app.operations.console import columns

MIN_NODES = 3
SHOWN_TRACES = 5
"""Number of failed seeds whose last lines are shown; the others are only named."""


class Command(BaseCommand):
    help = (
        "Run clusters of real nodes in virtual time, on a network and a store with injected faults. Check the "
        "promises after each step. No server is needed. Exit code 1 means a broken promise; the output names "
        "the seed and shows a short trace. Example: manage.py sharding_simulate --seeds 100 --nodes 5"
    )
    requires_system_checks: list[str] = []  # noqa: RUF012  (as Django declares it)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seeds", type=int, default=20, help="number of seeds (default: 20)")
        parser.add_argument("--seed", type=int, default=0, help="first seed (default: 0)")
        parser.add_argument(
            "--nodes", type=int, default=0, help="number of nodes (default: 3, 4 or 5, by the seed)"
        )
        parser.add_argument("--steps", type=int, default=None, help="end each run after N steps")
        parser.add_argument(
            "--processes",
            type=int,
            default=os.cpu_count() or 1,
            help="number of seeds run in parallel (default: one per core)",
        )
        parser.add_argument(
            "--coverage",
            action="store_true",
            help="report which lines of protocol/ and runtime/ were never executed (slower)",
        )
        parser.add_argument(
            "--direct",
            action=BooleanOptionalAction,
            help="give all seeds direct links, or a channel layer (default: half of them each, by the seed)",
        )
        parser.add_argument(
            "--storm",
            action="store_true",
            help="give each seed more faults: a few kinds that come again and again",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        from sharding_app.testing.simulation.executed import report
        from sharding_app.testing.simulation.runs import Job, Summary, is_direct, run_all

        if options["seeds"] < 1 or (options["nodes"] and options["nodes"] < MIN_NODES):
            raise CommandError(f"--seeds must be at least 1, --nodes at least {MIN_NODES}")
        first = options["seed"]
        jobs = [
            Job(
                seed,
                options["nodes"] or MIN_NODES + seed % 3,
                options["steps"],
                options["coverage"],
                is_direct(seed) if options["direct"] is None else options["direct"],
                options["storm"],
            )
            for seed in range(first, first + options["seeds"])
        ]
        began = time.monotonic()
        summary = Summary()
        for result in run_all(jobs, min(options["processes"], len(jobs))):
            summary.add(result)
            self._progress(summary.seeds, len(jobs), len(summary.failed))
        seconds = time.monotonic() - began
        lines = report(summary.lines) if options["coverage"] else None
        if options["json"]:
            self.stdout.write(json.dumps(_report(summary, seconds, lines)))
        else:
            again = {None: "", True: " --direct", False: " --no-direct"}[options["direct"]]
            again += " --storm" if options["storm"] else ""
            self._print(summary, seconds, lines, again)
        if summary.failed:
            sys.exit(1)

    def _progress(self, done: int, of: int, failed: int) -> None:
        if self.stderr.isatty():
            self.stderr.write(f"\r{done}/{of} seeds, {failed} failed", ending="" if done < of else "\n")

    def _print(self, summary: Any, seconds: float, lines: Any, again: str) -> None:
        for number, result in enumerate(summary.failed):
            self.stdout.write(f"Seed {result.seed} with {result.nodes} nodes: {result.broken}")
            for line in result.trace if number < SHOWN_TRACES else ():
                self.stdout.write(f"    {line}")
            self.stdout.write(
                f"  Again: manage.py sharding_simulate --seeds 1 --seed {result.seed} --nodes {result.nodes}{again}"
            )
        for title, counts in (("Faults", summary.coverage.faults), ("Messages", summary.coverage.messages)):
            self.stdout.write(f"{title}:")
            for line in columns([[name, str(counts[name])] for name in sorted(counts)]):
                self.stdout.write(line)
        self.stdout.write("Transitions:")
        moves = sorted(summary.coverage.transitions.items())
        for line in columns(
            [[machine, f"{a or '-'} to {b}", str(count)] for (machine, a, b), count in moves]
        ):
            self.stdout.write(line)
        for each in summary.never_happened():
            self.stdout.write(f"Never happened: {each}")
        if lines is not None:
            self._print_lines(lines)
        self.stdout.write(
            f"{summary.seeds} seeds, {summary.steps} steps, {summary.commands} commands in {seconds:.1f} s: "
            f"{len(summary.failed)} with a broken promise"
        )

    def _print_lines(self, lines: Any) -> None:
        self.stdout.write("Lines of functions that were executed, and those that never were:")
        for line in columns(
            [[file, f"{each.percent:.0f} %", ", ".join(each.never)] for file, each in lines.items()]
        ):
            self.stdout.write(line)
        executed, of = (sum(each[place] for each in lines.values()) for place in (1, 0))
        self.stdout.write(f"Total: {executed} of {of} lines, {100 * executed / of:.1f} %")


def _report(summary: Any, seconds: float, lines: Any) -> dict[str, Any]:
    coverage = None
    if lines is not None:
        coverage = {
            file: {
                "lines": each.lines,
                "executed": each.executed,
                "percent": round(each.percent, 1),
                "never": each.never,
            }
            for file, each in lines.items()
        }
    return {
        **({} if coverage is None else {"lines": coverage}),
        "seeds": summary.seeds,
        "steps": summary.steps,
        "commands": summary.commands,
        "seconds": round(seconds, 2),
        "failed": [
            {"seed": each.seed, "nodes": each.nodes, "broken": each.broken, "trace": each.trace}
            for each in summary.failed
        ],
        "faults": dict(sorted(summary.coverage.faults.items())),
        "messages": dict(sorted(summary.coverage.messages.items())),
        "transitions": {" ".join(key): count for key, count in sorted(summary.coverage.transitions.items())},
        "never_happened": summary.never_happened(),
    }
