"""`manage.py sharding_export TYPE [ID]`: an entity or a type as JSON lines."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.transfer import KnownType, StoredRow, StoredSnapshot, Transfer
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.file_troubles import told
from sharding_app.management.operator_command import refused, valid_id
from sharding_app.management.progress import Progress
from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.read_journal import shard_by_id
from sharding_app.operations.journal_file import (
    FORMAT,
    End,
    EventLine,
    Header,
    RememberedLine,
    Row,
    SnapshotLine,
    Writer,
    event_line,
    held,
    lines,
    put_on_disk,
    raw,
    resumed,
)
from sharding_app.settings.load import get_settings
from sharding_app.wiring import entity_types

TOLD_ROWS = 5000
EVENTS_AT_ONCE = 500
"""Events of one piece: the command asks once for the snapshots behind all gaps of a piece."""


class Command(DatabaseCommand):
    help = (
        "Write what an entity or a type has stored as JSON lines: snapshots, events, remembered ids. Nodes may run: of\n"
        "each entity the file has all events up to the moment at which it was read. Durable messages and timers are not\n"
        "in it. The last line has the number of rows and their SHA-256; sharding_import takes no file without it.\n\n"
        "Examples:\n"
        "  manage.py sharding_export shop.Cart alice              one entity, to the terminal or a pipe\n"
        "  manage.py sharding_export shop.Cart --to carts.jsonl   a whole type\n"
        "  manage.py sharding_export shop.Cart --to carts.jsonl --resume   go on after an interruption\n\n"
        "Exit codes: 0 done, 1 refused or nothing is stored, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("type", metavar="TYPE", help="name of the type, such as shop.Cart")
        parser.add_argument("id", metavar="ID", nargs="?", help="id of the entity (default: all of the type)")
        parser.add_argument(
            "--to", type=Path, metavar="FILE", help="file to write (default: standard output)"
        )
        parser.add_argument("--resume", action="store_true", help="with --to: go on where the file ends")

    def work(self, options: dict[str, Any]) -> None:
        path: Path | None = options["to"]
        if options["id"] is not None:
            valid_id(options["id"])
        if path is None and (options["resume"] or self.as_json):
            raise refused("--resume and --json need a file: add --to FILE.")
        if path is not None and path.suffix == ".gz":
            raise refused(
                "An export is not compressed: name a file that does not end with .gz. "
                "It may be compressed afterwards, and sharding_import reads it."
            )
        remedy = (
            "The export is not whole." if path is None else "Run the command again with --resume to go on."
        )
        with told(path, remedy):
            self._export(path, options)

    def _export(self, path: Path | None, options: dict[str, Any]) -> None:
        if path is not None and path.exists() and not options["resume"]:
            raise refused(f"{path} exists. Add --resume to go on with it, or name another file.")
        progress = Progress(self.stderr, quiet=self.as_json or path is None)

        def write(where: Conninfo) -> End:
            with Journals(where, self.further(), read_only=True) as transfer:
                known = transfer.type(options["type"])
                header = Header(
                    FORMAT,
                    known.config.name,
                    known.config.kind,
                    transfer.cluster_id(),
                    options["id"],
                    numbers=known.config.numbering.revision,
                )
                if path is None:
                    return _write(transfer, known, header, sys.stdout.buffer, None, progress)
                with held(path, is_new=not options["resume"]) as out:
                    end = _write(transfer, known, header, out, path, progress)
                    if path.is_file():  # no pipe, nor a device
                        put_on_disk(out, path)
                return end

        try:
            end = self.on_database(write)
        finally:
            progress.done()
        if path is not None:
            self.say(f"{counted(end.rows, 'row')} in {path}, SHA-256 {end.sha256}")
        if options["id"] and not end.rows:
            raise refused(f"Nothing is stored for {options['type']} {options['id']!r}.")
        self.result(rows=end.rows, sha256=end.sha256)


def _write(
    transfer: Transfer, known: KnownType, header: Header, out: BinaryIO, path: Path | None, progress: Progress
) -> End:
    writer = Writer(out)
    last: Row | None = None
    known_ones: set[tuple[str, int]] = set()
    if path is None:
        writer.begin(header)
    elif (last := resumed(path, writer, header)) is not None:
        known_ones = {(row.entity, row.seq) for _, row in lines(path) if isinstance(row, SnapshotLine)}
    for row in _rows(transfer, known, header.entity, last, known_ones):
        writer.write(row)
        if writer.rows % TOLD_ROWS == 0:
            progress(f"{writer.rows} rows")
    return writer.end()


def _rows(
    transfer: Transfer, known: KnownType, entity: str | None, last: Row | None, recent: set[tuple[str, int]]
) -> Iterator[Row]:
    """Read all that is behind the last row of a file, which has these snapshots.

    A home may take a snapshot behind the page that would have had it, and delete the events that it
    covers. It stands in front of the first event behind the gap then.
    """
    since = transfer.since() if last is None else ""
    # Events of a durable state are values: no snapshot covers them, and most begin behind a gap.
    has_snapshots = known.config.kind != "durable_state"
    if last is None or isinstance(last, SnapshotLine):
        after = ("", 0) if last is None else (last.entity, last.seq)
        for each in transfer.snapshots(known.number, entity, after):
            if each.at >= since:
                recent.add((each.entity, each.seq))
            yield _snapshot_line(each)
    if not isinstance(last, RememberedLine):
        after = before = (last.entity, last.seq) if isinstance(last, EventLine) else ("", 0)
        events = transfer.events(known.number, entity, after)
        while page := list(islice(events, EVENTS_AT_ONCE)):
            behind = _behind_gaps(page, before) if has_snapshots else set()
            late = transfer.late(known.number, sorted({one for one, _ in behind}), since) if behind else set()
            missed = {one for one, _ in late - recent}
            for one in page:
                if one.entity in missed and (one.entity, one.seq) in behind:
                    for each in transfer.snapshots(known.number, one.entity):
                        if each.at >= since and (each.entity, each.seq) not in recent:
                            yield _snapshot_line(each)
                yield event_line(one)
            before = page[-1].entity, page[-1].seq
    shards, known_id = range(known.config.number_of_shards), ""
    if isinstance(last, RememberedLine):
        known_id = last.entity
        shard = _shard(known, known_id)
        shards = range(shard, shards.stop)
    for found in transfer.remembered(known.number, entity, shards, known_id):
        yield RememberedLine(found)
    transfer.same_numbers(known)


def _behind_gaps(page: Sequence[StoredRow], before: tuple[str, int]) -> set[tuple[str, int]]:
    """Return the keys of the events whose predecessor is neither in the page nor stands before
    it.
    """
    found = set()
    for one in page:
        if one.seq > 1 and before != (one.entity, one.seq - 1):
            found.add((one.entity, one.seq))
        before = one.entity, one.seq
    return found


def _snapshot_line(snapshot: StoredSnapshot) -> SnapshotLine:
    return SnapshotLine(snapshot.entity, snapshot.seq, snapshot.at, raw(snapshot.state))


def _shard(known: KnownType, entity: str) -> int:
    types = {each.name: each for each in entity_types(get_settings())}
    found = shard_by_id(known.config, types.get(known.config.name), entity)
    if found is None:
        raise refused(
            f"The code of {known.config.name} is not installed here, so the file cannot be resumed."
        )
    return found
