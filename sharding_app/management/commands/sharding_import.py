"""`manage.py sharding_import FILE`: put back what `sharding_export` has written."""

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import NodesAlive
from sharding_app.adapters.postgres.transfer import (
    Contradiction,
    KnownType,
    StoredRow,
    StoredSnapshot,
    Transfer,
)
from sharding_app.entities.entity_type import EntityType
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.operator_command import refused, signed
from sharding_app.management.progress import Progress
from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.read_journal import shard_by_id
from sharding_app.operations.journal_file import (
    BadFile,
    EventLine,
    Header,
    RememberedLine,
    Row,
    SnapshotLine,
    checked,
    lines,
)
from sharding_app.settings.load import get_settings
from sharding_app.wiring import entity_types

PAGE_ROWS = 500


class Command(DatabaseCommand):
    help = (
        "Put back the snapshots, events and remembered ids of a file of sharding_export, or the events of one of\n"
        "sharding_archive, at the present epochs. The file\n"
        "is checked first: whole, and with the SHA-256 of its last line. Refused while a live node hosts the type. Rows that\n"
        "are there already are compared and left alone; a row that differs, or an event that would leave a gap, ends the\n"
        "import, and what was put back before stays. An import that was interrupted is started again.\n\n"
        "Examples:\n"
        "  manage.py sharding_import carts.jsonl --check    only check the file\n"
        "  manage.py sharding_import carts.jsonl\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, metavar="FILE", help="a file that sharding_export has written")
        parser.add_argument("--check", action="store_true", help="only check that the file is whole")

    def work(self, options: dict[str, Any]) -> None:
        path: Path = options["file"]
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            progress("checking the file")
            header = checked(path)
            if options["check"]:
                self.say(f"{path} is a whole export of {header.type}.")
                self.result(type=header.type, stored=None)
                return
            stored, there = self.on_database(lambda where: self._put(where, header, path, progress))
        except (BadFile, OSError) as error:
            raise refused(f"{error}.") from error
        finally:
            progress.done()
        self.say(f"Put back: {counted(stored, 'row')} of {header.type}; {there} were there already.")
        self.result(type=header.type, stored=stored, there=there)

    def _put(self, where: Conninfo, header: Header, path: Path, progress: Progress) -> tuple[int, int]:
        types = {each.name: each for each in entity_types(get_settings())}
        by, stored, there = signed("sharding_import"), 0, 0
        with Transfer(where) as transfer:
            known = transfer.type(header.type)
            if known.config.kind != header.kind:
                raise refused(
                    f"{header.type} is {known.config.kind} here, and was {header.kind} where it was exported."
                )
            try:
                transfer.begin(known.number, header.type, by)
                for page in _pages(path):
                    number = _put_page(transfer, known, types.get(header.type), page, header.archived)
                    stored, there = stored + number, there + len(page) - number
                    progress(f"{stored + there} rows")
            except NodesAlive as error:
                hosts = ", ".join(error.names) or "a node that has just joined"
                raise refused(
                    f"{header.type} is hosted by {hosts}. Stop these nodes, or roll out a release without the type. Rows "
                    "that were already put back stay; run the command again for the rest."
                ) from error
            except Contradiction as error:
                raise refused(
                    f"The journal contradicts the file: {error}. Nothing of it was changed; rows that were put back before "
                    "stay. Erase the entity first (sharding_erase) if the file is right."
                ) from error
            transfer.note("journal_imported", header.type, stored, by)
        return stored, there


def _pages(path: Path) -> Iterator[list[Row]]:
    """Read the rows in pages of one kind."""
    page: list[Row] = []
    for _, row in lines(path):
        if not isinstance(row, SnapshotLine | EventLine | RememberedLine):
            continue
        if page and (len(page) >= PAGE_ROWS or type(page[-1]) is not type(row)):
            yield page
            page = []
        page.append(row)
    if page:
        yield page


def _put_page(
    transfer: Transfer, known: KnownType, code: EntityType | None, page: Sequence[Row], archived: bool
) -> int:
    shards = [_shard(known, code, each.entity) for each in page]
    events = [
        StoredRow(
            each.entity, each.seq, each.name, each.version, bytes(each.payload).decode(), each.command_id,
            each.command, each.reply, each.partial, each.at,
        )
        for each in page
        if isinstance(each, EventLine)
    ]  # fmt: skip
    if events:
        return transfer.put_events(known, events, shards, archived=archived)
    snapshots = [
        StoredSnapshot(each.entity, each.seq, bytes(each.state).decode(), each.at)
        for each in page
        if isinstance(each, SnapshotLine)
    ]
    if snapshots:
        return transfer.put_snapshots(known, snapshots, shards)
    return transfer.put_remembered(known, [each.entity for each in page], shards)


def _shard(known: KnownType, code: EntityType | None, entity: str) -> int:
    found = shard_by_id(known.config, code, entity)
    if found is None:
        raise refused(
            f"The code of {known.config.name} is not installed here, so shards are unknown. Run this command where it is."
        )
    return found
