"""`manage.py sharding_remove_journal TYPE`: delete all that a type has stored. The loud way, since nothing brings it back."""

import sys
from argparse import ArgumentParser
from typing import Any

import msgspec

from sharding_app.adapters.postgres.journal_removal import (
    Removed,
    TypeHosted,
    count_journal,
    remove_journal,
)
from sharding_app.management.operating import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.management.removing import RemovingCommand, amount


class Command(RemovingCommand):
    help = (
        "DELETE every event, snapshot and remembered id of a type, for good. Refuses while a living node hosts the type;\n"
        "nodes that host other types go on. The type's name has to be typed in, or said twice. To forget only what the\n"
        "cluster keeps about itself there is sharding_remove_data, and for one entity sharding_erase.\n\n"
        "Examples:\n"
        "  manage.py sharding_remove_journal shop.Cart --dry-run    count what would go\n"
        "  manage.py sharding_remove_journal shop.Cart              ask, then delete\n"
        "  manage.py sharding_remove_journal shop.Cart --yes-delete-the-journal-of shop.Cart\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("--dry-run", action="store_true", help="only count what would be deleted")
        parser.add_argument(
            "--yes-delete-the-journal-of", default="", metavar="TYPE", help="do not ask; the name again"
        )

    def work(self, options: dict[str, Any]) -> None:
        name, again = options["type"], options["yes_delete_the_journal_of"]
        if again and again != name:
            raise refused(
                f"--yes-delete-the-journal-of says {again!r}, and not {name!r}: nothing was deleted."
            )
        if not (again or options["dry_run"]) and (self.as_json or not sys.stdin.isatty()):
            raise refused(f"This cannot be undone: say --yes-delete-the-journal-of {name}.")
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            found = Removed()
            if options["dry_run"] or not again:
                progress("counting")
                found = self._on_journal(name, progress, dry_run=True)
                progress.done()
            if options["dry_run"]:
                self.say(f"Would be deleted: {amount(found)} of {name}.")
            else:
                self.sure(f"DELETE {amount(found)} of {name}, for good?", yes=bool(again), word=name)
                found = self._on_journal(name, progress, dry_run=False)
                progress.done()
                self.say(f"Deleted: {amount(found)} of {name}.")
                if found.events:
                    self.say(
                        "The space is used again after VACUUM (ANALYZE) sharding_event; run it when it is quiet."
                    )
        finally:
            progress.done()
        self.result(dry_run=options["dry_run"], deleted=msgspec.structs.asdict(found))

    def _on_journal(self, name: str, progress: Progress, *, dry_run: bool) -> Removed:
        if dry_run:
            return self.on_database(lambda where: count_journal(where, name))
        by = signed("sharding_remove_journal")
        try:
            return self.on_database(
                lambda where: remove_journal(
                    where, name, by, lambda done: progress(f"{done.events} events deleted")
                )
            )
        except TypeHosted as error:
            names = ", ".join(error.names) or "a node that has just joined"
            raise refused(
                f"{name} is hosted by {names}. Roll out a release without the type, or stop these nodes. Rows that "
                "were deleted before are gone; run the command again for the rest."
            ) from error
