"""Words that hide the subject of a sentence, in comments, docstrings, names of functions and
classes, messages of asserts, and all texts of the app.

The subject is a node, a caller, the coordinator, the server: a reader has to know which. Data in
tests and tools, an id or an account's name say, is no prose; in prose it stands in backticks.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

UNNAMED = re.compile(r"\b(nobody|somebody|someone|no one|whoever)\b", re.IGNORECASE)
PAGE = re.compile(r"\bdocs/[\w-]+\.md\b")


def unnamed(text: str) -> bool:
    """Tell whether prose has such a word outside of backticks."""
    return UNNAMED.search(re.sub(r"`[^`]*`", "", text)) is not None


def in_python(source: str, *, every_text: bool = False) -> list[str]:
    """Return the parts of a module that have such a word, each with its line.

    `every_text`: also texts in the code, of errors and help for instance.
    """
    if not UNNAMED.search(source.replace("_", " ")):
        return []
    found = {*_prose(source), *(_texts(source) if every_text else ())}
    return [f"{line}: {text}" for line, text in sorted(found) if unnamed(text)]


def in_comments(source: str, mark: str) -> list[str]:
    """Return the comments of another language that have such a word, each with its line."""
    found = ((number, line.partition(mark)[2]) for number, line in enumerate(source.splitlines(), 1))
    return [f"{number}: {text.strip()}" for number, text in found if unnamed(text)]


def pages_named(source: str) -> list[str]:
    """Return the texts of a module that name a page of `docs`, each with its line; docstrings may.

    An error or a help text reaches readers of the wheel, which has no pages.
    """
    if PAGE.search(source) is None:
        return []
    nodes = list(ast.walk(ast.parse(source)))
    prose = {node.value for node in nodes if isinstance(node, ast.Expr)}
    return [
        f"{node.lineno}: {node.value}"
        for node in nodes
        if isinstance(node, ast.Constant) and node not in prose
        if isinstance(node.value, str) and PAGE.search(node.value)
    ]


def _prose(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Expr(value=ast.Constant(value=str(text))) | ast.Assert(msg=ast.Constant(value=str(text)))
            ):
                yield node.lineno, text
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name.replace("_", " ")
            case _:
                pass


def _texts(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
