"""`manage.py sharding_simulate`: whole clusters on virtual time, with every fault, judged after each step."""

import json
import os
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from sharding_app.management.console import columns

MIN_NODES = 3
SHOWN_TRACES = 5
"""Of so many broken seeds the last lines are shown; the others are named."""


class Command(BaseCommand):
    help = (
        "Run clusters of real nodes on virtual time, over a network and a store that fail in many ways, and "
        "check the promises after each step. No server is needed. Exit code 1: a promise was broken; the seed "
        "and a short trace say how. Example: manage.py sharding_simulate --seeds 100 --nodes 5"
    )
    requires_system_checks: list[str] = []  # noqa: RUF012  (as Django declares it)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seeds", type=int, default=20, help="how many seeds (default: 20)")
        parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
        parser.add_argument(
            "--nodes", type=int, default=0, help="nodes in each (default: 3, 4 or 5, by the seed)"
        )
        parser.add_argument("--steps", type=int, default=None, help="end each run after N steps")
        parser.add_argument(
            "--planted", default="", metavar="MISTAKE", help="plant a mistake that should be found"
        )
        parser.add_argument(
            "--processes",
            type=int,
            default=os.cpu_count() or 1,
            help="number of seeds that run at a time (default: one for each core)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        from sharding_app.simulation.mistakes import MISTAKES
        from sharding_app.simulation.runs import Job, Summary, run_all

        if options["planted"] and options["planted"] not in MISTAKES:
            raise CommandError(
                f"no mistake {options['planted']!r} is known; there are: {', '.join(MISTAKES)}"
            )
        if options["seeds"] < 1 or (options["nodes"] and options["nodes"] < MIN_NODES):
            raise CommandError(f"--seeds must be at least 1, --nodes at least {MIN_NODES}")
        first = options["seed"]
        jobs = [
            Job(seed, options["nodes"] or MIN_NODES + seed % 3, options["steps"], options["planted"])
            for seed in range(first, first + options["seeds"])
        ]
        began = time.monotonic()
        summary = Summary()
        for result in run_all(jobs, min(options["processes"], len(jobs))):
            summary.add(result)
            self._progress(summary.seeds, len(jobs), len(summary.failed))
            if options["planted"] and result.broken is not None:
                break
        seconds = time.monotonic() - began
        if options["json"]:
            self.stdout.write(json.dumps(_report(summary, seconds)))
        else:
            self._print(summary, seconds)
        if options["planted"] and summary.failed:
            promises, found = MISTAKES[options["planted"]].promises, summary.failed[0]
            if found.promise not in promises:
                raise CommandError(
                    f"{options['planted']} breaks {' or '.join(map(str, promises))}, and was found as {found.broken}"
                )
        if summary.failed:
            sys.exit(1)

    def _progress(self, done: int, of: int, failed: int) -> None:
        if self.stderr.isatty():
            self.stderr.write(f"\r{done}/{of} seeds, {failed} failed", ending="" if done < of else "\n")

    def _print(self, summary: Any, seconds: float) -> None:
        for number, result in enumerate(summary.failed):
            self.stdout.write(f"Seed {result.seed} with {result.nodes} nodes: {result.broken}")
            for line in result.trace if number < SHOWN_TRACES else ():
                self.stdout.write(f"    {line}")
            self.stdout.write(
                f"  Again: manage.py sharding_simulate --seeds 1 --seed {result.seed} --nodes {result.nodes}"
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
        self.stdout.write(
            f"{summary.seeds} seeds, {summary.steps} steps, {summary.commands} commands in {seconds:.1f} s: "
            f"{len(summary.failed)} with a broken promise"
        )


def _report(summary: Any, seconds: float) -> dict[str, Any]:
    return {
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
