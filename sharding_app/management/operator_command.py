"""The base of the commands that change a cluster: help, questions, exit codes and reports."""

import getpass
import json
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from sharding_app.entities.identifiers import entity_id
from sharding_app.errors import InvalidEntityId
from sharding_app.management.base import ShardingCommand
from sharding_app.operations.connectivity import PROBLEMS

STANDARD_OUTPUT = "Standard output"


class OperatorCommand(ShardingCommand):
    """Exit codes: 0 done, 1 refused or not finished, 2 a server cannot be reached."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        self.as_json: bool = options["json"]
        try:
            with sound_settings(), interruptible():
                self.work(options)
        except CommandError as error:
            if self.as_json:
                self._print(json.dumps({"done": False, "error": str(error)}))
            raise

    def work(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            self._print(text)

    def result(self, **facts: Any) -> None:
        """Keep the object for scripts."""
        if self.as_json:
            self._print(json.dumps({"done": True, **facts}))

    def _print(self, text: str) -> None:
        """Print a line, also a file's name that no encoding has."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        try:
            self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self.stdout.flush()
        except OSError as error:
            if self.stdout._out is sys.stdout:
                mute_output()
            raise refused(f"{STANDARD_OUTPUT}: {error.strerror or error}. It lacks: {text}") from error

    def sure(self, question: str, *, yes: bool, word: str = "yes") -> None:
        """Ask before an action that cannot be undone; without a terminal, require --yes."""
        if yes:
            return
        if self.as_json or not sys.stdin.isatty():
            raise refused("This cannot be undone. Add --yes.")
        self.stdout.write(f"{question} Type {word!r} to continue: ", ending="")
        self.stdout.flush()
        if sys.stdin.readline().strip() != word:
            raise refused("Nothing was changed.")


def refused(text: str) -> CommandError:
    return CommandError(text, returncode=PROBLEMS)


def valid_id(text: str) -> str:
    """Return an operand that is an id. One that is empty, as of a variable that a script has not
    set, must not be taken for all of a type. Raises CommandError.
    """
    try:
        return entity_id(text)
    except InvalidEntityId as error:
        raise refused(f"No entity can have this ID: {error}.") from error


def mute_output() -> None:
    """Drop the text that standard output still holds back: at its end the process would complain
    about it once more, with an exit code of its own.
    """
    with suppress(OSError, ValueError):  # a stream of a test has no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)


@contextmanager
def sound_settings() -> Iterator[None]:
    """Report wrong settings without a traceback, and as an object for scripts."""
    try:
        yield
    except ImproperlyConfigured as error:
        raise refused(f"{error} Run: manage.py check") from error


@contextmanager
def interruptible() -> Iterator[None]:
    """Report Ctrl-C without a traceback, and as an object for scripts."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise refused("Interrupted.") from error


def signed(command: str) -> str:
    """Return the user and the command, for the timeline."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        who = "unknown user"
    return f"{who} ({command})"
