"""`manage.py sharding_remove_journal TYPE`: delete all stored data of a type, permanently."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import (
    NodesAlive,
    count_journal,
    has_copies,
    remove_journal,
)
from sharding_app.adapters.postgres.moving import settle_moves
from sharding_app.adapters.postgres.partitioning import CannotPartition, erase_in_copy, erase_in_former
from sharding_app.management.deletion_command import DeletionCommand, amount, counts
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.each_journal import journal_name
from sharding_app.ports.journal import Erasure
from sharding_app.protocol.moving import CannotMove


class Command(DeletionCommand):
    help = (
        "DELETE every event, snapshot, remembered id, message and timer of a type, permanently. Refused while a live\n"
        "node hosts the type; nodes that host only other types may run. The type's name has to be typed in, or given twice. To\n"
        "remove only the cluster's internal data use sharding_remove_data; for one entity use sharding_erase.\n\n"
        "Examples:\n"
        "  manage.py sharding_remove_journal shop.Cart --dry-run    count the rows\n"
        "  manage.py sharding_remove_journal shop.Cart              ask, then delete\n"
        "  manage.py sharding_remove_journal shop.Cart --yes-delete-the-journal-of shop.Cart\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument(
            "--yes-delete-the-journal-of",
            default="",
            metavar="TYPE",
            help="do not ask; repeat the name of the type",
        )

    def work(self, options: dict[str, Any]) -> None:
        name, again = options["type"], options["yes_delete_the_journal_of"]
        if again and again != name:
            raise refused(f"--yes-delete-the-journal-of names {again!r}, not {name!r}. Nothing was deleted.")
        if not (again or options["dry_run"]) and (self.as_json or not sys.stdin.isatty()):
            raise refused(f"This cannot be undone. Add --yes-delete-the-journal-of {name}.")
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            found = Erasure()
            refused_by = self.refusal([name], lambda nodes: _hosted(name, nodes), dry_run=options["dry_run"])
            if options["dry_run"] or not again:
                progress("counting")
                found = self._on_journal(name, progress, dry_run=True)
                progress.done()
                if self.on_database(lambda where: has_copies(where, name)):
                    self.say("Copies that moves between journals have made are counted, and deleted too.")
            if options["dry_run"]:
                self.say(f"Would be deleted: {amount(found)} of {name}.")
            else:
                self.sure(f"DELETE {amount(found)} of {name}, permanently?", yes=bool(again), word=name)
                found = self._on_journal(name, progress, dry_run=False)
                progress.done()
                self.say(f"Deleted: {amount(found)} of {name}.")
                if found.events:
                    self.say(
                        "VACUUM (ANALYZE) sharding_event makes the space reusable; run it when load is low."
                    )
        finally:
            progress.done()
        self.result(dry_run=options["dry_run"], deleted=counts(found), refused_by=refused_by)

    def _on_journal(self, name: str, progress: Progress, *, dry_run: bool) -> Erasure:
        if dry_run:
            return self.on_database(lambda where: count_journal(where, name, further=self.further()))
        by = signed("sharding_remove_journal")

        def remove(where: Conninfo) -> Erasure:
            try:
                if has_copies(where, name):
                    # Behind the deletion no command looks for triggers that a move has left.
                    settle_moves(where, self.further(), name, names=journal_name)
                erase_in_former(where, self.further(), name)
                removed = remove_journal(
                    where,
                    name,
                    by,
                    lambda done: progress(f"{done.events} events deleted"),
                    further=self.further(),
                )
                erase_in_copy(where, self.further(), name)
                return removed
            except (CannotMove, CannotPartition) as error:
                raise refused(str(error)) from error
            except NodesAlive as error:
                raise refused(
                    f"{_hosted(name, error.names)}. Rows that were already deleted are gone; run the command "
                    "again for the rest."
                ) from error

        return self.on_database(remove)


def _hosted(name: str, nodes: Sequence[str]) -> str:
    hosts = ", ".join(nodes) or "a node that has just joined"
    return f"{name} is hosted by {hosts}. Roll out a release without the type, or stop these nodes"
