"""Executes a document: Python blocks become files, console blocks are typed in, and what they show
must come.

A Python block begins with a comment that names its file; to a file that is there, it is added. A
console block has commands after `$ `, and below each the lines of its output, in that order.
"""

from __future__ import annotations

import ast
import shlex
import subprocess
from pathlib import Path

from tests.docs.blocks import Block, Step, blocks, says, steps
from tests.support.scratch_project import ScratchProject


class Reader:
    """A reader who types in the commands of a document."""

    def __init__(self, project: ScratchProject) -> None:
        self.project = project

    def follow(self, document: Path) -> None:
        for block in blocks(document):
            if block.language == "python":
                self._write(block)
            elif block.language == "console":
                for step in steps(block):
                    self._type(step, f"{document.name}, line {step.line}: {step.command}")

    def _write(self, block: Block) -> None:
        if block.file is None:
            compile(block.text, f"line {block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif (self.project.folder / block.file).exists():
            self.project.append(block.file, block.text)
        else:
            self.project.write(block.file, block.text)

    def _type(self, step: Step, where: str) -> None:
        words = shlex.split(step.command)
        assert words[0] == "python", f"{where}: the tests do not know how to run this"
        answer: subprocess.CompletedProcess[str] = self.project.run(*words[1:])
        assert answer.returncode == 0, f"{where}\n{answer.stderr}"
        output = answer.stdout + answer.stderr
        assert says(output, step.shown), f"{where}\nsaid:\n{output}"
