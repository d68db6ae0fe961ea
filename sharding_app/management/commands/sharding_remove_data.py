"""`manage.py sharding_remove_data`: forget what the cluster keeps about itself; journals stay."""

from argparse import ArgumentParser
from typing import Any

import msgspec

from sharding_app.adapters.postgres.removal import Removal, remove_data
from sharding_app.management.operating import signed
from sharding_app.management.removing import RemovingCommand, amount


class Command(RemovingCommand):
    help = (
        "Remove what the cluster keeps about itself: homes, locations, remembered ids, leases, node rows. Never a\n"
        "journal or a snapshot. Refuses while a node is alive; of named types, while one hosts any of them.\n"
        "Afterwards types may be configured anew.\n\n"
        "Examples:\n"
        "  manage.py sharding_remove_data --dry-run        say what would go\n"
        "  manage.py sharding_remove_data shop.Cart        of one type alone\n"
        "  manage.py sharding_remove_data --yes --json     without a question, for scripts\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "types", nargs="*", help="names of types; all types, and the nodes' rows, when none is named"
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def work(self, options: dict[str, Any]) -> None:
        types = options["types"] or None
        if options["dry_run"]:
            found = self._remove(types, dry_run=True)
            self.say(f"Would be removed: {amount(found)}.")
        else:
            self.sure(f"Remove {amount(self._remove(types, dry_run=True))}?", yes=options["yes"])
            found = self._remove(types, dry_run=False)
            self.say(f"Removed: {amount(found)}. Journals are as they were.")
        self.result(dry_run=options["dry_run"], removed=msgspec.structs.asdict(found))

    def _remove(self, types: list[str] | None, *, dry_run: bool) -> Removal:
        by = signed("sharding_remove_data")
        return self.on_database(lambda where: remove_data(where, types, by=by, dry_run=dry_run))
