"""Executes a document: Python blocks become files, console blocks are typed in, and what they show
must come.

A Python block begins with a comment that names its file; to a file that is there, it is added. A
console block has commands after `$ ` and below each what must begin the lines of its output, in
that order. Commands that go on (a node, a server) stay until the end.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlencode

from sharding_app.embedded.ports import free_port
from tests.support.live import Program, until
from tests.support.scratch_project import ScratchProject

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STAYS = ("sharding_node", "runserver", "runcluster")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [Block(each[1], each[2], text[: each.start()].count("\n") + 1) for each in BLOCK.finditer(text)]


def steps(block: Block) -> list[tuple[str, list[str]]]:
    """Commands of a console block, each with what it must say."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            assert found, f"line {block.line}: a console block begins with a command"
            found[-1][1].append(line)
    return found


def says(output: str, expected: list[str]) -> bool:
    """Whether each expected line begins a line of the output, in this order."""
    lines = iter(output.splitlines())
    return all(any(line.startswith(wanted.removesuffix("...")) for line in lines) for wanted in expected)


class Reader:
    """A reader who types in the commands of a document."""

    def __init__(self, project: ScratchProject) -> None:
        self.project = project
        self.port = free_port()
        self.staying: list[Program] = []
        self._stack = ExitStack()

    def follow(self, document: Path) -> None:
        with self._stack:
            for block in blocks(document):
                if block.language == "python":
                    self._write(block)
                elif block.language == "console":
                    for command, expected in steps(block):
                        self._type(command, expected, f"{document.name}, line {block.line}: {command}")

    def _write(self, block: Block) -> None:
        named = re.match(r"# ([\w/]+\.py)\n", block.text)
        if named is None:
            compile(block.text, f"line {block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif (self.project.folder / named[1]).exists():
            self.project.append(named[1], block.text)
        else:
            self.project.write(named[1], block.text)

    def _type(self, command: str, expected: list[str], where: str) -> None:
        words = shlex.split(command)
        if words[0] == "curl":
            output = self._curl(words[1:])
        elif words[:2] == ["python", "manage.py"] and words[2] in STAYS:
            port = [str(self.port)] if words[2] == "runserver" else []
            program = self._stack.enter_context(self.project.program(*words[2:], *port))
            self.staying.append(program)
            for line in expected:
                program.wait_line(f"^{re.escape(line)}")
            return
        else:
            assert words[0] == "python", f"{where}: the tests do not know how to run this"
            answer: subprocess.CompletedProcess[str] = self.project.run(*words[1:])
            assert answer.returncode == 0, f"{where}\n{answer.stderr}"
            output = answer.stdout + answer.stderr
        assert says(output, expected), f"{where}\nsaid:\n{output}"

    def _curl(self, words: list[str]) -> str:
        given = [each.partition("=") for flag, each in pairwise(words) if flag == "-d"]
        data = {name: value for name, _, value in given}
        url = words[-1].replace(":8000/", f":{self.port}/")
        assert url.startswith(f"http://127.0.0.1:{self.port}/")
        body = urlencode(data).encode() if data else None

        def answer() -> str | None:
            try:
                with urllib.request.urlopen(url, body, timeout=20) as found:  # noqa: S310 - checked above
                    text: bytes = found.read()
            except urllib.error.HTTPError as error:
                with error:
                    text = error.read()
            except urllib.error.URLError:
                return None  # the server comes up still
            return text.decode()

        found: str = until(answer, 30, f"an answer from {url}")
        return found
