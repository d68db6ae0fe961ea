"""`manage.py runcluster`: a cluster on this machine, for a first look and for development."""

import os
import signal
import sys
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import NoReverseMatch, reverse

from sharding_app.embedded.settings import ENGINE
from sharding_app.management import web
from sharding_app.management.hints import cluster_started
from sharding_app.management.local_cluster import LEAVE_SECONDS, LocalCluster
from sharding_app.management.migrating import apply_migrations
from sharding_app.management.reload import ProjectFiles, project_roots
from sharding_app.management.stdin_guard import at_end_of_input
from sharding_app.operations.connectivity import check_servers
from sharding_app.operations.console import columns, manage_line, style_for
from sharding_app.processes.child_processes import OVERTIME_SECONDS, Child, manage
from sharding_app.processes.control import ControlServer, inherit
from sharding_app.settings.load import get_settings


class Command(BaseCommand):
    help = (
        "Run a cluster on this machine: apply migrations, start node processes and the web site. Processes that "
        "die are restarted. Changed code is loaded one process at a time. Ctrl-C stops all in order. "
        "Example: manage.py runcluster --nodes 2 --port 9000"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--nodes", type=int, default=3, help="number of nodes (default: 3)")
        parser.add_argument(
            "--host", default="127.0.0.1", help="address on which the site listens (default: 127.0.0.1)"
        )
        parser.add_argument(
            "--port",
            type=int,
            default=8000,
            help="port of the site, or the next free one (default: 8000)",
        )
        parser.add_argument(
            "--embedded",
            action="store_true",
            help="use the embedded PostgreSQL of the settings, and refuse to touch any other server",
        )
        parser.add_argument("--noreload", action="store_true", help="do not watch for changed code")
        parser.add_argument("--serve-site", action="store_true", help=SUPPRESS)
        parser.add_argument("--control-fd", type=int, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.DEBUG and not web.is_loopback(options["host"]):
            raise CommandError(
                f"With DEBUG on, --host {options['host']} would show debug pages to the network. "
                "Use a loopback address, or settings with DEBUG = False."
            )
        if options["serve_site"]:
            if options["control_fd"] is not None:
                inherit(options["control_fd"])
            at_end_of_input(lambda: os.kill(os.getpid(), signal.SIGTERM), LEAVE_SECONDS + OVERTIME_SECONDS)
            # uvicorn ends its process by the signal that it got, unless there is a handler for it.
            # An exit in order sends the last tells.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
            web.serve(options["host"], options["port"])
            return
        if options["nodes"] < 1:
            raise CommandError("--nodes must be at least 1.")
        if options["embedded"]:
            _refuse_other_servers()
        self.styled = style_for(self.stdout, no_color=options["no_color"], force_color=options["force_color"])
        for alias in (get_settings().database, *get_settings().further_journals):
            apply_migrations(alias, self._say)
        check_servers()
        passed = tuple(f"--{name}={options[name]}" for name in ("settings", "pythonpath") if options[name])
        # Only with DEBUG, and then only this machine reaches the site: see above.
        control = ControlServer() if settings.DEBUG else None
        site, address = self._site(options, passed, control)
        cluster = LocalCluster(
            options["nodes"], site, say=self._say, all_up=lambda: self._welcome(cluster, address),
            files=None if options["noreload"] else ProjectFiles(project_roots()), options=passed, control=control,
        )  # fmt: skip
        count = f"{options['nodes']} node{'s' if options['nodes'] > 1 else ''}"
        self._say(f"Starting {count}{' and the site' if site else ''}.")
        try:
            cluster.run()
        finally:
            if control is not None:
                control.close()
        self._say("All processes have ended.")

    def _site(
        self, options: dict[str, Any], passed: tuple[str, ...], control: ControlServer | None
    ) -> tuple[Child | None, str | None]:
        if web.server() is None:
            self._say(web.NO_SERVER)
            return None, None
        host, wanted = options["host"], options["port"]
        port = web.choose_port(host, wanted)
        if port != wanted:
            self._say(f"Port {wanted} is in use. The site uses {port}.")
        inherits = [] if control is None else [control.fd]
        command = manage(
            "runcluster", "--serve-site", f"--host={host}", f"--port={port}", "--skip-checks", *passed,
            *(f"--control-fd={fd}" for fd in inherits),
        )  # fmt: skip
        seen = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only compared
        site = Child(
            "site", command, environment={"PYTHONUNBUFFERED": "1"}, probe=lambda: web.listens(seen, port),
            listener=lambda child, line: self._say(f"{child.name} | {line}") if line else None, inherits=inherits,
        )  # fmt: skip
        return site, f"http://{f'[{seen}]' if ':' in seen else seen}:{port}/"

    def _welcome(self, cluster: LocalCluster, address: str | None) -> None:
        """Print the addresses and commands to go on with."""
        rows = [("Site", address)] if address else []
        try:
            rows += [("Admin", f"{address.rstrip('/')}{reverse('admin:index')}")] if address else []
        except NoReverseMatch:
            rows += []
        for _, given in cluster_started.send_robust(sender=type(self), site=address):
            rows += [] if isinstance(given, Exception) or not given else list(given)
        rows.append(("Status", manage_line("sharding_status")))
        lines = columns([(f"{label}:", text) for label, text in rows])
        heading = self.styled.SUCCESS("The cluster is up. Ctrl-C ends it in order.")
        self._say("\n".join(["", heading, *lines, ""]))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _refuse_other_servers() -> None:
    """Raise unless the cluster's rows and locks are on the embedded server."""
    ours = get_settings()
    for alias in sorted({ours.database, ours.lifeline_database}):
        if settings.DATABASES[alias].get("ENGINE") != ENGINE:
            raise CommandError(
                f"--embedded was given, but DATABASES[{alias!r}] leads to a server of your own. Write into the settings: "
                "from sharding_app import embedded; "
                f'DATABASES = {{"{alias}": embedded.database(BASE_DIR / ".data")}}.'
            )
