"""`starved`: other processes take the processors away; calls at a fixed rate are measured before,
meanwhile and afterwards.

A machine with more work than it can do does less of each. The calls that are answered should become
fewer in that proportion. `in vain` counts events that nodes stored for callers that had given up:
work that made the machine busier and served no caller.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

from sharding_app.bench.cluster import BenchCluster, bench_cluster
from sharding_app.bench.driving import FixedRate
from sharding_app.bench.entities import BenchAccount, name_of
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, warm

NODES = 4
BUSY_ON_EACH_CORE = 5
PER_SECOND = 300
PATIENCE_SECONDS = 2.0
SECONDS = 10.0
SETTLE_SECONDS = 2.0
AT_MOST_SECONDS = 60.0
"""Busy processes end after this time and twice that of a measurement, also if this process is
killed.
"""
BUSY = "import sys, time\nuntil = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < until: pass"


def _durable(number: int) -> Awaitable[int]:
    return BenchAccount.ref(f"c{number % ENTITIES}", timeout=PATIENCE_SECONDS).increase()


def _begins(number: int) -> Awaitable[int]:
    """Call before anything is measured: on a machine that is busy already this may take longer."""
    return BenchAccount.ref(f"c{number % ENTITIES}").increase()


async def starved(run: Run) -> AsyncIterator[Result]:
    """Measure calls at a fixed rate beside busy processes."""
    seconds = run.seconds or SECONDS
    async with bench_cluster(run.nodes or NODES, run.options) as cluster:
        run.progress("starved, warming up")
        await warm(_begins)
        before = await _phase(cluster, run, "before", seconds)
        yield before
        count = BUSY_ON_EACH_CORE * (os.cpu_count() or 1)
        async with _busy_processes(count, 2 * seconds + AT_MOST_SECONDS):
            await asyncio.sleep(SETTLE_SECONDS)
            meanwhile = await _phase(cluster, run, f"beside {count} busy processes", seconds)
        if before.ops_per_s:
            meanwhile.ratio = {"of before": (meanwhile.ops_per_s or 0.0) / before.ops_per_s}
        yield meanwhile
        await asyncio.sleep(SETTLE_SECONDS)
        yield await _phase(cluster, run, "afterwards", seconds)


@asynccontextmanager
async def _busy_processes(count: int, at_most_seconds: float) -> AsyncIterator[None]:
    """Keep N processes computing until the end of the block."""
    processes = []
    try:
        for _ in range(count):
            command = (sys.executable, "-c", BUSY, str(at_most_seconds))
            processes.append(await asyncio.create_subprocess_exec(*command, start_new_session=True))
        yield
    finally:
        for each in processes:
            if each.returncode is None:
                each.kill()
        await asyncio.gather(*(each.wait() for each in processes))


async def _phase(cluster: BenchCluster, run: Run, name: str, seconds: float) -> Result:
    run.progress(f"starved, {PER_SECOND} calls a second, {name}")
    took: list[float] = []
    homes = await cluster.homes(name_of(BenchAccount))
    figures, begun = await cluster.figures(), time.perf_counter()
    load = FixedRate(_durable, PER_SECOND, lambda _, due, until: took.append(until - due))
    await asyncio.sleep(seconds)
    await load.stop()
    elapsed, after = time.perf_counter() - begun, await cluster.figures()
    moved = set((await cluster.homes(name_of(BenchAccount))).items()) - set(homes.items())
    stored = round(after["rows"] - figures["rows"])
    result = Result(
        workload="starved", nodes=len(cluster.nodes), ops_per_s=load.succeeded / elapsed, count=load.sent,
        failed=sum(load.failures.values()),
        note=f"{name}; {len(moved)} homes moved, {max(0, stored - load.succeeded)} of {stored} events in vain",
    )  # fmt: skip
    return result.timed(took)
