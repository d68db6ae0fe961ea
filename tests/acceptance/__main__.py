"""`python -m tests.acceptance --minutes 30 --seed 7`: mixed faults on a real cluster for as long as
one likes.

It says what it does, and ends with exit code 1 at the first broken promise: what was broken, where
the history and the logs lie, and how to see it again.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from sharding_app.torture.mixed import NAMES
from sharding_app.torture.run import go_on
from tests.acceptance.cluster import JOURNALS, Servers
from tests.acceptance.faults import FAULTS
from tests.acceptance.machine import missing
from tests.acceptance.mixed import Mixed
from tests.acceptance.scenario import Scenario

SETTINGS: dict[str, object] = {"REBALANCE_INTERVAL_SECONDS": 2.0, "PASSIVATE_AFTER_SECONDS": 10.0}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.acceptance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rate", type=float, default=300.0, help="calls per second")
    parser.add_argument("--entities", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=len(NAMES))
    parser.add_argument("--faults", default="", help=f"only these, of {','.join(FAULTS)}")
    parser.add_argument(
        "--no-standby", action="store_true", help="one PostgreSQL alone, without a synchronous standby"
    )
    parser.add_argument(
        "--journals", type=int, nargs="?", const=1, default=0, choices=range(len(JOURNALS) + 1),
        help="number of further journals, each on a server of its own; all servers are killed in turn (1)",
    )  # fmt: skip
    parser.add_argument(
        "--moves", action="store_true", help="with --journals: shards move between them all the time"
    )
    parser.add_argument(
        "--keep", type=Path, help="a new folder for histories and logs (default: a temporary one)"
    )
    parser.add_argument("--porcupine", type=Path, help="a program that judges the histories as well")
    given = parser.parse_args()
    if given.moves and not given.journals:
        parser.error("--moves needs --journals")
    return given


def main() -> int:
    given = options()
    seed = random.randrange(1_000_000) if given.seed is None else given.seed
    place = given.keep or Path(tempfile.mkdtemp(prefix="acceptance-"))
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o711)  # the servers may have to run as another user
    print(f"seed {seed}, {given.minutes:g} minutes, in {place}", flush=True)
    for what in missing():
        print(f"left out: {what}", flush=True)
    # The node at the end of the cable reaches one server only.
    single = given.no_standby or given.journals
    servers = Servers(place, standby=not single, wired=not given.journals, journals=given.journals)
    try:
        with Scenario(servers, place, seed, "mixed", SETTINGS) as run:
            names = tuple(f"n{number + 1}" for number in range(given.nodes))
            mixed = Mixed(
                run, lambda line: print(line, flush=True), [each for each in given.faults.split(",") if each], names,
                given.rate, given.entities, given.moves,
            )  # fmt: skip
            totals = go_on(mixed, 60 * given.minutes, lambda line: print(line, flush=True), given.porcupine)
    finally:
        servers.close()
    print("\n".join(totals.lines()))
    print(f"projection: {run.projected:,} events of accounts summed up, compared with the journal each round")
    if mixed.mover is not None:
        print("\n".join(mixed.mover.lines()))
    if totals.broken:
        print(f"BROKEN in round {totals.rounds}:\n{totals.broken}")
        print(
            f"histories and logs: {place}\nagain: python -m tests.acceptance --seed {seed} --minutes {given.minutes:g}"
        )
        return 1
    if given.keep is None:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
