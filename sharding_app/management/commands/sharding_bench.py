"""`manage.py sharding_bench`: measure throughput and latency on these servers."""

import asyncio
import json
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import CommandError
from django.core.signals import setting_changed

from sharding_app.adapters.postgres.partitioning import CannotPartition
from sharding_app.bench.browsers import WAYS_TO_BROWSERS, run_browsers
from sharding_app.bench.cluster import NodeFailed
from sharding_app.bench.database import Busy, Database
from sharding_app.bench.driving import NothingMeasured
from sharding_app.bench.flooding import run_flood
from sharding_app.bench.isolation import only_bench_types
from sharding_app.bench.large_journal import CannotBePartitioned
from sharding_app.bench.machine import describe
from sharding_app.bench.node import run_node
from sharding_app.bench.probe import ProbeFailed
from sharding_app.bench.report import Progress, json_line, table
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run
from sharding_app.bench.workloads import WORKLOADS
from sharding_app.bench.workloads.keeping import fill_plain_dict
from sharding_app.bench.workloads.moving import WAYS
from sharding_app.errors import ShardingError
from sharding_app.management.arguments import count, counts, positive
from sharding_app.management.base import INTERRUPTED, ShardingCommand
from sharding_app.management.bench_site import serve_bench
from sharding_app.management.gc import quiet_collector
from sharding_app.management.migrating import apply_migrations
from sharding_app.management.web import SERVERS
from sharding_app.operations.connectivity import check_servers
from sharding_app.processes.addresses import NoAddress, reroute
from sharding_app.settings.load import get_settings
from sharding_app.wiring import new_loop


def _send_over_the_layer() -> None:
    """Send this node's frames through the proxies too: direct links would go on beside them."""
    links = {**getattr(django_settings, "SHARDING", {}), "LINKS": "channel_layer"}
    django_settings.SHARDING = links
    setting_changed.send(sender=Command, setting="SHARDING", value=links, enter=True)


class Command(ShardingCommand):
    help = (
        "Measure throughput and latency on this machine, with this project's servers and settings.\n"
        "The command starts its own nodes with its own entity types, and removes every row that it made.\n\n"
        "Examples:\n"
        "  manage.py sharding_bench                       all workloads, a few minutes\n"
        "  manage.py sharding_bench durable django        two workloads, for their ratio\n"
        "  manage.py sharding_bench ask --in-flight 64    with 64 concurrent callers\n"
        "  manage.py sharding_bench soak --minutes 10     at 80 % of the limit, minute by minute\n"
        "  manage.py sharding_bench large --journal 5000000 --keep   a large database, to look at it\n"
        "  manage.py sharding_bench large --partitions    the same in partitions, which stay\n"
        "  manage.py sharding_bench ask --json | jq .ops_per_s\n\n"
        f"Workloads: {', '.join(WORKLOADS)}."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "workloads", nargs="*", metavar="workload", help="workloads to run (default: all)"
        )
        parser.add_argument("--nodes", type=count, default=0, help="number of node processes")
        parser.add_argument(
            "--in-flight",
            type=counts,
            default=(),
            metavar="K",
            help="number of concurrent callers, such as 64, or 1,64,1000",
        )
        parser.add_argument("--seconds", type=positive, default=0.0, help="duration of each measurement")
        parser.add_argument(
            "--entities", type=count, default=0, help="number of entities, for workloads that depend on it"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON line per result")
        parser.add_argument("--rounds", type=count, default=1, help="ask, durable: number of measurements")
        parser.add_argument(
            "--probe",
            action="store_true",
            help="ask, durable: also measure the same work without this app, in turns, for the ratio",
        )
        parser.add_argument(
            "--minutes", type=positive, default=0.0, help="soak: duration (default: 20 seconds)"
        )
        parser.add_argument(
            "--journal",
            type=count,
            default=0,
            metavar="EVENTS",
            help="soak, large: number of older events in the journal at the start",
        )
        parser.add_argument("--types", type=count, default=0, help="large: number of types (default: 20)")
        parser.add_argument(
            "--shards", type=count, default=0, help="large: number of shards of each type (default: 1000)"
        )
        parser.add_argument(
            "--bytes", type=count, default=0, help="large: bytes of text in each event (default: 60)"
        )
        parser.add_argument(
            "--partitions", action="store_true",
            help="large: give each type a partition of the journal, and divide two. They stay: use a database of its own",
        )  # fmt: skip
        parser.add_argument(
            "--keep", action="store_true",
            help="leave all rows in the database, to look at it; the next run removes them",
        )  # fmt: skip
        parser.add_argument(
            "--kills", type=count, default=0, help="failover: number of failures (default: 5)"
        )
        parser.add_argument(
            "--how", choices=list(WAYS), default="kill",
            help="failover: kill -9, SIGSTOP, or a pulled cable, after which connections are silent (default: kill)",
        )  # fmt: skip
        parser.add_argument(
            "--server", choices=list(SERVERS), help="live: the web server (default: the first installed)"
        )
        parser.add_argument(
            "--over", choices=list(WAYS_TO_BROWSERS), default="websocket",
            help="live: how the browsers listen (default: websocket)",
        )  # fmt: skip
        parser.add_argument("--through", type=json.loads, default={}, help=SUPPRESS)
        parser.add_argument("--as-node", metavar="NAME", help=SUPPRESS)
        parser.add_argument("--as-site", action="store_true", help=SUPPRESS)
        parser.add_argument("--as-browsers", metavar="ADDRESS", help=SUPPRESS)
        parser.add_argument("--as-flood", action="store_true", help=SUPPRESS)
        parser.add_argument("--as-dict", type=count, metavar="COUNT", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if unknown := [each for each in options["workloads"] if each not in WORKLOADS]:
            raise CommandError(f"Unknown workload {unknown[0]!r}. Choose from {', '.join(WORKLOADS)}.")
        quiet_collector()
        if options["as_site"]:
            with only_bench_types():
                serve_bench(options["server"])
            return
        with only_bench_types(), asyncio.Runner(loop_factory=new_loop) as runner:
            if options["as_browsers"]:
                runner.run(run_browsers(options["as_browsers"], options["over"]))
            elif options["as_node"]:
                if options["through"]:
                    _send_over_the_layer()
                    reroute(options["through"])
                runner.run(run_node(options["as_node"]))
            elif options["as_flood"]:
                runner.run(run_flood())
            elif options["as_dict"]:
                fill_plain_dict(options["as_dict"])
            else:
                self._measure(runner, options)

    def _measure(self, runner: asyncio.Runner, options: dict[str, Any]) -> None:
        settings = get_settings()
        if "large" in options["workloads"] and settings.further_journals:
            raise CommandError(
                "The workload 'large' fills one database. Run it with settings without JOURNALS."
            )
        database, progress = Database(settings.database, settings.further_journals), Progress()
        if django_settings.DEBUG:
            for alias in (settings.database, *settings.further_journals):
                apply_migrations(alias, progress)
        check_servers()
        run = Run(
            database=database,
            in_flight=options["in_flight"],
            nodes=options["nodes"],
            seconds=options["seconds"],
            entities=options["entities"],
            minutes=options["minutes"],
            journal=options["journal"],
            types=options["types"],
            shards=options["shards"],
            payload_bytes=options["bytes"],
            partitions=options["partitions"],
            kills=options["kills"],
            how=options["how"],
            server=options["server"] or "",
            over=options["over"],
            probe=options["probe"],
            rounds=options["rounds"],
            options=tuple(
                f"--{each}={options[each]}" for each in ("settings", "pythonpath") if options[each]
            ),
            progress=progress,
        )
        debug, django_settings.DEBUG = django_settings.DEBUG, False
        try:
            with database.reserved(keep=options["keep"]):
                if others := database.run(database.others):
                    progress(f"Other nodes run too and take part of the machine: {', '.join(others)}")
                facts = database.run(database.facts)
                names = options["workloads"] or list(WORKLOADS)
                results = runner.run(self._run(run, names, facts if options["json"] else None))
        except Busy as error:
            raise CommandError(f"{str(error).capitalize()}.") from error
        except (CannotBePartitioned, CannotPartition) as error:
            raise CommandError(f"--partitions: {error}.") from error
        except (NodeFailed, NoAddress, ProbeFailed) as error:
            raise CommandError(str(error)) from error
        except NothingMeasured as error:
            raise CommandError(f"{str(error).capitalize()}.") from error
        except ShardingError as error:
            raise CommandError(
                f"A call of the benchmark has failed ({type(error).__name__}): {error}. "
                "Give fewer callers with --in-flight, or more nodes with --nodes."
            ) from error
        except KeyboardInterrupt:
            raise CommandError(
                "Interrupted: what was not measured whole is not shown.", returncode=INTERRUPTED
            ) from None
        finally:
            django_settings.DEBUG = debug
            progress.done()
        if not options["json"]:
            self.stdout.write(table(results, facts, describe()))

    async def _run(self, run: Run, names: Sequence[str], told: Mapping[str, str] | None) -> list[Result]:
        results = []
        for name in names:
            async for result in WORKLOADS[name](run):
                results.append(result)
                _beside_django(results)
                if told is not None:
                    self.stdout.write(json_line(result, told))
                    self.stdout.flush()
        return results


def _beside_django(results: Sequence[Result]) -> None:
    """Add the ratio of durable commands with 64 callers to the ORM's writes in this run."""
    newest = results[-1]
    durable = [each.ops_per_s for each in results if (each.workload, each.in_flight) == ("durable", 64)]
    if newest.workload == "django" and durable and durable[-1] and newest.ops_per_s:
        newest.ratio = {"durable at 64, to this": durable[-1] / newest.ops_per_s}
