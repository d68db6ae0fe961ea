"""Executed lines of the machines and their shells.

Only lines of functions: all else runs at import.

It watches one thread, the one in which the virtual clusters run. A function whose lines have all
been seen is not watched any more. A function of another folder costs one look into a dict for each
call.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import sharding_app

PACKAGE = Path(sharding_app.__file__).parent
FOLDERS = tuple(PACKAGE / name for name in ("protocol", "runtime"))

Lines = dict[str, set[int]]
"""By the name of a file, relative to the folder of its package."""


class Found(NamedTuple):
    """The findings about one file."""

    lines: int
    executed: int
    never: list[str]
    "Ranges of lines."

    @property
    def percent(self) -> float:
        return 100.0 * self.executed / self.lines if self.lines else 100.0


class Executed:
    def __init__(self, folders: Iterable[Path] = FOLDERS) -> None:
        self.lines: Lines = {}
        self._folders = tuple(folders)
        self._left: dict[CodeType, set[int] | None] = {}
        "Of each function that was called: the lines not seen yet; None: it is not watched."

    @contextmanager
    def watching(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        left = self._left.get(code, _UNKNOWN)
        if left is _UNKNOWN:
            left = self._left[code] = self._begins(code)
        return self._line if left else None

    def _begins(self, code: CodeType) -> set[int] | None:
        """Begin to watch a function that is called for the first time."""
        path = Path(code.co_filename)
        if not any(folder in path.parents for folder in self._folders):
            return None
        self.lines.setdefault(_name(path), set()).add(code.co_firstlineno)
        return _own_lines(code)

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        left = self._left[frame.f_code]
        if event == "line" and left is not None and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.lines[_name(Path(frame.f_code.co_filename))].add(frame.f_lineno)
        return self._line


_UNKNOWN: set[int] = set()


def report(executed: Mapping[str, Iterable[int]], folders: Iterable[Path] = FOLDERS) -> dict[str, Found]:
    """Compare with all lines of each file in the folders."""
    found = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        lines = lines_of(path.read_text())
        seen = lines.intersection(executed.get(_name(path), ()))
        if lines:
            found[_name(path)] = Found(len(lines), len(seen), list(_ranges(sorted(lines), seen)))
    return found


def lines_of(source: str) -> set[int]:
    """Return the lines of functions that can be executed.

    A function that is only declared has none.
    """
    lines: set[int] = set()
    codes = [compile(source, "", "exec")]
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_name != "__annotate__":
            lines |= _own_lines(code)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _only_declares(node):
            first = min(each.lineno for each in (node, *node.decorator_list))
            lines.difference_update(range(first, (node.end_lineno or first) + 1))
    return lines


def _own_lines(code: CodeType) -> set[int]:
    """Return a function's lines, without its `def`, which belongs to its surroundings.

    A function on one line keeps that line.
    """
    lines = {line for _, _, line in code.co_lines() if line is not None}
    return lines - {code.co_firstlineno} or lines


def _only_declares(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function contains only a text, or three dots."""
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in function.body)


def _ranges(lines: list[int], seen: set[int]) -> Iterator[str]:
    """Return ranges of lines that were never executed. No line between the ends of a range was."""
    first = last = 0
    for line in [*lines, 0]:
        if line and line not in seen:
            first, last = first or line, line
        elif first:
            yield str(first) if first == last else f"{first}-{last}"
            first = 0


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE.parent).as_posix() if PACKAGE in path.parents else path.name
