"""`manage.py sharding_node`: run a node of the cluster in this process, or several as children."""

import asyncio
import logging
import signal
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Coroutine
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError

from sharding_app.management.base import seconds
from sharding_app.management.ending import act_by_default, end_at_once, end_despite_threads, own_signals
from sharding_app.management.gc import quiet_collector
from sharding_app.management.stdin_guard import at_end_of_input
from sharding_app.processes.child_processes import (
    OVERTIME_SECONDS,
    Child,
    Supervisor,
    ending_signals,
    manage,
    up_line,
)

logger = logging.getLogger("sharding.node")

RECEIVERS_SECONDS = 3.0
"""Time for receivers of signals: the node's end is the last one of them. Less than the overtime of
a child."""


class Command(BaseCommand):
    help = (
        "Run a node of the cluster. It hosts entities and may become coordinator. On SIGTERM or Ctrl-C it hands its "
        "shards over and ends; a second signal ends it at once. Example: manage.py sharding_node --name east-1 --roles backend"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--name",
            default="",
            help="name of the node in lists and logs (default: SHARDING['NODE_NAME'], or host name and process id)",
        )
        parser.add_argument(
            "--roles", help="roles of this node, separated by commas (default: SHARDING['ROLES'])"
        )
        parser.add_argument(
            "--app-version", default="", help="version of the application (default: SHARDING['APP_VERSION'])"
        )
        parser.add_argument(
            "--processes", type=int, default=1, help="number of node processes to run (default: 1)"
        )
        parser.add_argument(
            "--leave-timeout", type=seconds, default=30.0, metavar="SECONDS",
            help="on a signal, hand shards over for at most this time (default: 30)",
        )  # fmt: skip
        parser.add_argument(
            "--health-port", type=int, metavar="PORT",
            help="port for /startup, /ready, /alive and /metrics (default: SHARDING['HEALTH_PORT'])",
        )  # fmt: skip
        parser.add_argument("--end-with-stdin", action="store_true", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["processes"] < 1:
            raise CommandError("--processes must be at least 1.")
        if options["leave_timeout"] < 0:
            raise CommandError("--leave-timeout must not be negative.")
        if options["processes"] > 1:
            self._many(options)
        else:
            asyncio_run(self._one(options))

    def _many(self, options: dict[str, Any]) -> None:
        from sharding_app.wiring import node_name

        prefix = options["name"] or node_name()
        names = [f"{prefix}-{number}" for number in range(1, options["processes"] + 1)]
        extra = [f"--leave-timeout={options['leave_timeout']}", "--end-with-stdin"]
        extra += [f"--{each}={options[each]}" for each in ("settings", "pythonpath") if options[each]]
        if options["roles"] is not None:
            extra.append(f"--roles={options['roles']}")
        if options["app_version"]:
            extra.append(f"--app-version={options['app_version']}")
        ports = _health_ports(options["health_port"], len(names))
        children = [
            Child(name, manage("sharding_node", f"--name={name}", f"--health-port={port}", *extra))
            for name, port in zip(names, ports, strict=True)
        ]
        patience = options["leave_timeout"] + OVERTIME_SECONDS
        Supervisor(children, say=self.stdout.write, patience_seconds=patience).run()

    async def _one(self, options: dict[str, Any]) -> None:
        from sharding_app.runtime.base.clock import BootClock
        from sharding_app.runtime.liveness.watchdog import Watchdog
        from sharding_app.settings.load import get_settings
        from sharding_app.wiring import make_runner, node_config, signal_thread

        roles = options["roles"]
        config = node_config(
            options["name"],
            None if roles is None else tuple(filter(None, roles.split(","))),
            options["app_version"],
        )
        clock = BootClock()
        settings = get_settings()
        watchdog = Watchdog(
            clock,
            settings.handler_warning_seconds,
            0.0 if django_settings.DEBUG else settings.loop_stall_end_seconds,
            end_at_once,
        )
        runner = make_runner(config, watchdog, clock)
        runner.patience_seconds = options["leave_timeout"]
        endpoint = await self._endpoint(options["health_port"], runner, watchdog)
        watchdog.start()
        loop = asyncio.get_running_loop()
        running = loop.create_task(runner.run())

        asked_by = ending_signals()

        def stop() -> None:
            if loop.is_running():
                for number in asked_by:
                    loop.remove_signal_handler(number)
                    # A terminal that closes sends SIGHUP twice: its shell does, and the kernel at
                    # the shell's end. A child may be signalled beside its parent, which kills it
                    # when it is to hurry. All else ends at once by a second signal. Python's own
                    # handler of SIGINT would raise KeyboardInterrupt and wait for all threads.
                    once = number == signal.SIGHUP or options["end_with_stdin"]
                    signal.signal(number, signal.SIG_IGN if once else signal.SIG_DFL)
            # Statements that are under way at the end are cut off, on purpose; psycopg would warn
            # of each.
            logging.getLogger("psycopg").setLevel(logging.ERROR)
            runner.request_stop()

        for number in asked_by:
            loop.add_signal_handler(number, stop)
        if options["end_with_stdin"]:
            at_end_of_input(
                lambda: loop.call_soon_threadsafe(stop), options["leave_timeout"] + OVERTIME_SECONDS
            )
        announce = loop.create_task(self._announce(runner.up, config.name))
        try:
            with own_signals(asked_by):
                await running
        except Exception:
            if not announce.done():  # it never was a node: its parent is told as usual
                raise
            # One that neither serves nor ends is seen by no supervisor: without memory, even an
            # orderly end may hang.
            try:
                logger.exception("the node cannot continue, its process ends", extra={"action": "node_lost"})
            finally:  # there may be no memory for the words either
                end_at_once()
        finally:
            announce.cancel()
            watchdog.stop()
            if endpoint is not None:
                await endpoint.stop()
        signal_thread.finish(RECEIVERS_SECONDS)
        if getattr(self, "_called_from_command_line", False):
            end_despite_threads()
        else:
            act_by_default(asked_by)

    async def _endpoint(self, port: int | None, runner: Any, watchdog: Any) -> Any:
        from sharding_app.settings.load import get_settings
        from sharding_app.wiring import node_endpoint

        wanted = get_settings().health_port if port is None else port
        if not wanted:
            return None
        endpoint, host = node_endpoint(runner, watchdog), get_settings().health_host
        try:
            await endpoint.start(host, wanted)
        except (OSError, OverflowError) as error:
            raise CommandError(f"Cannot listen on {host}:{wanted} for health and metrics: {error}") from error
        return endpoint

    async def _announce(self, up: asyncio.Event, name: str) -> None:
        await up.wait()
        self.stdout.write(up_line(name))
        self.stdout.flush()


def _health_ports(first: int | None, count: int) -> list[int]:
    """Return a port for each child, from the first one on; 0: none."""
    from sharding_app.settings.load import get_settings

    port = get_settings().health_port if first is None else first
    return [port + number if port else 0 for number in range(count)]


def asyncio_run(job: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on the event loop that the app prefers."""
    from sharding_app.wiring import new_loop

    quiet_collector()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(job)
