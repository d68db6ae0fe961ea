"""Errors of a file, or of standard output, as one sentence for the operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sharding_app.management.operator_command import STANDARD_OUTPUT, mute_output, refused
from sharding_app.operations.journal_file import BadFile


@contextmanager
def told(path: Path | None, remedy: str, missing: str = "") -> Iterator[None]:
    """Report a file that cannot be used, and an interruption. `path`: the file that the command is
    about; None: standard output. `remedy` says how the operator goes on, `missing` the same where
    there is no file. Raises CommandError.
    """

    def sentences(text: str) -> str:
        return f"{text}. {remedy if path is None or _is_there(path) else missing}".rstrip()

    try:
        yield
    except BadFile as error:
        raise refused(f"{error}.") from error
    except KeyboardInterrupt as error:
        raise refused(sentences("Interrupted")) from error
    except OSError as error:
        if path is None:
            mute_output()
        # An error of a write has no name.
        name = error.filename2 or error.filename or path or STANDARD_OUTPUT
        raise refused(sentences(f"{name}: {error.strerror or error}")) from error


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its name is too long, or the way to it is closed
        return False
