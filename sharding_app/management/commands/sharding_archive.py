"""`manage.py sharding_archive TYPE [ID]`: move old events to a compressed file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.transfer import Age, KnownType, StoredRow, Transfer
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.console import counted
from sharding_app.operations.journal_file import (
    FORMAT,
    BadFile,
    End,
    EventLine,
    Header,
    PageWriter,
    go_on,
    raw,
)
from sharding_app.settings.load import get_settings

DAY_SECONDS = 86_400.0


class Command(DatabaseCommand):
    help = (
        "Move old events of a type, or of one entity, out of the journal into a compressed file: only those that a stored\n"
        "snapshot covers and that all projections have passed, never the newest one. Nodes may run. Each page is on disk\n"
        "before it is deleted. The last line has the number of events and their SHA-256. sharding_import puts them back.\n"
        "Without --yes it only counts.\n\n"
        "Examples:\n"
        "  manage.py sharding_archive shop.Cart --older-than 90                               count\n"
        "  manage.py sharding_archive shop.Cart --older-than 90 --to carts.jsonl.gz --yes     move\n"
        "  manage.py sharding_archive shop.Cart --older-than 90 --to carts.jsonl.gz --yes --resume\n\n"
        "Exit codes: 0 done, 1 refused or interrupted, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("id", metavar="ID", nargs="?", help="id of the entity (default: all of the type)")
        parser.add_argument(
            "--older-than",
            type=int,
            required=True,
            metavar="DAYS",
            help="only events that are older than this",
        )
        parser.add_argument(
            "--keep", type=int, default=1, metavar="N", help="leave the newest N events of each entity (1)"
        )
        parser.add_argument("--to", type=Path, metavar="FILE", help="file to write, FILE.jsonl.gz")
        parser.add_argument("--yes", action="store_true", help="move the events; without it they are counted")
        parser.add_argument("--resume", action="store_true", help="go on with the file of an interrupted run")

    def work(self, options: dict[str, Any]) -> None:
        name, entity, path = options["type"], options["id"], options["to"]
        if options["older_than"] < 0 or options["keep"] < 1:
            raise refused("--older-than must be at least 0, and --keep at least 1.")
        seconds = max(options["older_than"] * DAY_SECONDS, 2 * get_settings().command_window_seconds)
        age = Age(seconds, options["keep"])
        if not options["yes"]:
            entities, events = self.on_database(lambda where: _count(where, name, entity, age))
            self.say(
                f"Would be moved: at most {counted(events, 'event')}, entities: {entities}. "
                "Add --to FILE.jsonl.gz and --yes to move them."
            )
            self.result(dry_run=True, entities=entities, events=events)
            return
        if path is None or path.suffix != ".gz":
            raise refused("--yes needs a file whose name ends with .gz: add --to FILE.jsonl.gz.")
        if path.exists() != options["resume"]:
            remedy = "exists. Name another file, or add" if path.exists() else "does not exist. Leave out"
            raise refused(f"{path} {remedy} --resume.")
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            end = self.on_database(lambda where: _move(where, name, entity, age, path, progress))
        except (BadFile, OSError) as error:
            raise refused(f"{error}.") from error
        finally:
            progress.done()
        self.say(f"Moved: {counted(end.rows, 'event')} to {path}, SHA-256 {end.sha256}")
        self.result(dry_run=False, rows=end.rows, sha256=end.sha256)


def _count(where: Conninfo, name: str, entity: str | None, age: Age) -> tuple[int, int]:
    with Transfer(where, read_only=True) as transfer:
        found = [events for _, events in transfer.old_entities(transfer.type(name).number, entity, age)]
    return len(found), sum(found)


def _move(where: Conninfo, name: str, entity: str | None, age: Age, path: Path, progress: Progress) -> End:
    with Transfer(where) as transfer:
        known = transfer.type(name)
        header = Header(FORMAT, known.config.name, known.config.kind, transfer.cluster_id(), entity, True)
        last = go_on(path, header)
        with PageWriter(path, header) as writer:
            if last is not None:  # its page may be on disk, and not be deleted
                transfer.move_through(known.number, last.entity, last.seq, age)
            return _pages(transfer, known, entity, age, writer, progress)


def _pages(
    transfer: Transfer, known: KnownType, entity: str | None, age: Age, writer: PageWriter, progress: Progress
) -> End:
    by = signed("sharding_archive")

    def write(rows: list[StoredRow]) -> None:
        writer.page([line(each) for each in rows])

    before = writer.rows
    try:
        for one, _ in transfer.old_entities(known.number, entity, age):
            while transfer.move_page(known.number, one, age, write):
                progress(f"{writer.rows} events moved")
    finally:
        if writer.rows > before:
            transfer.note("events_archived", known.config.name, writer.rows - before, by)
    return writer.end()


def line(row: StoredRow) -> EventLine:
    return EventLine(
        row.entity, row.seq, row.at, row.name, row.version, raw(row.payload), row.command_id, row.command,
        row.reply, row.partial,
    )  # fmt: skip
