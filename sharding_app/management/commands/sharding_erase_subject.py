"""`manage.py sharding_erase_subject ID`: erase a person, as for an erasure request."""

from argparse import ArgumentParser
from typing import Any

from sharding_app.adapters.personal.sealing import NoKeys
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.management.base import seconds
from sharding_app.management.deletion_command import DeletionCommand, amount, counts
from sharding_app.management.operator_command import refused, signed, valid_id
from sharding_app.management.progress import Progress
from sharding_app.operations.erasing import NotErased
from sharding_app.operations.subjects import TIMEOUT_SECONDS, SubjectErasure, counted_rows, erased
from sharding_app.ports.journal import Erasure


class Command(DeletionCommand):
    help = (
        "Erase a person permanently: the key of the personal data, and the entities that are the person's own (types\n"
        "with erased_with_subject). Without the key no journal, snapshot, message or archive shows the data: readers get\n"
        "a marker. Backups of the database still have the key. After an interruption run it again: it goes on.\n"
        "The timeline records the numbers, not the id.\n\n"
        "Examples:\n"
        "  manage.py sharding_erase_subject ann --dry-run     report the rows that would be erased\n"
        "  manage.py sharding_erase_subject ann               ask, then erase\n"
        "  manage.py sharding_erase_subject ann --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or not finished, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", metavar="ID", help="id of the person: the subject of the personal data")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--timeout", type=seconds, default=TIMEOUT_SECONDS, metavar="SECONDS",
            help="give up after N seconds without progress, if an entity is busy or moves (default: 30)")  # fmt: skip

    def work(self, options: dict[str, Any]) -> None:
        subject, timeout = valid_id(options["id"]), options["timeout"]
        if timeout <= 0:
            raise refused("--timeout must be greater than 0.")
        if options["dry_run"]:
            found = self.on_database(lambda where: counted_rows(where, subject))
            self._tell(found, "Would be erased")
        else:
            self.sure(
                f"Erase the key of {subject!r} and all entities of that id permanently?",
                yes=options["yes"],
                word="erase",
            )
            progress = Progress(self.stderr, quiet=self.as_json)

            def work(where: Conninfo) -> SubjectErasure:
                return erased(where, subject, signed("sharding_erase_subject"), timeout, progress)

            try:
                found = self.on_database(work)
            except (NoKeys, NotErased) as error:
                raise refused(f"{error} Run the command again to go on.") from error
            finally:
                progress.done()
            self.say("Erased: the key of the personal data.")
            self._tell(found, "Erased")
        self.result(
            dry_run=options["dry_run"],
            entities={name: counts(each) for name, each in found.entities.items()},
            projections=found.projections,
            in_memory=found.in_memory,
        )

    def _tell(self, found: SubjectErasure, verb: str) -> None:
        for name, each in found.entities.items():
            if each != Erasure():
                self.say(f"{verb}: {name}, {amount(each)}.")
        for projection in found.projections:
            self.say(f"Rebuild the projection {projection}: its tables may have the data.")
        for name in found.in_memory:
            self.say(f"Entities of {name} in memory may show the data until they start again.")
