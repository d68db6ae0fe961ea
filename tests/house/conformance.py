"""Reads docs/conformance.md and holds it against the tests. `python -m tests.house.conformance`
prints the count.

Each row of the reference's own tests stands there once, with one of four words:

    tested           and the tests that show it, as file::test or file::test[part of its id]
    does not apply   and why
    later            only rows that a later release is for
    not yet          counted, and listed by this script
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
STATES = ("tested", "does not apply", "later", "not yet")

ROWS = """
A1.1 A1.2 A1.3 A1.4 A1.5 A1.6 A1.9 A1.10 A1.12 A1.14 A1.16
A2.1 A2.2 A2.3 A2.4 A2.5 A2.7 A2.9 A2.10 A2.11 A2.13 A2.15 A2.16–19
A3 A4.1 A4.2 A4.3 A4.4 A4.5 A4.7 A4.8–10 A5.1 A5.2 A5.3 A5.4 A5.5 A5.6 A5.7 A6
B1.1 B1.2 B1.4 B1.5 B1.6 B1.7 B1.8 B1.9 B1.10 B1.11 B1.12 B1.14 B1.16
B2.1 B2.3 B2.4 B2.6 B2.7 B2.8 B2.10 B2.11 B2.13 B2.14 B2.15 B2.17 B2.18 B2.19 B2.20 B2.21 B2.22 B2.23
C1 C4 C5 C6 C7 C8 C9 C10 C11 C12 C13
D1 D2 D3 D5 D6 D8 D9 D11 D12 D13 D14 D15
E1 E3 E4 E5
F1 F2 F4 F5 F7 F8 F9
G1 G2 G3 G4 G5 G6 G7 G8 G9 G10 G11
H1 H2 H3 H5 H7 H8 H9 H10
I1 I2 I3 I4 I5
J1 J2 J3 J4 J5 J6 J7 J9 J10 J11 J12 J13 J14 J17
K1 K2 K3
L1 L2 L3 L4
M3 M4 M6 M7 M8 M9 M10
""".split()

MAY_BE_LATER = frozenset(
    "B1.11 D3 D5 D6 D8 D9 D11 D12 D13 D14 D15 J11".split() + [row for row in ROWS if row[0] == "L"]
)
"""Data centres, and passivation by limits."""

_NUMBER = re.compile(r"([A-M](?:\d+\.)?)(\d+)(?:–(\d+))?")
_LEFT_OUT = re.compile(r"^\| ([A-M][\d., A-M]*) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_LINE = re.compile(r"^\| ([A-M]\d+(?:\.\d+(?:–\d+)?)?) \| (.+?) \| ([a-z ]+?) \| (.*?) \|$")
_TEST = re.compile(r"`([\w/]+\.py)::([\w:]+)(?:\[([^\]]+)\])?`")


class NamedTest(NamedTuple):
    file: str
    name: str
    "With the class before it, if it stands in one."
    part: str
    "Of the id of one case; empty: all cases."

    @property
    def id(self) -> str:
        """What pytest calls it."""
        return f"{self.file}::{self.name}{f'[{self.part}]' if self.part else ''}"


def tests_named(texts: Iterable[str]) -> list[NamedTest]:
    """All tests that these texts name, each between backquotes."""
    return [NamedTest(*found) for text in texts for found in _TEST.findall(text)]


class Row(NamedTuple):
    id: str
    what: str
    state: str
    detail: str

    @property
    def tests(self) -> list[NamedTest]:
        return tests_named([self.detail])


def rows(text: str) -> list[Row]:
    """All rows of the page, as it has them."""
    return [Row(*found.groups()) for line in text.splitlines() if (found := _LINE.match(line))]


def faults(text: str, root: Path = ROOT) -> list[str]:
    """What is wrong with the page."""
    found = rows(text)
    counted = Counter(row.id for row in found)
    wrong = [f"{row}: the row is missing" for row in ROWS if not counted[row]]
    wrong += [f"{row}: it stands there {number} times" for row, number in counted.items() if number > 1]
    wrong += [f"{row}: there is no such row" for row in counted if row not in ROWS]
    for row in found:
        wrong += [f"{row.id}: {fault}" for fault in _faults_of(row, root)]
    return wrong + _faults_of_gaps(text, root)


def gaps() -> list[str]:
    """The numbers that lie between those of the rows, and are none."""
    numbers: dict[str, set[int]] = {}
    for row in ROWS:
        if found := _NUMBER.fullmatch(row):
            first = int(found[2])
            numbers.setdefault(found[1], set()).update(range(first, int(found[3] or first) + 1))
    between = {
        name: range(1, max(known) + 1)
        for name, known in numbers.items()
        # A3 stands beside A1.1: as a whole it is a row or a group of rows.
        if name.endswith(".") or not any(f"{name}{each}." in numbers for each in range(1, 20))
    }
    return [f"{name}{each}" for name, all_ in between.items() for each in all_ if each not in numbers[name]]


def _faults_of_gaps(text: str, root: Path) -> list[str]:
    _, _, section = text.partition("\n## Numbers that are not here\n")
    told = [(name, why) for names, _, why in _LEFT_OUT.findall(section) for name in names.split(", ")]
    known = {name for name, _ in told}
    wrong = [f"{gap}: nothing says why there is no such row" for gap in gaps() if gap not in known]
    wrong += [f"{name}: it is no number that is left out" for name in known if name not in gaps()]
    for name, why in told:
        for each in _TEST.findall(why):
            if fault := fault_of_test(root, NamedTest(*each)):
                wrong.append(f"{name}: {fault}")
    return wrong


def _faults_of(row: Row, root: Path) -> list[str]:
    if row.state not in STATES:
        return [f"{row.state!r} is none of {', '.join(STATES)}"]
    if row.state == "later" and row.id not in MAY_BE_LATER:
        return ["nothing says that it may come later"]
    if row.state == "does not apply" and len(row.detail) < 20:
        return ["why does it not apply?"]
    if row.state != "tested":
        return ["it names a test: is it tested?"] if row.tests else []
    if not row.tests:
        return ["which test shows it?"]
    return [fault for test in row.tests if (fault := fault_of_test(root, test))]


def fault_of_test(root: Path, named: NamedTest) -> str:
    """What is wrong with a test that a page names; empty: nothing."""
    path = root / named.file
    if not path.is_file():
        return f"{named.file} does not exist"
    source, functions = _read(path)
    test = functions.get(named.name)
    if test is None:
        return f"{named.file} has no {named.name}"
    if named.part and f'"{named.part}"' not in source:
        return f"{named.file} has no case {named.part!r}"
    if not _asserts(test, functions):
        return f"{named.name} asserts nothing"
    return ""


Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _read(path: Path) -> tuple[str, dict[str, Function]]:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    found = {each.name: each for each in ast.walk(tree) if isinstance(each, Function)}
    tests = {each.name: each for each in tree.body if isinstance(each, Function)}
    for group in tree.body:
        if isinstance(group, ast.ClassDef):
            tests.update(
                {f"{group.name}::{each.name}": each for each in group.body if isinstance(each, Function)}
            )
    # Helpers may stand anywhere; a test only where pytest finds it under the name that the page
    # gives it.
    helpers = {name: each for name, each in found.items() if not name.startswith("test_")}
    return source, helpers | tests


def _asserts(test: Function, functions: dict[str, Function], depth: int = 2) -> bool:
    """Whether a test asserts something itself, or through a function of its file."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            # A wait with a deadline fails when what it waits for does not come; the end of a
            # scenario judges its history.
            if name in ("raises", "until", "finish"):
                return True
            helper = functions.get(name)
            if helper is not None and helper is not test and depth and _asserts(helper, functions, depth - 1):
                return True
    return False


def report(text: str) -> str:
    """How far it is, and what is still to be done."""
    found = rows(text)
    count = Counter(row.state for row in found)
    lines = [f"{count[state]:4} {state}" for state in STATES]
    waiting = [f"     {row.id}: {row.detail or row.what}" for row in found if row.state == "not yet"]
    return "\n".join([*lines, *waiting])


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    print(report(page))
    if trouble := faults(page):
        sys.exit("\n".join(trouble))
