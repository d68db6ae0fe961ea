"""The base of all commands: help keeps its line breaks, and system checks do not run.

A system check might need the server that the command examines.
"""

import math
from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand

INTERRUPTED = 130
"""Exit code of a command that was ended by Ctrl-C, as shells have it."""


class ShardingCommand(BaseCommand):
    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.formatter_class = RawDescriptionHelpFormatter
        return parser


def seconds(text: str) -> float:
    """Read an option that is a time. One that never passes is none."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value
