"""`manage.py sharding_partition`: partition the journal by type while the cluster works."""

import re
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, TypeVar

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import ServerError
from sharding_app.adapters.postgres.partitioning import (
    CannotPartition,
    Layout,
    NoTable,
    Step,
    cancel,
    change_layout,
    read_layout,
)
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.connectivity import database_trouble
from sharding_app.operations.console import counted
from sharding_app.settings.load import get_settings
from sharding_app.wiring import further_ways

T = TypeVar("T")

_PARTS = re.compile(r"(?P<type>.+)=(?P<parts>\d{1,4})")


class Command(DatabaseCommand):
    help = (
        "Show how sharding_event is laid out, or change that while the cluster works: a partition for each type, and a\n"
        "type's partition in parts by a hash of the entity. The events are copied beside the present table, which takes as\n"
        "much disk again; then the two change places. Run it as the owner of the tables. If it is interrupted, run it again.\n"
        "Without --yes it only says what it would do.\n\n"
        "Examples:\n"
        "  manage.py sharding_partition                            show the layout\n"
        "  manage.py sharding_partition --by-type --yes            a partition for each type\n"
        "  manage.py sharding_partition --by-type --parts shop.Cart=8 --yes\n"
        "  manage.py sharding_partition --parts shop.Cart=8 --yes  divide a type of a journal that is partitioned\n"
        "  manage.py sharding_partition --cancel                   drop the copy of a change that was not finished\n"
        "  manage.py sharding_partition --journal journal_b --by-type --yes   of one of several journals\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--by-type", action="store_true", help="give each type a partition")
        parser.add_argument(
            "--parts",
            action="append",
            default=[],
            metavar="TYPE=N",
            help="divide the partition of this type into N parts (1: do not divide it)",
        )
        parser.add_argument(
            "--journal",
            metavar="NAME",
            help="the database whose layout is meant (SHARDING['JOURNALS']); with one journal it is not needed",
        )
        parser.add_argument("--cancel", action="store_true", help="take back a change that was not finished")
        parser.add_argument(
            "--yes", action="store_true", help="change the layout; without it, say what would be done"
        )

    def work(self, options: dict[str, Any]) -> None:
        parts = _parts(options["parts"])
        wanted = options["by_type"] or bool(parts)
        if options["cancel"] and wanted:
            raise refused("--cancel stands alone.")
        try:
            self._way = self._chosen(options["journal"], changes=wanted or options["cancel"])
            layout = self._on_journal(read_layout)
            if options["cancel"]:
                cancelled = self._on_journal(lambda where: cancel(where, signed("sharding_partition")))
                self.say("The copy is dropped." if cancelled else "There is nothing to take back.")
                self.result(cancelled=cancelled)
                return
            if wanted and self._is_another(layout, parts, by_type=options["by_type"]):
                if options["yes"]:
                    self._change(parts)
                    layout = self._on_journal(read_layout)
                else:
                    self.say(
                        f"Would be copied into new tables: {_size(_to_copy(layout, parts))}, which take as much disk again until "
                        "the end. Add --yes."
                    )
        except NoTable as error:
            raise refused(self._migrate(str(error))) from error
        except CannotPartition as error:
            raise refused(str(error)) from error
        self._show(layout)
        if options["journal"] is None:
            for name in further_ways(get_settings()):
                self.say(f"Another journal is {name}: add --journal {name}.")

    def _chosen(self, journal: str | None, *, changes: bool) -> Conninfo | None:
        """Return the way to the journal that is meant; None: the cluster's own."""
        own, further = get_settings().database, further_ways(get_settings())
        if journal is None and changes and further:
            raise refused(
                f"There are several journals, and each has a layout of its own: add --journal with one of "
                f"{', '.join((own, *further))}."
            )
        if journal in (None, own):
            return None
        if journal not in further:
            raise refused(f"There is no journal {journal!r} (journals: {', '.join((own, *further))}).")
        self._name = journal
        return further[journal]

    def _migrate(self, text: str) -> str:
        """Name the journal whose tables are missing, if it is a further one."""
        if self._way is None:
            return text
        name = self._name
        return f"The journal {name!r} has no table sharding_event: run manage.py migrate --database {name} sharding."

    def _on_journal(self, work: Callable[[Conninfo], T]) -> T:
        """Run it in the database that is meant."""

        def there(where: Conninfo) -> T:
            if self._way is None:
                return work(where)
            try:
                return work(self._way)
            except ServerError as error:
                raise database_trouble(self._name, error) from error

        return self.on_database(there)

    def _is_another(self, layout: Layout, parts: dict[str, int], *, by_type: bool) -> bool:
        """Tell whether the wanted layout is another one than the present one."""
        if layout.unfinished:
            return True
        if not (layout.partitioned or by_type):
            raise refused("The journal is one table: add --by-type, which gives each type a partition first.")
        return not layout.partitioned or bool(parts)

    def _change(self, parts: dict[str, int]) -> None:
        progress = Progress(self.stderr, quiet=self.as_json)
        by = signed("sharding_partition")

        def change(where: Conninfo) -> None:
            for step in change_layout(where, parts, by):
                progress(_told(step))

        try:
            self._on_journal(change)
        finally:
            progress.done()

    def _show(self, layout: Layout) -> None:
        if layout.partitioned:
            self.say("sharding_event has a partition for each type:")
            for each in layout.types:
                tables = "no partition of its own name" if not each.tables else counted(each.tables, "table")
                self.say(
                    f"  {each.type or each.number}: {tables}, {_size(each.size)}, about {counted(each.rows, 'event')}"
                )
        else:
            self.say(f"sharding_event is one table: {_size(layout.size)}.")
        if layout.unfinished:
            self.say(f"A change of the layout was begun: {layout.unfinished}.")
        self.result(
            partitioned=layout.partitioned,
            types=[
                {"type": each.type, "tables": each.tables, "bytes": each.size, "events": each.rows}
                for each in layout.types
            ],
            unfinished=layout.unfinished,
        )


def _parts(given: list[str]) -> dict[str, int]:
    parts = {}
    for each in given:
        found = _PARTS.fullmatch(each)
        if found is None:
            raise refused(f"--parts {each} is not TYPE=N, such as shop.Cart=8.")
        parts[found["type"]] = int(found["parts"])
    return parts


def _to_copy(layout: Layout, parts: dict[str, int]) -> int:
    if not layout.partitioned:
        return layout.size
    return sum(each.size for each in layout.types if each.type in parts)


def _size(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"


def _told(step: Step) -> str:
    if step.name == "copied":
        return f"{step.done} of about {step.total} events copied"
    if step.name == "caught up":
        return f"{counted(step.done, 'range')} of new or changed events copied again"
    return {
        "begun": "the new tables are there",
        "compared": "the copy is the same as the journal",
        "switched": "the new tables are in use",
        "dropped": "the former table is dropped",
    }[step.name]
