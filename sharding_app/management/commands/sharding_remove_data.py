"""`manage.py sharding_remove_data`: forget what the cluster keeps about itself; journals stay."""

from argparse import ArgumentParser
from typing import Any

from sharding_app.adapters.postgres.removal import NodesAlive, Removal, UnknownTypes, remove_data
from sharding_app.bootstrap import conninfo
from sharding_app.conf import get_settings
from sharding_app.management.operating import OperatorCommand, counted, refused


class Command(OperatorCommand):
    help = (
        "Remove what the cluster keeps about itself: homes, locations, remembered ids, leases, node rows. Never a\n"
        "journal, a snapshot or a value. Refuses while a node is alive. Afterwards types may be configured anew.\n\n"
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
            self.say(f"Would be removed: {_text(found)}.")
        else:
            self.sure(f"Remove {_text(self._remove(types, dry_run=True))}?", yes=options["yes"])
            found = self._remove(types, dry_run=False)
            self.say(f"Removed: {_text(found)}. Journals are as they were.")
        removed = {name: getattr(found, name) for name in Removal.__struct_fields__}
        self.result(dry_run=options["dry_run"], removed=removed)

    def _remove(self, types: list[str] | None, *, dry_run: bool) -> Removal:
        where = conninfo(get_settings().lifeline_database)
        try:
            return self.on_database(lambda: remove_data(where, types, dry_run=dry_run))
        except NodesAlive as error:
            names = ", ".join(error.names)
            raise refused(
                f"Nodes are alive: {names}. Stop them first: manage.py sharding_shutdown --all"
            ) from error
        except UnknownTypes as error:
            raise refused(f"The cluster knows no type {', '.join(error.names)}.") from error


def _text(found: Removal) -> str:
    return ", ".join(
        (
            counted(found.homes, "home"),
            counted(found.locations, "location"),
            counted(found.remembered, "remembered id"),
            counted(found.leases, "lease"),
            counted(found.nodes, "node row"),
        )
    )
