"""`flood`: one client sends without end; what another one sees of it before, meanwhile and afterwards."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable

from sharding_app.bench.cluster import BenchCluster, bench_cluster
from sharding_app.bench.driving import FixedRate
from sharding_app.bench.entities import BenchAccount
from sharding_app.bench.flooding import FULL, flood_process
from sharding_app.bench.result import Result
from sharding_app.bench.run import ENTITIES, Run, warm
from sharding_app.bench.watching import MEGABYTE, Watched

PER_SECOND = 200
SECONDS = 6.0
SETTLE_SECONDS = 1.0


def _durable(number: int) -> Awaitable[int]:
    return BenchAccount.ref(f"c{number % ENTITIES}").increase()


async def flood(run: Run) -> AsyncIterator[Result]:
    """The same entities, the same node: the quiet client must still be served."""
    seconds = run.seconds or SECONDS
    async with bench_cluster(run.nodes or 1, run.options) as cluster, flood_process(run.options) as other:
        run.progress("flood, warming up")
        await warm(_durable)
        yield await _phase(cluster, run, "before", seconds)
        await other.go()
        await asyncio.sleep(SETTLE_SECONDS)
        meanwhile = await _phase(cluster, run, "meanwhile", seconds)
        flooded = await other.halt()
        meanwhile.rejected = flooded.outcomes.get(FULL, 0)
        others = ", ".join(f"{number:,} {name}" for name, number in sorted(flooded.outcomes.items()))
        meanwhile.note = (
            f"{meanwhile.note}; the flooding client's calls: {others}; at most {flooded.under_way:,} under way, "
            f"{flooded.resident_bytes / MEGABYTE:.0f} MB"
        )
        yield meanwhile
        await asyncio.sleep(SETTLE_SECONDS)
        yield await _phase(cluster, run, "afterwards", seconds)


async def _phase(cluster: BenchCluster, run: Run, name: str, seconds: float) -> Result:
    run.progress(f"flood, {PER_SECOND} calls a second of a quiet client, {name}")
    took: list[float] = []
    async with Watched(cluster) as watched:
        begun = time.perf_counter()
        load = FixedRate(_durable, PER_SECOND, lambda _, since, until: took.append(until - since))
        await asyncio.sleep(seconds)
        await load.stop()
        elapsed = time.perf_counter() - begun
    result = Result(
        workload="flood", nodes=len(cluster.nodes), ops_per_s=load.succeeded / elapsed, count=load.sent,
        failed=sum(load.failures.values()), note=name,
    )  # fmt: skip
    watched.note(result)
    return result.timed(took) if took else result
