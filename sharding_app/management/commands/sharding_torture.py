"""`manage.py sharding_torture`: inject faults into a cluster on these servers, and check the
results.
"""

import asyncio
import json
import os
import secrets
import sys
import tempfile
from argparse import REMAINDER, SUPPRESS, ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings as django_settings
from django.core.management import call_command
from django.core.management.base import CommandError

from sharding_app.management.arguments import count, positive
from sharding_app.management.base import INTERRUPTED, ShardingCommand
from sharding_app.management.file_troubles import told
from sharding_app.management.gc import quiet_collector
from sharding_app.operations.connectivity import HEALTHY, PROBLEMS, check_servers
from sharding_app.processes.addresses import ADDRESSES, NoAddress, reroute
from sharding_app.torture.accounts import Account
from sharding_app.torture.entities import Register, only_torture_types
from sharding_app.torture.faults import FAULTS, possible
from sharding_app.torture.instances import watch_homes
from sharding_app.torture.load import parse, run_load
from sharding_app.torture.mixed import Mixed
from sharding_app.torture.own import OwnCluster
from sharding_app.torture.processes import NoAnswer
from sharding_app.torture.run import STAGES_PER_ROUND, Totals, go_on
from sharding_app.torture.scenario import Scenario

MINUTES = 10.0
NODES = 3


class Command(ShardingCommand):
    help = (
        "Inject faults into a cluster on this project's servers, and check the results that its callers saw. The\n"
        "command starts its own nodes and callers, with its own entity types. Nodes are killed, frozen, restarted and\n"
        "cut off from their servers; sessions are ended and rows locked. Every call is recorded. Each round ends with\n"
        "a check: nothing acknowledged is lost, nothing is doubled or out of order, no entity lives twice.\n\n"
        "Use a separate database: the command refuses one that has other nodes or types.\n\n"
        "Examples:\n"
        "  manage.py sharding_torture --minutes 120 --keep torture-report\n"
        "  manage.py sharding_torture --faults kill,freeze --seed 7\n\n"
        f"Faults: {', '.join(FAULTS)}.\n"
        "Exit codes: 0 all promises kept, 1 a promise broken (see the report), 2 a server cannot be reached, 130 interrupted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--minutes", type=positive, default=MINUTES, help=f"duration (default: {MINUTES:g})"
        )
        parser.add_argument("--seed", type=int, help="the same seed makes the same faults in the same order")
        parser.add_argument("--nodes", type=count, default=NODES, help=f"number of nodes (default: {NODES})")
        parser.add_argument(
            "--rate",
            type=positive,
            default=300.0,
            help="calls per second at most (default: 300); fewer where the cluster cannot carry them",
        )
        parser.add_argument(
            "--entities", type=count, default=1000, help="number of entities per round (default: 1000)"
        )
        parser.add_argument(
            "--stages", type=count, default=STAGES_PER_ROUND,
            help=f"number of stages per round, after which it is checked (default: {STAGES_PER_ROUND})",
        )  # fmt: skip
        parser.add_argument(
            "--faults", default="", help="faults to inject, separated by commas (default: all)"
        )
        parser.add_argument(
            "--keep",
            type=Path,
            metavar="FOLDER",
            help="a new folder for report, histories and logs (default: a temporary folder)",
        )
        parser.add_argument(
            "--porcupine", type=Path, metavar="PROGRAM",
            help="also check the histories with this program (tools/porcupine builds it)",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
        parser.add_argument("--as-node", metavar="NAME", help=SUPPRESS)
        parser.add_argument("--as-load", action="store_true", help=SUPPRESS)
        parser.add_argument("--through", type=json.loads, default={}, help=SUPPRESS)
        parser.add_argument("--expect", type=count, default=1, help=SUPPRESS)
        parser.add_argument("rest", nargs=REMAINDER, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        rest = [each for each in options["rest"] if each != "--"]
        if options["as_node"]:
            self._as_node(options["as_node"], options["through"], options["expect"], rest)
        elif options["as_load"]:
            self._as_load(options["through"], rest)
        else:
            self._torture(options)

    def _as_node(self, name: str, through: Mapping[str, int], expect: int, rest: Sequence[str]) -> None:
        sharding = getattr(django_settings, "SHARDING", {})
        django_settings.SHARDING = {**sharding, "MIN_NODES": expect}
        reroute(through)
        with only_torture_types():
            watch_homes()
            call_command("sharding_node", f"--name={name}", *rest)

    def _as_load(self, through: Mapping[str, int], rest: Sequence[str]) -> None:
        reroute(through)
        quiet_collector()
        with only_torture_types() as ticker:
            asyncio.run(run_load(parse(list(rest)), Register, ticker, Account))

    def _torture(self, options: Mapping[str, Any]) -> None:
        wanted = [each for each in options["faults"].split(",") if each]
        if unknown := [each for each in wanted if each not in FAULTS]:
            raise CommandError(f"Unknown fault {unknown[0]!r}. Choose from {', '.join(FAULTS)}.")
        program = options["porcupine"]
        if program is not None and not (program.is_file() and os.access(program, os.X_OK)):
            raise CommandError(f"There is no program {program} that may be executed.")
        check_servers()
        seed = secrets.randbelow(1_000_000) if options["seed"] is None else options["seed"]
        place = options["keep"] or Path(tempfile.mkdtemp(prefix="sharding-torture-"))
        with told(place, "Give a new folder."):
            place.mkdir(parents=True, exist_ok=True)
            is_used = any(place.iterdir())
        if is_used:
            raise CommandError(
                f"{place} is not empty: the histories of two runs would mix. Give a new folder."
            )
        given = tuple(f"--{each}={options[each]}" for each in ("settings", "pythonpath") if options[each])
        cluster = OwnCluster(place, seed, given)
        if others := cluster.others():
            raise CommandError(
                f"This database has other nodes or types: {', '.join(others)}. Use another database."
            )
        self._say(f"seed {seed}, {options['minutes']:g} minutes, in {place}")
        try:
            if not cluster.claim():
                raise CommandError(
                    "Another sharding_torture is at work on this database. Wait, or use another database."
                )
            cluster.prepare()
        except NoAnswer as error:
            raise CommandError(f"The database cannot be prepared: {error}") from error
        try:
            with Scenario(cluster, "torture") as run:
                totals = self._run(run, wanted, options)
        except KeyboardInterrupt:
            raise CommandError(
                f"Interrupted: the last round is not judged. Logs: {place}", returncode=INTERRUPTED
            ) from None
        finally:
            try:
                cluster.clean()
            except NoAnswer as error:
                self._say(f"The rows of this run could not be removed; the next run removes them: {error}")
            cluster.release()
        self._report(totals, place, options["json"])

    def _run(self, run: Scenario[OwnCluster], wanted: Sequence[str], options: Mapping[str, Any]) -> Totals:
        names = tuple(f"n{number + 1}" for number in range(options["nodes"]))
        proxied = False
        for server, address in ADDRESSES.items():
            try:
                address()
            except NoAddress as error:
                self._say(f"left out, cutting nodes off from {server}: {error}")
                continue
            proxied = True
            for name in names:
                run.cluster.proxy(name, server)
        known = possible(proxies=proxied)
        faults = {name: known[name] for name in (wanted or known) if name in known}
        if not faults:
            raise CommandError("None of these faults can be made on this machine.")
        mixed = Mixed(run, self._say, faults, names, rate=options["rate"], entities=options["entities"])
        return go_on(mixed, options["minutes"] * 60, self._say, options["porcupine"], options["stages"])

    def _report(self, totals: Totals, place: Path, as_json: bool) -> None:
        (place / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(totals)))
        if as_json:
            self.stdout.write(msgspec.json.encode(totals).decode())
        else:
            self.stdout.write("\n".join(totals.lines()))
        if totals.broken:
            self.stderr.write(
                f"BROKEN in round {totals.rounds + 1}:\n{totals.broken}\nHistories, logs and report: {place}\n"
                f"Again: manage.py sharding_torture --seed {totals.seed}"
            )
        sys.exit(PROBLEMS if totals.broken else HEALTHY)

    def _say(self, line: str) -> None:
        self.stderr.write(line)
        self.stderr.flush()
