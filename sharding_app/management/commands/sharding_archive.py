"""`manage.py sharding_archive TYPE [ID]`: move old events, or whole entities, to files."""

from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.further_journals import Further
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.transfer import Age, KnownType, OtherEvents, StoredRow, Transfer
from sharding_app.entities.settings import LARGEST_NUMBER, LONGEST_DAYS
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.file_troubles import told
from sharding_app.management.operator_command import refused, signed, valid_id
from sharding_app.management.progress import Progress
from sharding_app.operations.archiving import (
    STAYS,
    Found,
    Moved,
    NotArchived,
    archive_entities,
    count_entities,
)
from sharding_app.operations.console import counted
from sharding_app.operations.journal_file import (
    FORMAT,
    End,
    Header,
    PageWriter,
    event_line,
    go_on,
    held,
)
from sharding_app.settings.load import get_settings

DAY_SECONDS = 86_400.0
TOLD_ROWS = 5000


class Command(DatabaseCommand):
    help = (
        "Move old events of a type, or of one entity, out of the journal into a compressed file: only those that a stored\n"
        "snapshot covers and that all projections have passed, never the newest one. Nodes may run. Each page is on disk\n"
        "before it is deleted. The last line has the number of events and their SHA-256. sharding_import puts them back.\n\n"
        "With --entities-older-than move whole entities whose last event is older: events, snapshots and remembered id.\n"
        "Files of a directory are written, read again from the disk, and then their entities are removed. One that has\n"
        "changed meanwhile, or has messages or timers, stays. Run it again after an interruption: it goes on. A later call\n"
        "to an archived id begins a new entity, and sharding_import then refuses to put the former one back.\n\n"
        "Without --yes it only counts.\n\n"
        "Examples:\n"
        "  manage.py sharding_archive shop.Cart --older-than 90                               count\n"
        "  manage.py sharding_archive shop.Cart --older-than 90 --to carts.jsonl.gz --yes     move\n"
        "  manage.py sharding_archive shop.Cart --older-than 90 --to carts.jsonl.gz --yes --resume\n"
        "  manage.py sharding_archive shop.Cart --entities-older-than 400 --to archive/ --yes\n\n"
        "Exit codes: 0 done, 1 refused or interrupted, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("id", metavar="ID", nargs="?", help="id of the entity (default: all of the type)")
        age = parser.add_mutually_exclusive_group(required=True)
        age.add_argument(
            "--older-than", type=int, metavar="DAYS", help="move only events that are older than this"
        )
        age.add_argument(
            "--entities-older-than",
            type=int,
            metavar="DAYS",
            help="move whole entities whose last event is older than this",
        )
        parser.add_argument(
            "--keep", type=int, metavar="N", help="leave the newest N events of each entity (1)"
        )
        parser.add_argument(
            "--to", type=Path, metavar="PATH", help="file to write, FILE.jsonl.gz; for entities a directory"
        )
        parser.add_argument("--yes", action="store_true", help="move them; without it they are counted")
        parser.add_argument("--resume", action="store_true", help="go on with the file of an interrupted run")

    def work(self, options: dict[str, Any]) -> None:
        if options["id"] is not None:
            valid_id(options["id"])
        if options["entities_older_than"] is None:
            self._events(options)
        else:
            self._entities(options)

    # -- Old events --------------------------------------------------------------------------------

    def _events(self, options: dict[str, Any]) -> None:
        name, entity, path = options["type"], options["id"], options["to"]
        keep = 1 if options["keep"] is None else options["keep"]
        _check_days(options, "older_than")
        if not 1 <= keep <= LARGEST_NUMBER:
            raise refused(f"--keep must be from 1 to {LARGEST_NUMBER}.")
        age = Age(_seconds(options["older_than"]), keep)
        if not options["yes"]:
            entities, events = self.on_database(
                lambda where: _count(where, self.further(), name, entity, age)
            )
            self.say(
                f"Would be moved: at most {counted(events, 'event')}, entities: {entities}. "
                "Add --to FILE.jsonl.gz and --yes to move them."
            )
            self.result(dry_run=True, entities=entities, events=events)
            return
        if path is None or path.suffix != ".gz":
            raise refused("--yes needs a file whose name ends with .gz: add --to FILE.jsonl.gz.")
        with told(
            path, "Each event is in the journal or in the file. Run the command again with --resume to go on."
        ):
            end = self._moved(name, entity, age, path, resumes=options["resume"])
        self.say(f"Moved: {counted(end.rows, 'event')} to {path}, SHA-256 {end.sha256}")
        self.result(dry_run=False, rows=end.rows, sha256=end.sha256)

    def _moved(self, name: str, entity: str | None, age: Age, path: Path, *, resumes: bool) -> End:
        if path.exists() != resumes:
            remedy = "exists. Name another file, or add" if path.exists() else "does not exist. Leave out"
            raise refused(f"{path} {remedy} --resume.")
        if resumes and not path.is_file():
            raise refused(f"{path} is no regular file: name another one.")
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            return self.on_database(
                lambda where: _move(
                    where, self.further(), name, entity, age, path, progress, is_new=not resumes
                )
            )
        except OtherEvents as error:
            raise refused(str(error)) from error
        finally:
            progress.done()

    # -- Whole entities ----------------------------------------------------------------------------

    def _entities(self, options: dict[str, Any]) -> None:
        name, entity, folder = options["type"], options["id"], options["to"]
        _check_days(options, "entities_older_than")
        if options["keep"] is not None or options["resume"]:
            raise refused(
                "--keep and --resume belong to --older-than. A run with --entities-older-than is run again to go on."
            )
        seconds = _seconds(options["entities_older_than"])
        if not options["yes"]:
            found = self.on_database(lambda where: self._counted(where, name, entity, seconds))
            self.say(
                f"Would be moved: {_amount(found.entities)} with {counted(found.events, 'event')}. "
                "Add --to DIRECTORY and --yes to move them."
            )
            self._left(found.left)
            self.result(dry_run=True, entities=found.entities, events=found.events, left=dict(found.left))
            return
        with told(
            folder, "Each entity is in the journal or in a closed file. Run the command again to go on."
        ):
            if folder is None or (folder.exists() and not folder.is_dir()):
                raise refused("--yes needs a directory: add --to DIRECTORY.")
            moved = self._moved_whole(name, entity, seconds, folder)
        for each in moved.files:
            self.say(
                f"Moved: {_amount(each.entities)} with {counted(each.events, 'event')} to "
                f"{folder / each.name}, SHA-256 {each.sha256}"
            )
        if moved.files:
            self.say(
                "A call to one of them begins a new entity with the same id. sharding_import then refuses to put the "
                "archived one back."
            )
        else:
            self.say("Moved: no entity.")
        self._left(moved.left)
        files = [each._asdict() for each in moved.files]
        self.result(dry_run=False, files=files, left=dict(moved.left))

    def _moved_whole(self, name: str, entity: str | None, seconds: float, folder: Path) -> Moved:
        progress, by = Progress(self.stderr, quiet=self.as_json), signed("sharding_archive")
        try:
            return self.on_database(
                lambda where: archive_entities(
                    where, name, entity, seconds, folder, by, progress, self.further()
                )
            )
        except NotArchived as error:
            raise refused(str(error)) from error
        finally:
            progress.done()

    def _counted(self, where: Conninfo, name: str, entity: str | None, seconds: float) -> Found:
        try:
            return count_entities(where, name, entity, seconds, self.further())
        except NotArchived as error:
            raise refused(str(error)) from error

    def _left(self, left: Counter[str]) -> None:
        for why, number in sorted(left.items()):
            self.say(f"Left in the journal: {_amount(number)}: {STAYS[why]}.")


def _check_days(options: dict[str, Any], name: str) -> None:
    if not 0 <= options[name] <= LONGEST_DAYS:
        raise refused(f"--{name.replace('_', '-')} must be from 0 to {LONGEST_DAYS} days.")


def _seconds(days: int) -> float:
    return max(days * DAY_SECONDS, 2 * get_settings().command_window_seconds)


def _amount(number: int) -> str:
    return "1 entity" if number == 1 else f"{number} entities"


def _count(where: Conninfo, further: Further, name: str, entity: str | None, age: Age) -> tuple[int, int]:
    with Journals(where, further, read_only=True) as transfer:
        found = [events for _, events in transfer.old_entities(transfer.type(name).number, entity, age)]
    return len(found), sum(found)


def _move(
    where: Conninfo,
    further: Further,
    name: str,
    entity: str | None,
    age: Age,
    path: Path,
    progress: Progress,
    *,
    is_new: bool,
) -> End:
    with Journals(where, further) as transfer:
        known = transfer.type(name)
        header = Header(FORMAT, known.config.name, known.config.kind, transfer.cluster_id(), entity, True)
        with held(path, is_new=is_new):
            last = go_on(path, header)
            with PageWriter(path, header) as writer:
                # Its page may be on disk, and not be deleted. Of a life that has begun since, none
                # is.
                if last is not None and transfer.kept(known.number, {last.entity: (last.seq, last.at)}):
                    transfer.move_through(known.number, last.entity, last.seq, age)
                return _pages(transfer, known, entity, age, writer, progress)


def _pages(
    transfer: Transfer, known: KnownType, entity: str | None, age: Age, writer: PageWriter, progress: Progress
) -> End:
    by = signed("sharding_archive")

    def write(rows: list[StoredRow]) -> None:
        writer.page([event_line(each) for each in rows])

    before, untold = writer.rows, writer.rows + TOLD_ROWS
    try:
        for one, _ in transfer.old_entities(known.number, entity, age):
            while transfer.move_page(known.number, one, age, write):
                if writer.rows >= untold:
                    progress(f"{writer.rows} events moved")
                    untold = writer.rows + TOLD_ROWS
    finally:
        if writer.rows > before:
            transfer.note("events_archived", known.config.name, writer.rows - before, by)
    return writer.end()
