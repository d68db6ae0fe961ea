"""The page of the guarantees names what is there, and every promise that the simulation reports."""

import ast
import re
from pathlib import Path

from sharding_app.testing import simulation
from tests.simulation.find_plants import known
from tests.simulation.mistakes import MISTAKES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NUMBERED = re.compile(r"^## (\d+)\. ", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w./]+|\w+\.py|[a-z]+(?:_[a-z]+)+)`")

SECTIONS = re.findall(r"^## (\d+)\. (.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
"""Number and text of each promise."""


def reported() -> dict[str, int]:
    """Return the name and the number of each promise that some place of the simulation reports as
    broken.
    """
    found: dict[str, int] = {}
    for path in Path(simulation.__path__[0]).rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        of_file = 0
        named: list[str] = []
        for node in calls:
            function = ast.unparse(node.func)
            if not function.endswith(("PromiseBroken", "._broke", "._fail")):
                continue
            match node.args:
                case [ast.Constant(int(number)), ast.Constant(str(name)), *_]:
                    found[name] = number
                case [ast.Constant(int(number)), ast.Name(), *_]:
                    of_file = number
                case [ast.Constant(int()), other, *_]:
                    raise AssertionError(
                        f"{path.name}:{node.lineno}: a name made at run time: {ast.unparse(other)}"
                    )
                case [ast.Constant(str(name)), *_]:
                    named.append(name)
        found |= dict.fromkeys(named, of_file)
    return found


def test_each_number_stands_once_and_has_its_tests() -> None:
    numbers = [int(each) for each in NUMBERED.findall(PAGE)]
    assert numbers == sorted(set(numbers))
    promises = reported()
    for number, section in SECTIONS:
        assert "*Shown by* `tests/" in section, number
        for name in NAMED.findall(section):
            assert promises.get(name, int(number)) == int(number), name


def test_what_is_named_is_there() -> None:
    promises = reported()
    assert len(promises) > 15
    for name in NAMED.findall(PAGE):
        if name.startswith("tests/"):
            assert (ROOT / name).exists(), name
        elif name.endswith(".py"):
            assert (Path(simulation.__path__[0]) / name).exists(), name
        elif name not in {
            "command_id",
            "sharding_remove_journal",
            "sharding_simulate",
            "use_lease",
            *MISTAKES,
        }:
            assert name in promises, name


def test_the_table_of_proofs_is_whole() -> None:
    """Each name of the simulation stands once, at its number. A seed finds the mistake beside it
    under this number.
    """
    rows = re.findall(r"^\| \[(\d+)\]\(#.*\) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [number for number, _, _ in rows] == ["0", *(number for number, _ in SECTIONS)]
    told = {name: int(number) for number, names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    assert {name: number for name, number in told.items() if name != "liveness"} == reported()
    seeds = known()
    for number, _, planted in rows:
        found = re.findall(r"`(\w+)`", planted)
        if found:
            assert all(seeds[each].promise == int(number) for each in found), number
        else:
            assert not any(int(number) in each.promises for each in MISTAKES.values()), number


def test_every_promise_that_the_simulation_reports_is_on_the_page() -> None:
    numbers = {int(each) for each in NUMBERED.findall(PAGE)}
    assert set(reported().values()) <= numbers | {0}
