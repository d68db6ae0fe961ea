"""`manage.py sharding_schema`: the lock file of all that is stored or waits, and its check."""

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from sharding_app.entities.registry import messages, registry
from sharding_app.errors import DeclarationError, InvalidCall
from sharding_app.operations.schema import lock
from sharding_app.operations.schema.compare import Finding, breaks
from sharding_app.settings.load import get_settings
from sharding_app.wiring import entity_types


class Command(BaseCommand):
    help = (
        "Write the lock file of all events, states, snapshots, commands and messages, or compare the code with it: "
        "what a change breaks, and how to make it. Keep the file in version control. No server is needed.\n\n"
        "Examples:\n"
        "  manage.py sharding_schema            write the file, unless something breaks\n"
        "  manage.py sharding_schema --check    in CI: write nothing\n"
        "  manage.py sharding_schema --accept   write it although something breaks\n\n"
        "Exit codes: 0 nothing breaks, 1 something breaks or the file is out of date."
    )

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        return super().create_parser(
            prog_name, subcommand, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )

    def add_arguments(self, parser: ArgumentParser) -> None:
        base = getattr(settings, "BASE_DIR", None) or Path.cwd()
        parser.add_argument(
            "--file",
            type=Path,
            default=Path(base) / lock.FILE,
            help=f"the file (default: {lock.FILE} in BASE_DIR)",
        )
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--check", action="store_true", help="compare, and write nothing")
        what.add_argument("--accept", action="store_true", help="write the file although something breaks")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path = options["file"]
        types = entity_types(get_settings())
        try:
            known = lock.read(file)
            now = lock.describe(types, messages.all().values())
        except (InvalidCall, DeclarationError) as error:
            raise CommandError(f"{str(error).rstrip('.')}.") from error
        snapshots = frozenset(
            each.name for each in types if each.settings.snapshot_every or each.settings.snapshot_when
        )
        trimmed = frozenset(each.name for each in types if each.settings.delete_events)
        found = breaks(known, now, snapshots_of=snapshots, trimmed=trimmed) if known is not None else []
        stale = known != now
        written = stale and not options["check"] and (options["accept"] or not found)
        if written:
            file.write_text(lock.text(now))
        self._tell(file, found, stale=stale, written=written, missing=known is None, as_json=options["json"])
        if (found and not options["accept"]) or (stale and not written):
            sys.exit(1)

    def _tell(
        self, file: Path, found: list[Finding], *, stale: bool, written: bool, missing: bool, as_json: bool
    ) -> None:
        if as_json:
            breaking = [each._asdict() for each in found]
            report = {
                "file": str(file),
                "breaks": breaking,
                "out_of_date": stale and not written,
                "written": written,
            }
            self.stdout.write(json.dumps(report))
            return
        for each in found:
            self.stdout.write(str(each))
        if written:
            self.stdout.write(f"{file} is written.")
        elif found:
            self.stdout.write("If all of this is meant, run: manage.py sharding_schema --accept")
        elif stale:
            state = "is missing" if missing else "is out of date"
            self.stdout.write(f"{file} {state}. Run: manage.py sharding_schema")
        else:
            count = len(registry.all())
            self.stdout.write(f"Nothing breaks ({count} entity type{'s' if count != 1 else ''}).")
