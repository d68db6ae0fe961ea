"""`long-history`: one entity with very many events is recovered while others wake on the same
node.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from sharding_app.bench.cluster import BenchCluster, NodeFailed, bench_cluster
from sharding_app.bench.entities import BenchAccount, name_of
from sharding_app.bench.histories import write_histories
from sharding_app.bench.machine import resident_bytes
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run
from sharding_app.bench.workloads.keeping import placed

LENGTHS = (100_000, 300_000, 1_000_000)
OTHERS = 2000
OTHERS_EVENTS = 10
PAUSE_SECONDS = 0.01
TIMEOUT_SECONDS = 300.0
MEGABYTE = 1_000_000


async def long_history(run: Run) -> AsyncIterator[Result]:
    """Recover each length in a new node, so that its memory and its loop's standstill are measured
    afresh.
    """
    name = name_of(BenchAccount)
    for events in (run.entities,) if run.entities else LENGTHS:
        async with bench_cluster(1, run.options) as cluster:
            shards = await placed(cluster, name)
            run.progress(f"long-history, writing {events:,} events")
            long, others = f"long-{events}", [f"other-{events}-{number}" for number in range(OTHERS)]
            await run.database.arun(write_histories, run.database, name, [long], shards, events)
            await run.database.arun(write_histories, run.database, name, others, shards, OTHERS_EVENTS)
            run.progress(f"long-history, recovering {events:,} events")
            yield await _measured(cluster, long, events, others)


async def _measured(cluster: BenchCluster, long: str, events: int, others: list[str]) -> Result:
    await BenchAccount.ref("warm").total()
    (node,) = cluster.nodes.values()
    before = await cluster.figures()
    memory, waited, over = [resident_bytes(node.pid)], [0.0], asyncio.Event()

    async def look() -> None:
        while not over.is_set():
            memory.append(resident_bytes(node.pid))
            await asyncio.sleep(PAUSE_SECONDS)

    async def wake() -> None:
        for other in others:
            if over.is_set():
                return
            began = time.perf_counter()
            if await BenchAccount.ref(other, timeout=TIMEOUT_SECONDS).total() != OTHERS_EVENTS:
                raise NodeFailed(f"{other} has lost events")
            waited.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE_SECONDS)

    jobs = [asyncio.ensure_future(look()), asyncio.ensure_future(wake())]
    began = time.perf_counter()
    total = await BenchAccount.ref(long, timeout=TIMEOUT_SECONDS).total()
    seconds = time.perf_counter() - began
    over.set()
    await asyncio.gather(*jobs)
    if total != events:
        raise NodeFailed(f"{total} of {events} events were recovered")
    after = await cluster.figures()
    return Result(
        workload="long-history", nodes=1, count=events, ops_per_s=events / seconds, max_ms=seconds * 1e3,
        node_mb=after["resident_bytes"] / MEGABYTE, node_mb_most=max(memory) / MEGABYTE,
        note=(
            f"{before['resident_bytes'] / MEGABYTE:.0f} MB before; the loop stood still for "
            f"{after['worst_lag_seconds'] * 1e3:.0f} ms at most; others woke within {max(waited) * 1e3:.0f} ms"
        ),
    )  # fmt: skip
