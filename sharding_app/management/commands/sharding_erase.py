"""`manage.py sharding_erase TYPE ID`: erase one entity's history, as an erasure request demands."""

from argparse import ArgumentParser
from typing import Any

from sharding_app.adapters.postgres.erasure import Erased, HomeAlive, erase_entity
from sharding_app.bootstrap import conninfo
from sharding_app.conf import get_settings
from sharding_app.management.operating import OperatorCommand, counted, refused


class Command(OperatorCommand):
    help = (
        "Erase one entity for good: its events, snapshots and remembered id. Refuses while the home of its shard\n"
        "is alive. The timeline notes that something of the type was erased, not of whom. Backups are yours to treat.\n\n"
        "Examples:\n"
        "  manage.py sharding_erase shop.Cart alice --dry-run     say what would go\n"
        "  manage.py sharding_erase shop.Cart alice               ask, then erase\n"
        "  manage.py sharding_erase shop.Cart alice --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or nothing is stored, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", help="name of the type, such as shop.Cart")
        parser.add_argument("id", help="the entity's id")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be erased")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def work(self, options: dict[str, Any]) -> None:
        name, entity = options["type"], options["id"]
        found = self._erase(name, entity, dry_run=True)
        if not found.anything:
            raise refused(f"Nothing is stored of {name} {entity!r}.")
        if options["dry_run"]:
            self.say(f"Would be erased: {_text(found)}.")
        else:
            self.sure(
                f"Erase {_text(found)} of {name} {entity!r} for good?", yes=options["yes"], word="erase"
            )
            found = self._erase(name, entity, dry_run=False)
            self.say(f"Erased: {_text(found)}.")
        erased = {each: getattr(found, each) for each in Erased.__struct_fields__}
        self.result(dry_run=options["dry_run"], erased=erased)

    def _erase(self, name: str, entity: str, *, dry_run: bool) -> Erased:
        where = conninfo(get_settings().lifeline_database)
        try:
            return self.on_database(lambda: erase_entity(where, name, entity, dry_run=dry_run))
        except HomeAlive as error:
            names = ", ".join(error.names)
            raise refused(
                f"The entity's shard is at home on {names}, which may hold it in memory. Stop the cluster first: "
                "manage.py sharding_shutdown --all"
            ) from error


def _text(found: Erased) -> str:
    return ", ".join(
        (
            counted(found.events, "event"),
            counted(found.snapshots, "snapshot"),
            counted(found.remembered, "remembered id"),
        )
    )
