"""Moves whole entities that nothing has changed for long out of the journal, for
`sharding_archive --entities-older-than`.

::

    NAME-000001.part.gz --read again from the disk, renamed--> NAME-000001.jsonl.gz
                                                                |
    journal <-- removed, entity by entity, as the closed file names them

Contract: an entity is in the journal, or in a closed file, or in both. A file that is not closed is
thrown away by the next run, and nothing that it names was removed. A run begins with the newest
closed file of the directory, and removes what is left of its entities. An entity that has changed
since it was read stays in the journal. It is taken out of the file if the journal has the last
event that the file has: of a history that goes on no old copy is left, which an import could take
for the present one. A life that has begun after the removal leaves the file as it is.
"""

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sharding_app.adapters.postgres.archive import Archive, Dormant, Stored
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import NodesAlive
from sharding_app.adapters.postgres.further_journals import NONE, Further
from sharding_app.adapters.postgres.joined_journals import Journals
from sharding_app.adapters.postgres.transfer import KnownType
from sharding_app.entities.entity_type import EntityType
from sharding_app.operations.connectivity import joined
from sharding_app.operations.diagnosis.read_journal import shard_by_id
from sharding_app.operations.erasing import AGAIN, AGAIN_SECONDS, ANSWER_SECONDS, Progress, home_of
from sharding_app.operations.journal_file import (
    FORMAT,
    BadFile,
    End,
    EntityLine,
    EventLine,
    Header,
    Line,
    PageWriter,
    RememberedLine,
    Row,
    SnapshotLine,
    checked,
    event_line,
    lines,
    raw,
    sync_folder,
)
from sharding_app.ports.journal import Archival
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.messages import OperatorReply, OperatorRequest, ReplyCode
from sharding_app.protocol.records import Member
from sharding_app.runtime.node.process import Process
from sharding_app.settings.load import get_settings
from sharding_app.wiring import entity_types, new_loop

MOST_EVENTS = 20_000
"""An entity with more is not archived: it is removed in one transaction, which other work at its
home waits for."""
FILE_ENTITIES = 10_000
FILE_EVENTS = 200_000
PAGE_ENTITIES = 200
PAGE_EVENTS = 2_000
AT_ONCE = 16
"""Entities that living homes are asked about at a time."""
TRIES = 20
"""Of a home that moves, for one entity."""

STAYS = {
    "messages": "messages or timers of it or to it wait",
    "projections": "a projection has not passed all of it",
    "changed": "it has changed since it was read",
    "busy": "it is in use",
    "long": f"it has more than {MOST_EVENTS} events",
}
"""Why an entity stays in the journal."""


class NotArchived(Exception):
    """The text says why, and what to do."""


class File(NamedTuple):
    """A closed file, and the numbers of entities and events that it was the last to have."""

    name: str
    sha256: str
    entities: int
    events: int


class Moved(NamedTuple):
    """The result of a run."""

    files: list[File]
    left: Counter[str]
    "How many entities stay in the journal, by the reason in `STAYS`."


class Found(NamedTuple):
    """The numbers of a dry run."""

    entities: int
    events: int
    left: Counter[str]


def count_entities(
    where: Conninfo, name: str, entity: str | None, seconds: float, further: Further = NONE
) -> Found:
    """Count what would be moved. Raises UnknownTypes, psycopg.Error."""
    entities = events = 0
    left: Counter[str] = Counter()
    with Journals(where, further, read_only=True) as archive:
        known = archive.type(name)
        for chosen in _files(archive, known, entity, seconds, left):
            entities += len(chosen)
            events += sum(each.events for each in chosen)
    return Found(entities, events, +left)


def archive_entities(
    where: Conninfo,
    name: str,
    entity: str | None,
    seconds: float,
    folder: Path,
    by: str,
    progress: Progress,
    further: Further = NONE,
) -> Moved:
    """Move entities whose last event is older than that number of seconds to files. Raises
    NotArchived, BadFile, OSError, CannotReach, UnknownTypes, psycopg.Error.
    """
    with Journals(where, further) as archive:
        run = _Run(archive, name, folder, by, progress)
        _make(folder)
        with _alone(folder):
            run.finish()
            for chosen in _files(archive, run.known, entity, seconds, run.left):
                run.move(chosen)
        return Moved(run.files, +run.left)


def _make(folder: Path) -> None:
    """Make a directory, on disk with its name, and those that lead to it."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the directory: two runs would write to one file."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotArchived(
                f"Another sharding_archive works in {folder}. Wait for it, or name another directory."
            ) from error
        yield
    finally:
        os.close(descriptor)


def _files(
    archive: Archive, known: KnownType, entity: str | None, seconds: float, left: Counter[str]
) -> Iterator[list[Dormant]]:
    """Find the entities of one file after the other; count in `left` those that stay."""
    found: list[Dormant] = []
    events = 0

    def chosen() -> list[Dormant]:
        if filling := archive.filling(known.number):
            raise NotArchived(
                f"The projection {', '.join(filling)} reads {known.config.name} for the first time, and would miss what "
                "is moved. Run the command again when manage.py sharding_projection says that it has caught up."
            )
        waiting = archive.waiting(known, [each.entity for each in found])
        left["messages"] += len(waiting)
        return [each for each in found if each.entity not in waiting]

    for each in archive.dormant(known.number, entity, seconds):
        if each.events > MOST_EVENTS:
            left["long"] += 1
            continue
        found.append(each)
        events += each.events
        if len(found) >= FILE_ENTITIES or events >= FILE_EVENTS:
            yield chosen()
            found, events = [], 0
    if found:
        yield chosen()


class _Run:
    def __init__(self, archive: Archive, name: str, folder: Path, by: str, progress: Progress) -> None:
        self.archive = archive
        self.known = archive.type(name)
        self.files: list[File] = []
        self.left: Counter[str] = Counter()
        self._code = {each.name: each for each in entity_types(get_settings())}.get(name)
        self._name = name
        self._folder = folder
        self._by = by
        self._progress = progress
        self._header = Header(FORMAT, name, self.known.config.kind, archive.cluster_id(), None, entities=True)
        self._moved = 0

    def finish(self) -> None:
        """Remove what an interrupted run has left of the newest closed file."""
        closed = self._closed()
        if closed:
            sync_folder(self._folder)  # a run that was killed may have given it its name just before
            self._progress(f"checking {closed[-1].name}")
            self._remove(closed[-1])
            self.left.clear()  # they are looked at again

    def move(self, chosen: Sequence[Dormant]) -> None:
        """Write these entities to a file, close it, and remove them."""
        closed = self._closed()
        number = 1 + (int(_number(closed[-1])) if closed else 0)
        path = self._folder / f"{self._name}-{number:06}.jsonl.gz"
        part = _part(path)
        part.unlink(missing_ok=True)
        with PageWriter(part, self._header) as writer:
            for page in _pages(chosen):
                places = {each.entity: _shard(self.known, self._code, each.entity) for each in page}
                lasts = {each.entity: each.last for each in page}
                rows: list[Row] = []
                for stored in self.archive.stored(self.known.number, places):
                    if stored.events and stored.events[-1].seq == lasts[stored.entity]:
                        rows += _rows(stored)
                    elif stored.mark:
                        self.left["changed"] += 1
                writer.page(rows)
                self._progress(f"{writer.rows} rows written to {path.name}")
            is_empty = not writer.rows
            end = writer.end()
        if is_empty:
            part.unlink()
            return
        self._close(part, path, end)
        self._remove(path)

    def _closed(self) -> list[Path]:
        """Return the closed files of the type, in their order."""
        found = []
        for each in self._folder.glob("*.jsonl.gz"):
            name, _, number = each.name.removesuffix(".jsonl.gz").rpartition("-")
            if name == self._name and number.isdecimal():
                found.append(each)
        return sorted(found, key=lambda each: int(_number(each)))

    def _close(self, part: Path, path: Path, end: End) -> None:
        """Read the file as it is on the disk, and give it its name."""
        _forget_cached(part)
        found: list[Line] = []
        checked(part, lambda line: found.append(line) if isinstance(line, End) else None)
        if found != [end]:
            raise BadFile(f"{part} is not on the disk as it was written")
        part.rename(path)
        sync_folder(self._folder)

    # -- Removing ----------------------------------------------------------------------------------

    def _remove(self, path: Path) -> None:
        """Remove the entities of a closed file, as the file on the disk names them."""
        wanted: list[EntityLine] = []
        lasts: dict[str, tuple[int, str]] = {}
        ends: list[End] = []

        def seen(line: Line) -> None:
            if isinstance(line, EntityLine):
                wanted.append(line)
            elif isinstance(line, EventLine):
                lasts[line.entity] = line.seq, line.at
            elif isinstance(line, End):
                ends.append(line)

        header = checked(path, seen)
        if header != self._header:
            raise BadFile(f"{path} was written for another cluster or type: name another directory")
        self._note("entities_archiving", path.name)
        done = _Done(ends[0].sha256)
        try:
            at_home: list[EntityLine] = []
            # Once more: the file may be of a run that was interrupted long ago.
            waiting = self.archive.waiting(self.known, [each.entity for each in wanted])
            for line in wanted:
                try:
                    self._count(done, line, self._removed(line, waiting))
                except NodesAlive:
                    at_home.append(line)
            if at_home:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(self._at_home(at_home, done))
            # A former run may have removed them: that is visible before a standby has it.
            self.archive.secure()
            stays = self.archive.kept(self.known.number, {each: lasts[each] for each in done.stays})
            if stays:
                done.sha256 = self._take_out(path, stays)
        finally:
            if done.entities:
                self.files.append(File(path.name, done.sha256, done.entities, done.events))
            amount = f"{done.entities} entities, {done.events} events"
            self._note("entities_archived", f"{amount} to {path.name}, SHA-256 {done.sha256}")
        if done.unknown:
            raise NotArchived(
                f"The homes of {done.unknown} of the entities in {path.name} have not answered. Run the command again: it "
                "goes on with this file."
            )

    def _removed(self, line: EntityLine, waiting: set[str]) -> Archival:
        if line.entity in waiting:
            return Archival(left="messages")
        shard = _shard(self.known, self._code, line.entity)
        return self.archive.remove(self.known.number, line.entity, shard, line.mark)

    def _count(self, done: "_Done", line: EntityLine, archival: Archival) -> None:
        if not archival.left:
            done.entities += 1
            done.events += archival.events
            self._moved += 1
            if self._moved % 100 == 0:
                self._progress(f"{self._moved} entities removed from the journal")
        elif archival.left == "away":  # it may be removed, or may yet be
            done.unknown += 1
        elif archival.left != "gone":
            self.left[archival.left] += 1
            done.stays.add(line.entity)

    def _take_out(self, path: Path, stays: set[str]) -> str:
        """Write a closed file again without these entities; return its SHA-256."""
        part = _part(path)
        part.unlink(missing_ok=True)
        with PageWriter(part, self._header) as writer:
            page: list[Row] = []
            for _, row in lines(path):
                if isinstance(row, Header | End) or row.entity in stays:
                    continue
                page.append(row)
                if len(page) >= PAGE_EVENTS:
                    writer.page(page)
                    page = []
            writer.page(page)
            is_empty = not writer.rows
            end = writer.end()
        if is_empty:
            part.unlink()
            path.unlink()
        else:
            self._close(part, path, end)
        return end.sha256

    def _note(self, action: str, detail: str) -> None:
        self.archive.note_files(action, self._name, f"{detail}, by {self._by}")

    async def _at_home(self, wanted: Sequence[EntityLine], done: "_Done") -> None:
        """Have the living homes remove these entities."""
        async with joined() as process:
            homes = _Homes(process, self._name, self._by)
            for place in range(0, len(wanted), AT_ONCE):
                asked = [
                    homes.remove(_shard(self.known, self._code, each.entity), each)
                    for each in wanted[place : place + AT_ONCE]
                ]
                answers = await asyncio.gather(*asked)
                for line, archival in zip(wanted[place : place + AT_ONCE], answers, strict=True):
                    self._count(done, line, archival)


class _Done:
    """What has become of the entities of a file."""

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        self.entities = 0
        self.events = 0
        self.stays: set[str] = set()
        "Entities that were not removed now."
        self.unknown = 0
        "Number of entities whose homes have not answered."


class _Homes:
    """The homes of a type's shards, as this process has learned them."""

    def __init__(self, process: Process, name: str, by: str) -> None:
        self._process = process
        self._name = name
        self._by = by
        self._known: dict[ShardId, Member] = {}

    async def remove(self, shard: ShardId, line: EntityLine) -> Archival:
        request = OperatorRequest(0, "archive", self._name, shard, line.entity, by=self._by, mark=line.mark)
        for _ in range(TRIES):
            home = await self._home(shard)
            if home is not None:
                answer = await self._process.queries.operate(home.incarnation, request, ANSWER_SECONDS)
                if answer is None:
                    break
                if answer.code not in AGAIN:
                    return _archival(answer)
            self._known.pop(shard, None)
            await asyncio.sleep(AGAIN_SECONDS)
        return Archival(left="away")

    async def _home(self, shard: ShardId) -> Member | None:
        if shard not in self._known:
            home = await home_of(self._process, self._name, shard)
            if home is None:
                return None
            self._known[shard] = home
        return self._known[shard]


def _archival(answer: OperatorReply) -> Archival:
    if answer.code is ReplyCode.LEFT:
        return Archival(left=next(iter(answer.counts)))
    if not answer.ok:
        raise NotArchived(answer.text)
    counts = answer.counts
    return Archival(counts["events"], counts["snapshots"], counts["remembered"])


# -- Rows ----------------------------------------------------------------------------------------


def _pages(chosen: Sequence[Dormant]) -> Iterator[list[Dormant]]:
    page: list[Dormant] = []
    events = 0
    for each in chosen:
        if page and (len(page) >= PAGE_ENTITIES or events + each.events > PAGE_EVENTS):
            yield page
            page, events = [], 0
        page.append(each)
        events += each.events
    if page:
        yield page


def _rows(stored: Stored) -> list[Row]:
    rows: list[Row] = [EntityLine(stored.entity, stored.mark)]
    rows += [SnapshotLine(each.entity, each.seq, each.at, raw(each.state)) for each in stored.snapshots]
    rows += [event_line(each) for each in stored.events]
    if stored.remembered:
        rows.append(RememberedLine(stored.entity))
    return rows


def _shard(known: KnownType, code: EntityType | None, entity: str) -> ShardId:
    try:
        shard = shard_by_id(known.config, code, entity)
    except Exception as error:
        raise NotArchived(
            f"The extractor of {known.config.name} fails for an id: {type(error).__qualname__}."
        ) from error
    if shard is None:
        raise NotArchived(
            f"The code of {known.config.name} is not installed here, so shards are unknown. "
            "Run this command where it is."
        )
    return shard


def _part(path: Path) -> Path:
    """Return the name of a file until it is closed."""
    return path.with_name(path.name.removesuffix(".jsonl.gz") + ".part.gz")


def _number(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz").rpartition("-")[2]


def _forget_cached(path: Path) -> None:
    """Have the next reading come from the disk, where the system can do that."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
