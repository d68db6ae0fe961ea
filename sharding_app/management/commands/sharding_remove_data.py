"""`manage.py sharding_remove_data`: remove the cluster's internal data; journals stay."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

import msgspec
from django.core.management.base import CommandError

from sharding_app.adapters.postgres.deletion import (
    InFurtherJournals,
    MessagesWait,
    NoPlace,
    Placing,
    Removal,
    remove_data,
)
from sharding_app.errors import ShardingError
from sharding_app.management.deletion_command import DeletionCommand, amount, counts, running
from sharding_app.management.operator_command import refused, signed
from sharding_app.wiring import placing as shards_by_settings


class Command(DeletionCommand):
    help = (
        "Remove the cluster's internal data: homes, locations, remembered ids, leases, node rows. Journals and\n"
        "snapshots stay. Refused while a node is alive; with named types, while a node hosts one of them. Refused while\n"
        "durable messages or timers wait, unless --delete-messages says that they may be lost, or --keep-messages that they\n"
        "shall have the shards of the present settings. After it types can be configured again, for instance with another\n"
        "number of shards.\n\n"
        "Examples:\n"
        "  manage.py sharding_remove_data --dry-run        report the rows that would be removed\n"
        "  manage.py sharding_remove_data shop.Cart        of one type only\n"
        "  manage.py sharding_remove_data --keep-messages  take what waits along to the shards of these settings\n"
        "  manage.py sharding_remove_data --yes --json     without a question, for scripts\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "types", nargs="*", help="names of types (default: all types, and the rows of nodes)"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")
        messages = parser.add_mutually_exclusive_group()
        messages.add_argument(
            "--delete-messages",
            action="store_true",
            help="delete the durable messages and timers that wait: none of them takes effect",
        )
        messages.add_argument(
            "--keep-messages",
            action="store_true",
            help="give the durable messages and timers that wait the shards of these settings, with which their types are settled",
        )

    def work(self, options: dict[str, Any]) -> None:
        types, deleted, kept = options["types"] or None, options["delete_messages"], options["keep_messages"]
        refused_by = self.refusal(types, running, dry_run=options["dry_run"])
        found = self._remove(types, dry_run=True)
        waiting = found.messages
        if kept:
            found = msgspec.structs.replace(found, messages=0)
        if options["dry_run"]:
            self.say(f"Would be removed: {amount(found)}.")
            if waiting and not (deleted or kept):
                self.say(
                    "It would be refused without --keep-messages or --delete-messages: messages or timers wait."
                )
        else:
            if waiting and not (deleted or kept):
                raise _they_wait(waiting)
            self.sure(f"Remove {amount(found)}?", yes=options["yes"])
            try:
                found = self._remove(
                    types, dry_run=False, messages=deleted, placing=shards_by_settings() if kept else None
                )
            except MessagesWait as error:
                raise _they_wait(error.number) from error
            except NoPlace as error:
                raise _no_place(error.name) from error
            except InFurtherJournals as error:
                raise _in_further_journals(error.names) from error
            except ShardingError as error:
                raise refused(f"{error}. Nothing was changed.") from error
            self.say(f"Removed: {amount(found)}. Journals are unchanged.")
            if self.further():
                self.say(
                    "Types that have a history keep their number of shards and their extractor: there are several journals."
                )
            if kept:
                self.say("The messages and timers that wait have the shards of these settings.")
        self.result(dry_run=options["dry_run"], removed=counts(found), refused_by=refused_by)

    def _remove(
        self,
        types: list[str] | None,
        *,
        dry_run: bool,
        messages: bool = False,
        placing: Placing | None = None,
    ) -> Removal:
        by = signed("sharding_remove_data")
        return self.on_database(
            lambda where: remove_data(
                where,
                types,
                by=by,
                dry_run=dry_run,
                messages=messages,
                placing=placing,
                further=self.further(),
            )
        )


def _they_wait(number: int) -> CommandError:
    return refused(
        f"Durable messages and timers of these types wait: {number}. They would be lost. Give them the shards of these settings "
        "with --keep-messages, or start the nodes and let them take effect, or discard them (Messages on the dashboard), or add "
        "--delete-messages. Nothing was changed."
    )


def _in_further_journals(names: Sequence[str]) -> CommandError:
    return refused(
        f"Shards of these types lie in {', '.join(map(repr, names))}, and --keep-messages cannot move what waits from one journal "
        "to another. Start the nodes and let the messages and timers take effect, or add --delete-messages. Nothing was "
        "changed."
    )


def _no_place(name: str) -> CommandError:
    return refused(
        f"Durable messages and timers of {name!r} wait, and no class of it is in this project: their shards are not known here. "
        "Run the command where it is, or discard them (Messages on the dashboard). Nothing was changed."
    )
