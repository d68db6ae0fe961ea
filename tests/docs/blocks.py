"""Reads the blocks of a document: their commands, and the output that the document shows.

It needs nothing but the standard library: CI reads the tutorial with it before anything is
installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block's first line names."""
        named = re.match(r"# ([\w/]+\.py)\n", self.text)
        return named[1] if named else None


@dataclass(frozen=True, slots=True)
class Step:
    """A command, its line in the document, and the output shown below it."""

    line: int
    command: str
    shown: list[str]


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [Block(each[1], each[2], text[: each.start()].count("\n") + 1) for each in BLOCK.finditer(text)]


def steps(block: Block) -> list[Step]:
    """Commands of a block: all lines of `sh`; those after `$ ` of `console`, with their output."""
    found: list[Step] = []
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if block.language == "sh":
            found.append(Step(number, line, []))
        elif line.startswith("$ "):
            found.append(Step(number, line[2:], []))
        else:
            assert found, f"line {block.line}: a console block begins with a command"
            found[-1].shown.append(line)
    return found


def says(output: str, expected: list[str]) -> bool:
    """Whether each expected line is a line of the output, in this order; one that ends in dots
    begins a line.
    """
    lines = iter(output.splitlines())
    return all(any(_is(line, wanted) for line in lines) for wanted in expected)


def _is(line: str, wanted: str) -> bool:
    return line == wanted or (wanted.endswith("...") and line.startswith(wanted[:-3]))
