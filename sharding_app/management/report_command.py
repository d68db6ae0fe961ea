"""The base of the commands that only read: once or every N seconds, as a page, a line or JSON.

The exit code is that of the last report.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder

from sharding_app.management.base import ShardingCommand, seconds
from sharding_app.management.operator_command import refused, sound_settings
from sharding_app.operations.connectivity import CannotReach
from sharding_app.operations.console import style_for

CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One report, in each of its formats."""

    code: int
    at: datetime
    page: Callable[[], str]
    "The page for people."
    line: Callable[[], str]
    "The line for logs."
    facts: Callable[[], Mapping[str, Any]]
    "The object for scripts."


class LookingCommand(ShardingCommand):
    """Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached."""

    every_seconds: float
    "The default interval of --watch."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object (with --watch: one per line)"
        )
        parser.add_argument(
            "--watch", nargs="?", type=seconds, const=self.every_seconds, metavar="SECONDS",
            help=f"report every N seconds (default: {self.every_seconds:g}): a page on a terminal, otherwise one line",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        self.every: float | None = options["watch"]
        if self.every is not None and self.every <= 0:
            raise refused("--watch must be greater than 0.")
        self.as_json: bool = options["json"]
        self.style = style_for(self.stdout, no_color=options["no_color"], force_color=options["force_color"])
        self._code: int | None = None
        "Of the last report; None: there is none yet."
        try:
            with sound_settings():
                self.look()
        except KeyboardInterrupt as error:
            if self.every is None or self._code is None:
                interrupted = refused("Interrupted.")
                if self.as_json:
                    self._print(_failed(interrupted))
                raise interrupted from error
            # this is how a watch ends
        except CommandError as error:
            if self.as_json:
                self._print(_failed(error))
            raise
        if self._code:
            sys.exit(self._code)

    def look(self) -> None:
        """Report once, or every `every` seconds; `show` each report."""
        raise NotImplementedError

    def show(self, seen: Seen) -> None:
        self._code = seen.code
        if self.as_json:
            indent = 2 if self.every is None else None
            self._print(json.dumps(seen.facts(), indent=indent, cls=DjangoJSONEncoder))
        elif self.every is None:
            self._print(seen.page())
        elif self.stdout.isatty():
            self._print(
                f"{CLEAR}{seen.page()}\n\n{seen.at.astimezone(UTC):%H:%M:%S} UTC, every {self.every:g} s; Ctrl-C ends."
            )
        else:
            self._print(seen.line())

    def show_unreachable(self, error: CannotReach) -> None:
        """Show that a server cannot be reached, and continue watching."""
        self._code = error.returncode
        self._print(_failed(error) if self.as_json else str(error))

    def _print(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _failed(error: CommandError) -> str:
    return json.dumps({"healthy": False, "error": str(error)})
