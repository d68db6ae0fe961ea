"""`idle`: the cost of a cluster that gets no calls."""

import asyncio
import time
from collections.abc import AsyncIterator

from sharding_app.bench.cluster import bench_cluster
from sharding_app.bench.driving import at_once
from sharding_app.bench.entities import BenchAccount
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run

NODES = 3
SECONDS = 10.0
SETTLE_SECONDS = 11.0
"""An idle session reports its last commits to the server's statistics only ten seconds later."""


async def idle(run: Run) -> AsyncIterator[Result]:
    async with bench_cluster(run.nodes or NODES, run.options) as cluster:
        await at_once(lambda n: BenchAccount.ref(f"c{n % ENTITIES}").increase(), 100, count=2 * ENTITIES)
        run.progress("idle, waiting for rest")
        await asyncio.sleep(SETTLE_SECONDS)
        seconds = run.seconds or SECONDS
        run.progress(f"idle, watching for {seconds:g} s")
        before, commits, begun = (
            await cluster.figures(),
            await run.database.arun(run.database.commits),
            time.perf_counter(),
        )
        await asyncio.sleep(seconds)
        passed = time.perf_counter() - begun
        # Our own query counts as one.
        ended = await run.database.arun(run.database.commits) - commits - 1
        after = await cluster.figures()
        nodes = len(cluster.nodes)
        yield Result(
            workload="idle",
            nodes=nodes,
            entities=ENTITIES,
            cpu_percent=100 * (after["cpu_seconds"] - before["cpu_seconds"]) / passed / nodes,
            queries_per_s=ended / passed / nodes,
            note="for each node; the queries include the client's",
        )
