"""The base of the commands that only look: once or every N seconds; a page, a line or JSON; the exit code of the last look."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from django.core.serializers.json import DjangoJSONEncoder

from sharding_app.management.base import ShardingCommand
from sharding_app.management.console import style_for
from sharding_app.management.operating import refused, sound_settings
from sharding_app.management.reach import HEALTHY, CannotReach

CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look, in each of its shapes."""

    code: int
    at: datetime
    page: Callable[[], str]
    "For people."
    line: Callable[[], str]
    "Where lines are collected."
    facts: Callable[[], Mapping[str, Any]]
    "For scripts."


class LookingCommand(ShardingCommand):
    """Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached."""

    every_seconds: float
    "How often to look, where --watch does not say."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object (with --watch: one a line)")
        parser.add_argument(
            "--watch", nargs="?", type=float, const=self.every_seconds, metavar="SECONDS",
            help=f"look again every N seconds (default: {self.every_seconds:g}); a page on a terminal, else lines",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        self.every: float | None = options["watch"]
        if self.every is not None and self.every <= 0:
            raise refused("--watch needs a number of seconds greater than 0.")
        self.as_json: bool = options["json"]
        self.style = style_for(self.stdout, no_color=options["no_color"], force_color=options["force_color"])
        self._code = HEALTHY
        try:
            with sound_settings():
                self.look()
        except KeyboardInterrupt:
            pass  # this is how a watch ends
        except CommandError as error:
            if self.as_json:
                self._print(_failed(error))
            raise
        if self._code:
            sys.exit(self._code)

    def look(self) -> None:
        """Look once, or every `every` seconds; `show` each look."""
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
                f"{CLEAR}{seen.page()}\n\n{seen.at:%H:%M:%S} UTC, every {self.every:g} s; Ctrl-C ends."
            )
        else:
            self._print(seen.line())

    def show_unreachable(self, error: CannotReach) -> None:
        """One look of many: a server that is away is shown, not the end."""
        self._code = error.returncode
        self._print(_failed(error) if self.as_json else str(error))

    def _print(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def _failed(error: CommandError) -> str:
    return json.dumps({"healthy": False, "error": str(error)})
