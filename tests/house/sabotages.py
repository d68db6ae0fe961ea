"""Puts mistakes into the code that would break a promise, and looks whether a test of each notices.

    python -m tests.house.sabotages [NUMBER ...] [--write]

tests/house/sabotages.toml says for each what is changed and which tests have to fail. It is carried
out as the trials of the conformance rows are (`tests.house.trials`). The mistakes that the
simulation plants in itself (`tests/simulation/mistakes`) are others: they show what seeds find,
these show what the tests find. `--write` keeps what came out in docs/sabotages.md.
"""

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.house.conformance import ROOT, fault_of_test, tests_named
from tests.house.trials import Trial, cannot_be_made, carry_out, told, write

DATA = Path(__file__).with_name("sabotages.toml")
TOLD = ROOT / "docs" / "sabotages.md"

HEAD = """# Sabotages

A promise is worth as much as its check. Each line is a mistake that would break a promise. It was
put into the code, in a throwaway copy, and the named tests failed; without it they pass.
`python -m tests.house.sabotages --write` repeats this and writes this page;
`python -m tests.house.sabotages 7` tries one. The exact changes are in
`tests/house/sabotages.toml`. The mistakes that are planted while seeds of
[the simulation](simulation.md) run are others.

| number | mistake | in | tests that then fail |
|---|---|---|---|
"""


def read(data: str) -> list[Trial]:
    """All sabotages, in the order of the data; they are numbered from 1."""
    return [
        Trial(
            str(number),
            each["out"],
            each["file"],
            each["old"],
            each["new"],
            tuple(tests_named(f"`{name}`" for name in each["tests"])),
        )
        for number, each in enumerate(tomllib.loads(data)["sabotage"], 1)
    ]


def faults(sabotages: Sequence[Trial], root: Path = ROOT) -> list[str]:
    """What is wrong with the data: each sabotage can be made, and names tests that are there."""
    wrong = [f"{each.row}: {each.out}: which test notices?" for each in sabotages if not each.tests]
    for each in sabotages:
        wrong += [f"{each.row}: {fault}" for test in each.tests if (fault := fault_of_test(root, test))]
    return wrong + cannot_be_made(sabotages, root)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NUMBER", help="of some; without any, all")
    parser.add_argument("--write", action="store_true", help="write docs/sabotages.md")
    options = parser.parse_args(arguments)
    sabotages = read(DATA.read_text(encoding="utf-8"))
    if wrong := faults(sabotages):
        print("\n".join(wrong))
        return 1
    fates = told(TOLD.read_text(encoding="utf-8")) if TOLD.exists() else {}

    def keep() -> None:
        if options.write:
            TOLD.write_text(write(sabotages, fates, HEAD), encoding="utf-8")

    return carry_out([each for each in sabotages if each.row in (options.numbers or each.row)], fates, keep)


if __name__ == "__main__":
    sys.exit(main())
