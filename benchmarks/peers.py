"""`python benchmarks/peers.py`: the work of `sharding_bench ask durable`, done with what others
offer.

    .venv/bin/pip install --only-binary=:all: -r benchmarks/requirements.txt
    .venv/bin/python benchmarks/peers.py --json

It uses DATABASE_URL, or starts a Postgres of its own, durable as the demo's. Exit code 2: a peer is
not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

# As a script, this folder is on the path and not the project.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg

from benchmarks.measuring import IN_FLIGHT, SECONDS, Peer, measure
from sharding_app.bench.driving import NothingMeasured
from sharding_app.embedded import OwnPostgres
from sharding_app.management.arguments import counts, positive
from sharding_app.management.gc import quiet_collector
from sharding_app.wiring import new_loop

PEERS = ("eventsourcing", "ray", "xoscar")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python benchmarks/peers.py", description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="peer", help=f"of {', '.join(PEERS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON line for each result")
    parser.add_argument("--seconds", type=positive, default=SECONDS, help="how long each measurement takes")
    parser.add_argument("--in-flight", type=counts, default=IN_FLIGHT, metavar="K")
    given = parser.parse_args(arguments)
    if unknown := set(given.peers) - set(PEERS):
        parser.error(f"there is no peer {min(unknown)!r}: choose from {', '.join(PEERS)}")
    return given


@contextmanager
def database() -> Iterator[str]:
    """The database's URL: the one that is given, or a server's that ends with us."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)  # the server may have to run as another user
        with OwnPostgres(Path(place)) as server:
            yield server.url


async def report(peer: Peer, url: str, given: argparse.Namespace) -> int:
    """Print a line for each measurement, and return their number."""
    lines = 0
    async for line in measure(peer, url, given.in_flight, given.seconds):
        if given.json:
            print(json.dumps(line), flush=True)
        else:
            print(
                f"{line['peer']:14} {line['workload']:8} {line['in_flight']:5} in flight {line['ops_per_s']:9,}/s  "
                f"p50 {line['p50_ms']:g} ms  p99 {line['p99_ms']:g} ms",
                flush=True,
            )
        lines += 1
    return lines


def main(arguments: list[str]) -> int:
    given = parse(arguments)
    names = given.peers or PEERS
    if missing := [each for each in names if importlib.util.find_spec(each) is None]:
        print(
            f"not installed: {', '.join(missing)}. Run: pip install --only-binary=:all: -r benchmarks/requirements.txt",
            file=sys.stderr,
        )
        return 2
    # As the client of `sharding_bench` runs.
    quiet_collector()
    lines = 0
    try:
        with database() as url:
            for name in names:
                peer = cast(Peer, importlib.import_module(f"benchmarks.peer.of_{name}"))
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    lines += runner.run(report(peer, url, given))
    except (NothingMeasured, psycopg.OperationalError) as error:
        print(error, file=sys.stderr)
        return 1
    if not lines:
        print("No peer can have that many callers: give fewer with --in-flight.", file=sys.stderr)
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
