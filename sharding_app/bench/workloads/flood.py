"""`flood`: several clients ask more than the node can do; a quiet client is measured before, during
and after.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack

from sharding_app.bench.cluster import BenchCluster, bench_cluster
from sharding_app.bench.driving import FixedRate
from sharding_app.bench.entities import BenchAccount
from sharding_app.bench.flooding import FULL, Flooded, flood_process
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, warm
from sharding_app.bench.watching import MEGABYTE, Watched

FLOODERS = 3
CALLERS = (4000,)
"""Calls under way of each flooding process: far more than a node does at a time."""
PER_SECOND = 200
SECONDS = 6.0
SETTLE_SECONDS = 1.0


def _durable(number: int) -> Awaitable[int]:
    return BenchAccount.ref(f"c{number % ENTITIES}").increase()


async def flood(run: Run) -> AsyncIterator[Result]:
    """Flood the same entities on the same node: the quiet client must still be served."""
    seconds = run.seconds or SECONDS
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(bench_cluster(run.nodes or 1, run.options))
        others = [await stack.enter_async_context(flood_process(run.options)) for _ in range(FLOODERS)]
        run.progress("flood, warming up")
        await warm(_durable)
        for callers in run.in_flight or CALLERS:
            yield await _phase(cluster, run, "before", seconds)
            await asyncio.gather(*(other.go(callers) for other in others))
            await asyncio.sleep(SETTLE_SECONDS)
            meanwhile = await _phase(cluster, run, "meanwhile", seconds)
            flooded = await asyncio.gather(*(other.halt() for other in others))
            outcomes: Counter[str] = Counter()
            for each in flooded:
                outcomes.update(each.outcomes)
            meanwhile.rejected = outcomes[FULL]
            meanwhile.note = f"{meanwhile.note}; {_told(flooded, outcomes, callers)}"
            yield meanwhile
            await asyncio.sleep(SETTLE_SECONDS)
            yield await _phase(cluster, run, "afterwards", seconds)


def _told(flooded: list[Flooded], outcomes: Counter[str], callers: int) -> str:
    calls = ", ".join(f"{number:,} {name}" for name, number in sorted(outcomes.items()))
    return (
        f"{len(flooded)} flooding clients with {callers:,} calls under way each: {calls}; "
        f"{sum(each.cpu_seconds for each in flooded):.1f} s of CPU, "
        f"{max(each.resident_bytes for each in flooded) / MEGABYTE:.0f} MB at most"
    )


async def _phase(cluster: BenchCluster, run: Run, name: str, seconds: float) -> Result:
    run.progress(f"flood, {PER_SECOND} calls a second of a quiet client, {name}")
    took: list[float] = []
    async with Watched(cluster) as watched:
        figures, begun = await cluster.figures(), time.perf_counter()
        load = FixedRate(_durable, PER_SECOND, lambda _, due, until: took.append(until - due))
        await asyncio.sleep(seconds)
        after, elapsed = await cluster.figures(), time.perf_counter() - begun
        await load.stop()
    result = Result(
        workload="flood", nodes=len(cluster.nodes), ops_per_s=load.succeeded / elapsed, count=load.sent,
        failed=sum(load.failures.values()), note=name,
        cpu_percent=(after["cpu_seconds"] - figures["cpu_seconds"]) / elapsed * 100,
        node_rows_per_s=(after["rows"] - figures["rows"]) / elapsed,
    )  # fmt: skip
    watched.note(result)
    return result.timed(took)
