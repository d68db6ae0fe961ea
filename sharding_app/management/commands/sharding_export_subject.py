"""`manage.py sharding_export_subject ID`: all that is stored about a person, readable."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sharding_app.adapters.personal.sealing import NoKeys
from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.management.deletion_command import DatabaseCommand
from sharding_app.management.file_troubles import told
from sharding_app.management.operator_command import refused, signed, valid_id
from sharding_app.management.progress import Progress
from sharding_app.operations.access import Erased, PersonLine, lines
from sharding_app.operations.console import counted
from sharding_app.operations.journal_file import OWN_MODE, End, Writer, put_on_disk, sync_folder

OPEN_FILES = Path("/proc/self/fd")


class Command(DatabaseCommand):
    help = (
        "Write all data about a person as JSON lines, for an access request: the person's own entities, and each\n"
        "event, state, snapshot, message and timer elsewhere that has a personal value of the person. These values are\n"
        "in plain; in the place of other persons' values stands a mark. The timeline says before who has asked. Nodes may\n"
        "run. The last line has the number of rows and their SHA-256. The file is for the person: sharding_import takes\n"
        "none of it.\n\n"
        "Examples:\n"
        "  manage.py sharding_export_subject ann --to ann.jsonl         ask, then write a file of your user alone\n"
        "  manage.py sharding_export_subject ann --yes                  to the terminal or a pipe\n"
        "  manage.py sharding_export_subject ann --to ann.jsonl --yes --json  for scripts\n\n"
        "Exit codes: 0 done, 1 refused or nothing is stored, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", metavar="ID", help="id of the person: the subject of the personal data")
        parser.add_argument(
            "--to", type=Path, metavar="FILE", help="file to write (default: standard output)"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def work(self, options: dict[str, Any]) -> None:
        subject, path = valid_id(options["id"]), options["to"]
        if path is None and self.as_json:
            raise refused("--json needs a file: add --to FILE.")
        with told(path, "It is not whole.", "No file was made."):
            self._export(subject, path, yes=options["yes"])

    def _export(self, subject: str, path: Path | None, *, yes: bool) -> None:
        if path is not None and path.exists():
            raise refused(f"{path} exists. Name another file.")
        self.sure(f"Show the personal data of {subject!r} in plain?", yes=yes)
        progress = Progress(self.stderr, quiet=self.as_json or path is None)

        def write(where: Conninfo) -> End:
            if path is None:
                return _write(where, subject, sys.stdout.buffer, progress)
            with _own_file(path) as out:
                return _write(where, subject, out, progress)

        try:
            end = self.on_database(write)
        except Erased:
            raise refused(f"{subject!r} was erased: no value of the person can be read.") from None
        except NoKeys as error:
            raise refused(f"{error}.") from error
        finally:
            progress.done()
        if path is not None:
            self.say(f"{counted(end.rows, 'row')} in {path}, SHA-256 {end.sha256}")
        self.result(rows=end.rows, sha256=end.sha256)


def _write(where: Conninfo, subject: str, out: BinaryIO, progress: Progress) -> End:
    writer = Writer(out)
    for line in lines(where, subject, signed("sharding_export_subject"), progress):
        if isinstance(line, PersonLine):
            writer.begin(line)
        else:
            writer.write(line)
    if not writer.rows:
        raise refused(f"Nothing is stored about {subject!r}.")
    return writer.end()


@contextmanager
def _own_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that no other user can read. None of it stays if it does not become whole. Where
    the system can do that, it has no name before: of a process that is killed nothing stays either.
    """
    if (unnamed := _unnamed(path.parent)) is not None:
        with os.fdopen(unnamed, "wb") as out:
            yield out
            out.flush()
            os.fsync(unnamed)
            _give_name(unnamed, path)
        sync_folder(path.parent)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWN_MODE), "wb") as out:
        try:
            yield out
            put_on_disk(out, path)
        except BaseException:
            path.unlink()
            raise


def _unnamed(folder: Path) -> int | None:
    """Open a file without a name; None: the system has none, or could not give it one later."""
    if not hasattr(os, "O_TMPFILE") or not OPEN_FILES.is_dir():
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, OWN_MODE)
    except OSError:
        return None


def _give_name(descriptor: int, path: Path) -> None:
    place = os.open(OPEN_FILES, os.O_RDONLY)
    try:
        os.link(str(descriptor), path, src_dir_fd=place)
    finally:
        os.close(place)
