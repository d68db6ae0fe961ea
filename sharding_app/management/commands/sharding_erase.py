"""`manage.py sharding_erase TYPE ID`: erase one entity's history, as for an erasure request."""

from argparse import ArgumentParser
from typing import Any

from django.apps import apps
from django.db.models import Value
from django.db.models.functions import Replace

from sharding_app.adapters.postgres.deletion import scrub_tables
from sharding_app.management.base import seconds
from sharding_app.management.deletion_command import DeletionCommand, amount, counts
from sharding_app.management.operator_command import refused, signed, valid_id
from sharding_app.management.progress import Progress
from sharding_app.operations.console import counted
from sharding_app.operations.erasing import NotErased, count, erase
from sharding_app.ports.journal import Erasure


class Command(DeletionCommand):
    help = (
        "Erase one entity permanently: its events, snapshots, remembered id, messages and timers. If the node of its\n"
        "shard is alive, that node erases it: it stops the entity first, and later messages start an entity without\n"
        "a history. Messages of other entities to it are theirs, and stay.\n"
        "The timeline records the type, not the id. Backups are not changed.\n\n"
        "Examples:\n"
        "  manage.py sharding_erase shop.Cart alice --dry-run     report the rows that would be erased\n"
        "  manage.py sharding_erase shop.Cart alice               ask, then erase\n"
        "  manage.py sharding_erase shop.Cart alice --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or nothing is stored, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("id", metavar="ID", help="id of the entity")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--scrub", action="store_true",
            help="also remove the id from the admin's history and from the planner's statistics")  # fmt: skip
        parser.add_argument("--timeout", type=seconds, default=30.0, metavar="SECONDS",
            help="give up after N seconds without progress, if the entity is busy or moves (default: 30)")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        name, entity = options["type"], valid_id(options["id"])
        if options["timeout"] <= 0:
            raise refused("--timeout must be greater than 0.")
        if options["dry_run"]:
            found = self._counted(name, entity)
            self.say(f"Would be erased: {amount(found)}.")
        else:
            question = ""
            if not options["yes"]:
                found = self._counted(name, entity, scrub=options["scrub"])
                question = f"Erase {amount(found)} of {name} {entity!r} permanently?"
            self.sure(question, yes=options["yes"], word="erase")
            found = self._erase(name, entity, options["timeout"], scrub=options["scrub"])
            if options["scrub"]:
                self.say(f"Scrubbed: {counted(self._scrub(name, entity), 'line')} of the admin's history.")
        self.result(dry_run=options["dry_run"], erased=counts(found))

    def _counted(self, name: str, entity: str, *, scrub: bool = False) -> Erasure:
        found = self.on_database(lambda where: count(where, name, entity, self.further()))
        self._something(found, name, entity, scrub=scrub)
        return found

    def _scrub(self, name: str, entity: str) -> int:
        """Remove the id from the admin's history and the statistics; return the number of lines."""
        self.on_database(lambda where: scrub_tables(where, further=self.further()))
        if not apps.is_installed("django.contrib.admin"):
            return 0
        from django.contrib.admin.models import LogEntry

        # With blanks: an id may begin with another id, and a type's name end with another name.
        named = f" {name} {entity}: "
        lines = LogEntry.objects.filter(change_message__contains=named)
        return lines.update(
            change_message=Replace("change_message", Value(named), Value(f" {name} (erased): "))
        )

    @staticmethod
    def _something(found: Erasure, name: str, entity: str, *, scrub: bool) -> None:
        # A former run may have erased it, and ended before it has scrubbed.
        if found == Erasure() and not scrub:
            raise refused(f"Nothing is stored for {name} {entity!r}.")

    def _erase(self, name: str, entity: str, timeout: float, *, scrub: bool) -> Erasure:
        """Erase it in the database if its home is dead, otherwise through its home."""
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            home, found = self.on_database(
                lambda where: erase(
                    where, name, entity, signed("sharding_erase"), timeout, progress, self.further()
                )
            )
        except NotErased as error:
            raise refused(str(error)) from error
        finally:
            progress.done()
        if home:
            self.say(f"Erased by its node {home}: {amount(found)}.")
        else:
            self._something(found, name, entity, scrub=scrub)
            self.say(f"Erased: {amount(found)}.")
        return found
