"""docs/before-and-after.md: the lines of the auction site, counted in the demo."""

import ast
import re

from tests.support.live import ROOT

PAGE = ROOT / "docs" / "before-and-after.md"
DEMO = ROOT / "project" / "auctions"

PARTS = {
    "live bids in browsers": ["entities.py Auction.board"],
    "the list of open auctions": ["projections.py OpenAuctions", "models.py OpenAuction"],
    "closing at a time": ["entities.py self.schedule("],
    "credit held and released": [
        "entities.py self.send(Auction.ref(auction).bid",
        "entities.py self.send(Bidder.ref(former",
        "entities.py Bidder.refused",
        "entities.py Bidder.release",
        "entities.py Bidder._release",
    ],
    "work on a schedule, once in the cluster": ["entities.py House.tend"],
}
"""By need: a file, with a class, a method or the begin of a statement in it."""


def lines_of(part: str) -> int:
    """Count lines of code: decorators, but no empty lines, comments and docstrings."""
    file, name = part.split(" ", 1)
    source = (DEMO / file).read_text()
    text, found = source.splitlines(), 0
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    docstrings = {
        line
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    for node in nodes:
        owner, _, method = name.rpartition(".")
        is_class = isinstance(node, ast.ClassDef) and node.name == name
        is_method = isinstance(node, ast.FunctionDef) and node.name == method and _owner(nodes, node) == owner
        is_statement = isinstance(node, ast.Expr) and text[node.lineno - 1].strip().startswith(name)
        if is_class or is_method or is_statement:
            decorators = [each.lineno for each in getattr(node, "decorator_list", ())]
            lines = range(min([node.lineno, *decorators]), (node.end_lineno or 0) + 1)
            found += sum(
                each not in docstrings and bool(text[each - 1].strip().partition("#")[0]) for each in lines
            )
    assert found, f"{part} is not in the demo"
    return found


def _owner(nodes: list[ast.stmt], method: ast.FunctionDef) -> str:
    return next((each.name for each in nodes if isinstance(each, ast.ClassDef) and method in each.body), "")


def test_the_lines_are_those_of_the_demo() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| [^|]+ \| (\d+) \|", PAGE.read_text(), flags=re.MULTILINE)
    counted = {need: sum(map(lines_of, parts)) for need, parts in PARTS.items()}
    assert {need: int(lines) for need, lines in rows if need in PARTS} == counted
