"""The floor (`bench.floor`: the same path without a framework), run in turns with our workload for
the ratio of the two.

It gets the servers as DATABASE_URL and REDIS_URL. It goes over sockets, and over Redis where the
project has it.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from sharding_app.bench.result import Result
from sharding_app.processes.addresses import NoAddress, database_url, redis_url

PER_SECOND = 5_000
"""Calls of the floor for each second of our measurement."""
RATIOS = ("ops_per_s", "p50_ms", "p99_ms")


class ProbeFailed(Exception):
    """The floor cannot be measured here, or ended with an error."""


def wires() -> dict[str, dict[str, str]]:
    """Return the ways that can be measured here, each with the servers that it needs. Raises
    ProbeFailed.
    """
    try:
        servers = {"DATABASE_URL": database_url()}
    except NoAddress as error:
        raise ProbeFailed(str(error)) from error
    found = {"sockets": servers}
    with suppress(NoAddress):
        found["redis"] = {**servers, "REDIS_URL": redis_url()}
    return found


async def probe(
    wire: str, servers: Mapping[str, str], workload: str, in_flight: int, seconds: float
) -> dict[str, float]:
    """Run the floor once, longer after a longer measurement; return its figures. Raises
    ProbeFailed.
    """
    calls = max(in_flight, int(PER_SECOND * seconds))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sharding_app.bench.floor", "--wire", wire, "--workload", workload,
        "--in-flight", str(in_flight), "--n", str(calls),
        env={**os.environ, **servers},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, said = await child.communicate()
    if child.returncode:
        raise ProbeFailed(
            f"the probe over {wire} ended with exit code {child.returncode}: {said.decode(errors='replace')}"
        )
    (line,) = (json.loads(each) for each in printed.splitlines() if each.startswith(b"{"))
    return dict(line)


def compare(ours: Result, wire: str, theirs: Mapping[str, float]) -> None:
    """Note the ratios of our figures to the floor's, and the floor's."""
    found = {f"{wire}_{name}": getattr(ours, name) / theirs[name] for name in RATIOS}
    ours.ratio = {**(ours.ratio or {}), **found}
    note = f"the probe over {wire}: {theirs['ops_per_s']:,.0f}/s, p50 {theirs['p50_ms']:g} ms, p99 {theirs['p99_ms']:g} ms"
    ours.note = f"{ours.note}; {note}" if ours.note else note
