"""Plants mistakes on purpose, which the simulation must find.

    python -m tests.simulation.planted NAME [--seeds 20] [--seed 0] [--nodes N]

A simulation that finds nothing proves nothing until it has shown that it finds mistakes.
`planted(name)` puts a mistake in while the block runs. A run that then breaks a promise has done
its work. The program runs seeds until one of them does, and shows that one as `manage.py
sharding_simulate` shows a failed seed. Exit code 1: no seed has found the mistake, or one has found
it as another one than it is.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.simulation.mistakes import MISTAKES


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Plant a mistake while the block runs."""
    mistake = MISTAKES[name]
    real = mistake.where.__dict__[mistake.name]
    wrong = mistake.make(real)
    takes_its_place(real, wrong, name)
    setattr(mistake.where, mistake.name, wrong)
    try:
        yield
    finally:
        setattr(mistake.where, mistake.name, real)


def takes_its_place(real: Any, wrong: Any, name: str) -> None:
    """Raise TypeError unless a mistake can be called as the real function is.

    A mistake that raises at each call would be found as another one than was meant.
    """
    if inspect.iscoroutinefunction(real) != inspect.iscoroutinefunction(wrong):
        raise TypeError(f"the mistake {name} is awaited where the real one is not, or the other way round")
    parameters = inspect.signature(real).parameters.values()
    by_place = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    needed = [each for each in by_place if each.default is each.empty]
    signature = inspect.signature(wrong)
    for places, names in ((by_place, by_name), (needed, {})):
        try:
            signature.bind(*places, **names)
        except TypeError as error:
            raise TypeError(f"the mistake {name} cannot be called as the real one is: {error}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds with a mistake planted until one breaks a promise."""
    from sharding_app.testing.simulation.runs import Job, run

    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("name", metavar="NAME", choices=MISTAKES, help="the mistake")
    parser.add_argument("--seeds", type=int, default=20, help="run at most N seeds (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--nodes", type=int, default=0, help="number of nodes (default: 3, 4 or 5, by the seed)"
    )
    options = parser.parse_args(arguments)
    promises = MISTAKES[options.name].promises
    if MISTAKES[options.name].changes_a_stand_in:
        print(f"{options.name} changes a stand-in of the simulation, and no code that a real node runs.")
    for seed in range(options.seed, options.seed + options.seeds):
        nodes = options.nodes or 3 + seed % 3
        with planted(options.name):
            result = run(Job(seed, nodes, direct=MISTAKES[options.name].direct))
        if result.broken is None:
            continue
        print(f"Seed {seed} with {nodes} nodes: {result.broken}")
        for line in result.trace:
            print(f"    {line}")
        print(
            f"  Again: python -m tests.simulation.planted {options.name} --seeds 1 --seed {seed} --nodes {nodes}"
        )
        if result.promise in promises:
            return 0
        print(f"{options.name} breaks {' or '.join(map(str, promises))}: it was found as another mistake.")
        return 1
    print(f"{options.name} was not found by {options.seeds} seeds.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
