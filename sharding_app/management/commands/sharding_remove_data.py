"""`manage.py sharding_remove_data`: remove the cluster's internal data; journals stay."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from sharding_app.adapters.postgres.deletion import MessagesWait, Removal, remove_data
from sharding_app.management.deletion_command import DeletionCommand, amount, counts, running
from sharding_app.management.operator_command import refused, signed


class Command(DeletionCommand):
    help = (
        "Remove the cluster's internal data: homes, locations, remembered ids, leases, node rows. Journals and\n"
        "snapshots stay. Refused while a node is alive; with named types, while a node hosts one of them. Refused while\n"
        "durable messages or timers wait, unless --delete-messages says that they may be lost.\n"
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
        parser.add_argument(
            "--delete-messages",
            action="store_true",
            help="delete the durable messages and timers that wait: none of them takes effect",
        )

    def work(self, options: dict[str, Any]) -> None:
        types, messages = options["types"] or None, options["delete_messages"]
        refused_by = self.refusal(types, running, dry_run=options["dry_run"])
        found = self._remove(types, dry_run=True)
        if options["dry_run"]:
            self.say(f"Would be removed: {amount(found)}.")
            if found.messages and not messages:
                self.say("It would be refused without --delete-messages: messages or timers wait.")
        else:
            if found.messages and not messages:
                raise _they_wait(found.messages)
            self.sure(f"Remove {amount(found)}?", yes=options["yes"])
            try:
                found = self._remove(types, dry_run=False, messages=messages)
            except MessagesWait as error:
                raise _they_wait(error.number) from error
            self.say(f"Removed: {amount(found)}. Journals are unchanged.")
        self.result(dry_run=options["dry_run"], removed=counts(found), refused_by=refused_by)

    def _remove(self, types: list[str] | None, *, dry_run: bool, messages: bool = False) -> Removal:
        by = signed("sharding_remove_data")
        return self.on_database(
            lambda where: remove_data(where, types, by=by, dry_run=dry_run, messages=messages)
        )


def _they_wait(number: int) -> CommandError:
    return refused(
        f"Durable messages and timers of these types wait: {number}. They would be lost. Start the nodes and let them take "
        "effect, or discard them (Messages on the dashboard), or add --delete-messages. Nothing was changed."
    )
