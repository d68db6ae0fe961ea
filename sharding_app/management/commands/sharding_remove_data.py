"""`manage.py sharding_remove_data`: remove the cluster's internal data; journals stay."""

from argparse import ArgumentParser
from typing import Any

from sharding_app.adapters.postgres.deletion import Removal, remove_data
from sharding_app.management.deletion_command import DeletionCommand, amount, counts
from sharding_app.management.operator_command import signed


class Command(DeletionCommand):
    help = (
        "Remove the cluster's internal data: homes, locations, remembered ids, messages and timers, leases, node\n"
        "rows. Journals and snapshots stay. Refused while a node is alive; with named types, while a node hosts one of them.\n"
        "After it types can be configured again, for instance with another number of shards.\n\n"
        "Examples:\n"
        "  manage.py sharding_remove_data --dry-run        report the rows that would be removed\n"
        "  manage.py sharding_remove_data shop.Cart        of one type only\n"
        "  manage.py sharding_remove_data --yes --json     without a question, for scripts\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "types", nargs="*", help="names of types (default: all types, and the rows of nodes)"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def work(self, options: dict[str, Any]) -> None:
        types = options["types"] or None
        if options["dry_run"]:
            found = self._remove(types, dry_run=True)
            self.say(f"Would be removed: {amount(found)}.")
        else:
            self.sure(f"Remove {amount(self._remove(types, dry_run=True))}?", yes=options["yes"])
            found = self._remove(types, dry_run=False)
            self.say(f"Removed: {amount(found)}. Journals are unchanged.")
        self.result(dry_run=options["dry_run"], removed=counts(found))

    def _remove(self, types: list[str] | None, *, dry_run: bool) -> Removal:
        by = signed("sharding_remove_data")
        return self.on_database(lambda where: remove_data(where, types, by=by, dry_run=dry_run))
