"""`manage.py sharding_import FILE [ID]`: put back what `sharding_export` or `sharding_archive` has
written.
"""

import heapq
from argparse import ArgumentParser
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any

from sharding_app.adapters.postgres.archive import Stored
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import NodesAlive, ServerError
from sharding_app.adapters.postgres.errors import UNSENDABLE, explain, is_refused
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.transfer import (
    HIGHEST_NUMBER,
    Contradiction,
    KnownType,
    StoredRow,
    StoredSnapshot,
    Transfer,
)
from sharding_app.entities.entity_type import EntityType
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.file_troubles import told
from sharding_app.management.operator_command import refused, signed, valid_id
from sharding_app.management.progress import Progress
from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.read_journal import shard_by_id
from sharding_app.operations.journal_file import (
    BadFile,
    EntityLine,
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
MOST_NAMED = 10


class Command(DatabaseCommand):
    help = (
        "Put back the snapshots, events and remembered ids of a file of sharding_export, or the events of one of\n"
        "sharding_archive, or its whole entities, at the present epochs. The file\n"
        "is checked first: whole, and with the SHA-256 of its last line. Refused while a live node hosts the type. Rows that\n"
        "are there already are compared and left alone; a row that differs, or an event that would leave a gap, ends the\n"
        "import, and what was put back before stays. An archived entity is put back whole, and not if its id has begun\n"
        "a new history: the others are put back, and the command ends with 1. An import that was interrupted is started\n"
        "again.\n\n"
        "Examples:\n"
        "  manage.py sharding_import carts.jsonl --check    only check the file\n"
        "  manage.py sharding_import carts.jsonl\n"
        "  manage.py sharding_import archive/shop.Cart-000001.jsonl.gz alice    only this entity of it\n\n"
        "Exit codes: 0 done, 1 refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("file", type=Path, metavar="FILE", help="a file that sharding_export has written")
        parser.add_argument("id", metavar="ID", nargs="?", help="put back only this entity of the file")
        parser.add_argument("--check", action="store_true", help="only check that the file is whole")

    def work(self, options: dict[str, Any]) -> None:
        path: Path = options["file"]
        if options["id"] is not None:
            valid_id(options["id"])
        with told(path, "Run the command again: rows that were already put back stay."):
            self._import(path, options)

    def _import(self, path: Path, options: dict[str, Any]) -> None:
        if not options["check"] and path.exists() and not (path.is_file() or path.is_dir()):
            raise refused(f"{path} is no regular file: it is read more than once. Write it to a file first.")
        progress = Progress(self.stderr, quiet=self.as_json)
        try:
            progress("checking the file")
            state = _state(path)
            header = checked(path)
            if options["check"]:
                self.say(f"{path} is a whole {'archive' if header.entities else 'export'} of {header.type}.")
                self.result(type=header.type, stored=None)
                return
            stored, there, others = self.on_database(
                lambda where: self._put(where, header, path, state, options["id"], progress)
            )
        finally:
            progress.done()
        if options["id"] is not None and not (stored or there or others):
            raise refused(f"{path} has no row of {header.type} {options['id']!r}.")
        self.say(f"Put back: {counted(stored, 'row')} of {header.type}; {there} were there already.")
        if others:
            named = ", ".join(map(repr, others[:MOST_NAMED]))
            more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
            raise refused(
                f"Not put back, since they are in the journal with another history: {named}{more}. They have begun anew "
                "after they were archived, or were never removed. Export and erase such a history (sharding_erase) if the "
                "archived one is right."
            )
        self.result(type=header.type, stored=stored, there=there)

    def _put(
        self,
        where: Conninfo,
        header: Header,
        path: Path,
        state: tuple[int, ...],
        only: str | None,
        progress: Progress,
    ) -> tuple[int, int, list[str]]:
        """Return how many rows were put back, and how many were there, and the entities that were
        left as they are.
        """
        types = {each.name: each for each in entity_types(get_settings())}
        by, stored, there = signed("sharding_import"), 0, 0
        what = "journal" if only is None else "entity"
        others: list[str] = []
        with Journals(where, self.further(), weights=get_settings().journal_weights) as transfer:
            known = transfer.type(header.type)
            if known.config.kind != header.kind:
                raise refused(
                    f"{header.type} is {known.config.kind} here, and was {header.kind} where it was exported."
                )
            code = types.get(header.type)
            try:
                transfer.begin(known.number, header.type, by, f"{what}_importing")
                if header.entities:
                    for group in _groups(path, only):
                        places = {each.entity: _shard(known, code, each.entity) for each in group}
                        number, rows, differ = transfer.put(known, group, places)
                        stored, there, others = stored + number, there + rows, others + differ
                        progress(f"{stored + there} rows")
                else:
                    former = _compare(transfer, known, code, path, only, is_archive=header.archived)
                    for page in _pages(path, only, former):
                        number = _put_page(transfer, known, code, page, header.archived)
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
            except (ServerError, *UNSENDABLE) as error:
                if not is_refused(error):
                    raise
                raise BadFile(f"{path} has a row that PostgreSQL does not take: {explain(error)}") from error
            if _state(path) != state:
                raise BadFile(f"{path} was changed while it was read")
            transfer.note(f"{what}_imported", header.type, stored, by)
            transfer.secure()  # the file may be thrown away from now on
        return stored, there, others


def _state(path: Path) -> tuple[int, ...]:
    """Return facts that change with a file: it is read again behind its check."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _groups(path: Path, only: str | None) -> Iterator[list[Stored]]:
    """Read whole entities, many at a time."""
    group: list[Stored] = []
    rows = 0
    for each in _entities(path):
        if only not in (None, each.entity):
            continue
        if group and rows + each.rows > PAGE_ROWS:
            yield group
            group, rows = [], 0
        group.append(each)
        rows += each.rows
    if group:
        yield group


def _entities(path: Path) -> Iterator[Stored]:
    found: Stored | None = None
    for _, row in lines(path):
        if isinstance(row, EntityLine):
            if found is not None:
                yield found
            found = Stored(row.entity, row.mark, [], [], remembered=False)
        elif isinstance(row, SnapshotLine | EventLine | RememberedLine):
            if found is None or row.entity != found.entity:
                raise BadFile(f"{path} has a row that stands behind the line of another entity")
            if isinstance(row, SnapshotLine):
                found.snapshots.append(_snapshot(row))
            elif isinstance(row, EventLine):
                found.events.append(_event(row))
            else:
                found = found._replace(remembered=True)
    if found is not None:
        yield found


def _pages(path: Path, only: str | None, without: Collection[tuple[str, int]] = ()) -> Iterator[list[Row]]:
    """Read the rows in pages of one kind, without these snapshots."""
    page: list[Row] = []
    for _, row in lines(path):
        if not isinstance(row, SnapshotLine | EventLine | RememberedLine) or only not in (None, row.entity):
            continue
        if isinstance(row, SnapshotLine) and (row.entity, row.seq) in without:
            continue
        if page and (len(page) >= PAGE_ROWS or type(page[-1]) is not type(row)):
            yield page
            page = []
        page.append(row)
    if page:
        yield page


def _compare(
    transfer: Transfer, known: KnownType, code: EntityType | None, path: Path, only: str | None, *,
    is_archive: bool,
) -> set[tuple[str, int]]:  # fmt: skip
    """Refuse a file of another history before a row of it is put back. Its snapshots come before
    its events: the journal's entity would take one of them for its own state. Return the snapshots
    of former lives.
    """
    former: set[tuple[str, int]] = set()
    for firsts in _firsts(path, only, former, is_archive=is_archive):
        transfer.refuse_others(known, firsts, [_shard(known, code, each) for each in firsts])
    for page in () if is_archive else _pages(path, only):
        if events := [_event(each) for each in page if isinstance(each, EventLine)]:
            transfer.compare_events(known, events, [_shard(known, code, each.entity) for each in events])
    return former


def _firsts(
    path: Path, only: str | None, former: set[tuple[str, int]], *, is_archive: bool
) -> Iterator[dict[str, int]]:
    """Read the numbers of the first events of entities, many at a time. One that has a snapshot
    alone was erased while it was exported. `former` gets the snapshots of entities that were, and
    that have begun anew before their events were read.
    """
    # A run with --resume goes through the entities from the beginning, and may find more of one
    # that stands in the archive already. Those events are not its first ones.
    known_ones: set[str] = set()
    events = (row for _, row in lines(path) if isinstance(row, EventLine))
    first_ones = takewhile(lambda row: not isinstance(row, EventLine), (row for _, row in lines(path)))
    snapshots = (row for row in first_ones if isinstance(row, SnapshotLine))
    by_entity = attrgetter("entity")
    firsts: dict[str, int] = {}
    for entity, found in groupby(heapq.merge(snapshots, events, key=by_entity), by_entity):
        if only not in (None, entity) or entity in known_ones:
            continue
        if is_archive:
            known_ones.add(entity)
        first, last = HIGHEST_NUMBER, 0
        taken: dict[int, str] = {}
        older: set[int] = set()
        for each in found:
            if isinstance(each, SnapshotLine):
                taken[each.seq] = each.at
            elif isinstance(each, EventLine):
                first, last = min(first, each.seq), each.seq
                if taken.get(last, each.at) < each.at:
                    older.add(last)
        firsts[entity] = first
        # A snapshot is taken behind its event. Without the first event none may be left out.
        if first == 1:
            former |= {(entity, seq) for seq in taken if seq > last or seq in older}
        if len(firsts) >= PAGE_ROWS:
            yield firsts
            firsts = {}
    if firsts:
        yield firsts


def _put_page(
    transfer: Transfer, known: KnownType, code: EntityType | None, page: Sequence[Row], archived: bool
) -> int:
    shards = [_shard(known, code, each.entity) for each in page]
    events = [_event(each) for each in page if isinstance(each, EventLine)]
    if events:
        return transfer.put_events(known, events, shards, archived=archived)
    snapshots = [_snapshot(each) for each in page if isinstance(each, SnapshotLine)]
    if snapshots:
        return transfer.put_snapshots(known, snapshots, shards)
    return transfer.put_remembered(known, [each.entity for each in page], shards)


def _event(row: EventLine) -> StoredRow:
    return StoredRow(
        row.entity, row.seq, row.name, row.version, bytes(row.payload).decode(), row.command_id, row.command,
        row.reply, row.partial, row.at,
    )  # fmt: skip


def _snapshot(row: SnapshotLine) -> StoredSnapshot:
    return StoredSnapshot(row.entity, row.seq, bytes(row.state).decode(), row.at)


def _shard(known: KnownType, code: EntityType | None, entity: str) -> int:
    found = shard_by_id(known.config, code, entity)
    if found is None:
        raise refused(
            f"The code of {known.config.name} is not installed here, so shards are unknown. Run this command where it is."
        )
    return found
