"""Writes the part of docs/simulation.md about code that no seed executes.

    python manage.py sharding_simulate --seeds 96 --coverage --json > found.json
    python -m tests.simulation.unexecuted < found.json

`unexecuted.toml` says what files with such code have in common, and which tests cover it. A file
that it does not name may have a few such lines. The exit code 1 means that one has more: give it a
type or a fault in the simulation, or a place in that file.
"""

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("unexecuted.toml")
PAGE = ROOT / "docs" / "simulation.md"
HEADING, NEXT = "## Code that no seed executes\n", "## Planted mistakes\n"
A_FEW = 7
"""This number of such lines may a file have that is not named."""
WIDTH = 100
NUMBERS = dict(enumerate("no one two three four five six seven".split()))


class Covered(NamedTuple):
    """Files whose code no seed executes, for one reason."""

    what: str
    where: list[str]
    by: str


def groups() -> list[Covered]:
    return [Covered(**each) for each in tomllib.loads(DATA.read_text(encoding="utf-8"))["covered"]]


def left_out(lines: Mapping[str, Any]) -> dict[str, int]:
    """Return how many lines of each file were never executed, of those that have some."""
    found = {name.removeprefix("sharding_app/"): each for name, each in lines.items()}
    return {
        name: each["lines"] - each["executed"]
        for name, each in found.items()
        if each["lines"] > each["executed"]
    }


def unnamed(missing: Mapping[str, int]) -> dict[str, int]:
    """Return the files with such lines that have no place."""
    named = {file for each in groups() for file in each.where}
    return {file: number for file, number in missing.items() if file not in named}


def section(lines: Mapping[str, Any], seeds: int) -> str:
    """Return the part of the page."""
    missing = left_out(lines)
    of = sum(each["lines"] for each in lines.values())
    executed = of - sum(missing.values())
    table = [
        f"| {each.what} | {sum(missing.get(file, 0) for file in each.where)} | "
        f"{', '.join(f'`{file}`' for file in each.where)} | {each.by} |"
        for each in groups()
    ]
    rest = unnamed(missing)
    most = NUMBERS[max(rest.values(), default=0)]
    first = (
        f"`--coverage` names it line by line. {seeds} seeds execute {executed:,} of the {of:,} lines of functions in"
        f" `protocol/` and `runtime/` ({100 * executed / of:.1f} %). Other tests cover the rest:"
    )
    last = (
        f"The other {sum(rest.values())} lines are in {len(rest)} files, at most {most} in each. They are early returns of"
        " a request that is repeated, that comes too late or that has no answer yet, and bounds of tables that are larger"
        " than a seed fills. `--coverage` names them. `python -m tests.simulation.unexecuted` writes this table."
    )
    head = ["| never executed | lines | where | covered by |", "|---|---|---|---|"]
    return "\n".join((HEADING, fill(first, WIDTH), "", *head, *table, "", fill(last, WIDTH), "", ""))


def main() -> int:
    found = json.load(sys.stdin)
    missing = left_out(found["lines"])
    for each in groups():
        for file in each.where:
            if file not in missing:
                print(f"{file} has no such line any more: take it out of {DATA.name}")
    without = {file: number for file, number in unnamed(missing).items() if number > A_FEW}
    for file, number in without.items():
        print(f"{file}: {number} lines, {', '.join(found['lines'][f'sharding_app/{file}']['never'])}")
    if without or found["failed"]:
        return 1
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(HEADING)], page[page.index(NEXT) :]
    PAGE.write_text(before + section(found["lines"], found["seeds"]) + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
