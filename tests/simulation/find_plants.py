"""Finds for each planted mistake the first seed that breaks a promise of it, and keeps that in
plants.toml.

    python -m tests.simulation.find_plants [NAME ...] [--seeds 100] [--processes 2]

The tests run each mistake with the seed that stands there. Whatever changes the workload, the
faults or the code moves these seeds; the tests then look a few seeds further, which takes time, and
say so when they find nothing. Names may be given by their beginning; without any, all are looked
for anew. Exit code 1: a mistake was found by no seed, under a promise that it breaks.
"""

import argparse
import multiprocessing
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).with_name("plants.toml")
HEAD = """# The first seed that finds each planted mistake, the promise that it breaks there, and the check
# that has reported it.
# Written by: python -m tests.simulation.find_plants
"""


class Plant(NamedTuple):
    """How a planted mistake was found."""

    seed: int
    promise: int
    check: str
    "The name under which the simulation has reported it: one promise has several checks."


class Search(NamedTuple):
    """What a search came to: where a mistake was found, and what else seeds before that have
    broken.
    """

    name: str
    found: Plant | None
    others: tuple[str, ...] = ()


def known() -> dict[str, Plant]:
    """What plants.toml says."""
    return {name: Plant(**each) for name, each in tomllib.loads(DATA.read_text(encoding="utf-8")).items()}


def written(plants: dict[str, Plant]) -> str:
    lines = [
        f'{name} = {{ seed = {each.seed}, promise = {each.promise}, check = "{each.check}" }}'
        for name, each in sorted(plants.items())
    ]
    return HEAD + "".join(f"{line}\n" for line in lines)


def check_of(broken: str) -> str:
    """Return the name of the check in a seed's sentence about a broken promise."""
    found = re.match(r"promise \d+, (\w+): ", broken)
    if found is None:
        raise ValueError(f"no broken promise: {broken!r}")
    return found[1]


def search(name: str, seeds: Iterable[int]) -> Search:
    """Run seeds with a mistake planted until one breaks a promise that it should. Another one
    proves nothing of the check.
    """
    from sharding_app.testing.simulation.runs import Job, run
    from tests.simulation.mistakes import MISTAKES
    from tests.simulation.planted import planted

    others: list[str] = []
    for seed in seeds:
        with planted(name):
            result = run(Job(seed, 3 + seed % 3, direct=MISTAKES[name].direct))
        if result.broken is None:
            continue
        if result.promise in MISTAKES[name].promises:
            return Search(name, Plant(seed, result.promise, check_of(result.broken)), tuple(others))
        others.append(f"seed {seed} breaks {result.broken}")
    return Search(name, None, tuple(others))


def _search_first(job: tuple[str, int]) -> Search:
    name, seeds = job
    return search(name, range(seeds))


def main(arguments: Sequence[str] | None = None) -> int:
    from tests.simulation.mistakes import MISTAKES

    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="mistakes by their beginning; without any, all"
    )
    parser.add_argument(
        "--seeds", type=int, default=100, help="number of seeds to look at, from 0 (default: 100)"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names = [name for name in MISTAKES if name.startswith(tuple(options.names) or ("",))]
    if not names:
        parser.error("no mistake begins like that")
    plants = {name: plant for name, plant in (known() if DATA.exists() else {}).items() if name in MISTAKES}
    failed = 0
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for each in pool.imap_unordered(_search_first, [(name, options.seeds) for name in names]):
            for other in each.others:
                print(f"{each.name}: {other}, which is none of its promises", flush=True)
            if each.found is not None:
                plants[each.name] = each.found
                print(
                    f"{each.name}: seed {each.found.seed}, promise {each.found.promise}, {each.found.check}",
                    flush=True,
                )
            else:
                failed += 1
                plants.pop(each.name, None)
                print(f"{each.name}: not found by {options.seeds} seeds", flush=True)
            DATA.write_text(written(plants), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
