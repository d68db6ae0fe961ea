"""A type or an entity as a file of JSON lines: written by `sharding_export` and `sharding_archive`,
read by `sharding_import`.

An archive of whole entities has a line for each entity, and behind it that entity's rows.

The first line names the type and its configuration. Then come snapshots, events and remembered ids,
each in the order of its key. The last line has the number of rows and a SHA-256 of all lines before
it: a file without it is not whole. A file of `sharding_archive` is compressed: members of gzip, one
for each page that was on disk before its events were deleted. An export may have been compressed
since: the first bytes tell. Payloads and states stand in their lines as they are stored: large
numbers, `1.10` and the order of keys survive. A file that is made here can be read by its user
alone.
"""

import fcntl
import gzip
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

import msgspec

from sharding_app.adapters.postgres.transfer import StoredRow

FORMAT = 1
CHUNK = 1 << 16
OWN_MODE = 0o600
APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT
GZIP = b"\x1f\x8b"


class Header(msgspec.Struct, tag_field="row", tag="type", frozen=True):
    """The first line of a file, which says whose rows it has."""

    format: int
    type: str
    kind: str
    cluster: str
    entity: str | None = None
    "The only entity of the file; None: the whole type."
    archived: bool = False
    "The events were moved out of the journal: snapshots there cover them."
    entities: bool = False
    "Whole entities were moved out of the journal: a line for each, and then its rows."
    numbers: int = 0
    "Revision of the type's numbers of shards: remembered ids are read shard by shard."


class EntityLine(msgspec.Struct, tag_field="row", tag="entity", frozen=True):
    entity: str
    mark: str
    "What it had stored, in short: it is removed from the journal only with this mark."


class SnapshotLine(msgspec.Struct, tag_field="row", tag="snapshot", frozen=True):
    entity: str
    seq: int
    at: str
    state: msgspec.Raw


class EventLine(msgspec.Struct, tag_field="row", tag="event", frozen=True, omit_defaults=True):
    entity: str
    seq: int
    at: str
    name: str
    version: int
    payload: msgspec.Raw
    command_id: str | None = None
    command: str | None = None
    reply: bytes | None = None
    partial: bool = False


class RememberedLine(msgspec.Struct, tag_field="row", tag="remembered", frozen=True):
    entity: str


class End(msgspec.Struct, tag_field="row", tag="end", frozen=True):
    rows: int
    sha256: str


Row = EntityLine | SnapshotLine | EventLine | RememberedLine
Line = Header | Row | End

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Header | EntityLine | SnapshotLine | EventLine | RememberedLine | End).decode


class BadFile(Exception):
    """The file is no whole export. The message says where."""


def raw(text: str) -> msgspec.Raw:
    """A document in one line: only space between its parts can hold a line's end."""
    return msgspec.Raw(text.replace("\n", " ").replace("\r", " ").encode())


def event_line(row: StoredRow) -> EventLine:
    """Return an event as a row of a file."""
    return EventLine(
        row.entity, row.seq, row.at, row.name, row.version, raw(row.payload), row.command_id, row.command,
        row.reply, row.partial,
    )  # fmt: skip


class Writer:
    """Writes a file from its beginning, or goes on where an interrupted one has ended."""

    def __init__(self, out: BinaryIO) -> None:
        self.rows = 0
        self._out = out
        self._hash = hashlib.sha256()

    def begin(self, header: msgspec.Struct) -> None:
        line = _encode(header) + b"\n"
        self._hash.update(line)
        self._out.write(line)

    def write(self, row: msgspec.Struct) -> None:
        line = _encode(row) + b"\n"
        self._hash.update(line)
        self._out.write(line)
        self.rows += 1

    def took(self, line: bytes, *, is_row: bool) -> None:
        """Take into account a line that the file has already."""
        self._hash.update(line)
        self.rows += is_row

    def end(self) -> End:
        end = End(self.rows, self._hash.hexdigest())
        self._out.write(_encode(end) + b"\n")
        self._out.flush()
        return end


@contextmanager
def held(path: Path, *, is_new: bool) -> Iterator[BinaryIO]:
    """Make a file, or open one to go on behind its end, and hold it: of two commands, one would cut
    off a page that the other has just moved out of the journal. Raises BadFile, OSError.
    """
    flags = APPENDING | os.O_EXCL if is_new else APPENDING
    with os.fdopen(os.open(path, flags, OWN_MODE), "ab") as out:
        if path.is_file():  # no pipe, nor a device
            try:
                fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BadFile(f"Another command writes {path}: wait until it has ended") from error
        yield out


def put_on_disk(file: IO[bytes], path: Path) -> None:
    """Return when a file and its name outlive a crash of the machine."""
    file.flush()
    os.fsync(file.fileno())
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return when the names in a directory are on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class PageWriter:
    """Writes a compressed file page by page: a page is on disk when `page` returns, and so are
    those that the file had before.

    It goes on behind the whole pages of a file; `go_on` cuts the rest off.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.rows = 0
        self._hash = hashlib.sha256()
        is_new = not path.exists() or not path.stat().st_size
        for line, row in () if is_new else lines(path):
            self._hash.update(line)
            self.rows += not isinstance(row, Header)
        self._out = os.fdopen(os.open(path, APPENDING, OWN_MODE), "ab", buffering=0)
        try:
            put_on_disk(self._out, path)
            if is_new:
                line = _encode(header) + b"\n"
                self._store(line)
                self._hash.update(line)
        except BaseException:
            self._out.close()
            raise

    def __enter__(self) -> "PageWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()

    def page(self, rows: Sequence[Row]) -> None:
        text = b"".join(_encode(row) + b"\n" for row in rows)
        self._store(text)
        self._hash.update(text)
        self.rows += len(rows)

    def end(self) -> End:
        end = End(self.rows, self._hash.hexdigest())
        self._store(_encode(end) + b"\n")
        return end

    def _store(self, text: bytes) -> None:
        """Write a page. One that the disk has not taken is cut off: once a sync has failed, a file
        reads as if it were on the disk, and the next sync says so too.
        """
        before = os.fstat(self._out.fileno()).st_size
        left = memoryview(gzip.compress(text, mtime=0))
        try:
            while left:
                left = left[self._out.write(left) :]
            os.fsync(self._out.fileno())
        except OSError:
            with suppress(OSError):
                self._out.truncate(before)
            raise


def go_on(path: Path, header: Header) -> EventLine | None:
    """Cut off what is behind the last whole page of a compressed file; return its last event. None:
    it has none, or there is no file. Raises BadFile.
    """
    if not path.exists():
        return None
    size, last = 0, None
    with path.open("rb") as file:
        while True:
            text, end = _member(file, size, path)
            if not size:
                _refuse_foreign(path, text, header)
            if not end:
                break
            size = end
            for number, line in enumerate(text.splitlines(keepends=True), 1):
                found = _line(path, number, line)
                if isinstance(found, End):
                    raise BadFile(f"{path} is whole")
                if isinstance(found, Header) and found != header:
                    raise BadFile(f"{path} was begun for another archive")
                last = found if isinstance(found, EventLine) else last
    with path.open("rb+") as file:
        file.truncate(size)
    return last


def _refuse_foreign(path: Path, text: bytes, header: Header) -> None:
    """Refuse a file that has neither the line of a type, nor the beginning of ours alone: its
    text would be cut off, or have no beginning. `text` is from its first bytes.
    """
    line = text.partition(b"\n")[0]
    if len(line) < len(text):
        if isinstance(_line(path, 1, line), Header):
            return
    elif _encode(header).startswith(line):
        return
    raise BadFile(f"{path} was not begun by this command: name another file")


def _member(file: BinaryIO, size: int, path: Path) -> tuple[bytes, int]:
    """Return the member of gzip at a place, and its end; 0: it is not whole."""
    file.seek(size)
    member, text = zlib.decompressobj(wbits=31), bytearray()
    try:
        while not member.eof and (chunk := file.read(CHUNK)):
            text += member.decompress(chunk)
    except zlib.error as error:
        raise BadFile(f"{path} cannot be read: {error}") from error
    return bytes(text), file.tell() - len(member.unused_data) if member.eof else 0


def lines(path: Path) -> Iterator[tuple[bytes, Line]]:
    """Read a file line by line. Raises BadFile, also for a line that is not whole."""
    with path.open("rb") as file:
        is_packed = file.peek(len(GZIP)).startswith(GZIP)
        try:
            for number, line in enumerate(gzip.GzipFile(fileobj=file) if is_packed else file, 1):
                if not line.endswith(b"\n"):
                    raise BadFile(f"line {number} of {path} is not whole")
                yield line, _line(path, number, line)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise BadFile(f"{path} is not whole: {error}") from error


def _line(path: Path, number: int, line: bytes) -> Line:
    try:
        line.decode()  # a document that is not looked into may hold any bytes
        found: Line = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFile(f"line {number} of {path} cannot be read: {error}") from error
    return found


def resumed(path: Path, writer: Writer, header: Header) -> Row | None:
    """Take the whole lines of an interrupted file into account, and cut off what is behind them.
    Return its last row; None: it has none. Raises BadFile.
    """
    if not path.is_file():  # a pipe or a device: it has nothing, and reading may wait for ever
        writer.begin(header)
        return None
    size, last = 0, None
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                _refuse_foreign(path, line, header)
            if not line.endswith(b"\n"):
                break
            found = _line(path, number, line)
            if isinstance(found, End):
                raise BadFile(f"{path} is whole")
            writer.took(line, is_row=not isinstance(found, Header))
            if not isinstance(found, Header):
                last = found
            elif found != header:
                raise BadFile(f"{path} was begun for another export")
            size += len(line)
    os.truncate(path, size)
    if not size:
        writer.begin(header)
    return last


def checked(path: Path, seen: Callable[[Line], object] = bool) -> Header:
    """Read a whole file, show its lines, and return its header. Raises BadFile unless it is whole
    and unchanged.
    """
    header: Header | None = None
    end: End | None = None
    found, rows = hashlib.sha256(), 0
    for line, row in lines(path):
        seen(row)
        if end is not None:
            raise BadFile(f"{path} goes on after its end")
        if isinstance(row, Header):
            if header is not None or rows:
                raise BadFile(f"{path} has a second beginning")
            header = row
        elif isinstance(row, End):
            end = row
            continue
        else:
            rows += 1
        found.update(line)
    if header is None:
        raise BadFile(f"{path} does not begin with the line of a type")
    if header.format != FORMAT:
        raise BadFile(f"{path} has format {header.format}; this release reads {FORMAT}")
    if end is None:
        raise BadFile(f"{path} is not whole: its last line is missing")
    if (end.rows, end.sha256) != (rows, found.hexdigest()):
        raise BadFile(f"{path} was changed: its lines do not have the SHA-256 of its last line")
    return header
