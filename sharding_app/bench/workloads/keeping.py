"""`recover` and `memory`: the recovery of entities from the journal, and their size in memory."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

from sharding_app.bench.cluster import BenchCluster, NodeFailed, bench_cluster
from sharding_app.bench.driving import at_once
from sharding_app.bench.entities import BenchAccount, name_of
from sharding_app.bench.histories import write_histories
from sharding_app.bench.machine import resident_bytes
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run, measured
from sharding_app.processes.child_processes import manage

RECOVERED = 30_000
EVENTS = 10
CHUNK = 5000
IN_FLIGHT = 1000
KEPT = 100_000
KEEP_IN_FLIGHT = 200
PLACED_SECONDS = 30.0


async def recover(run: Run) -> AsyncIterator[Result]:
    """Wake entities with a history each, which is written beforehand in the form that the fence
    requires.
    """
    count = run.entities or RECOVERED
    async with bench_cluster(run.nodes or 1, run.options) as cluster:
        name = name_of(BenchAccount)
        shards = await placed(cluster, name)
        for first in range(0, count, CHUNK):
            run.progress(f"recover, writing {count * EVENTS:,} events, {100 * first // count} %")
            entities = [f"r{number}" for number in range(first, min(first + CHUNK, count))]
            await run.database.arun(write_histories, run.database, name, entities, shards, EVENTS)
        in_flight = max(run.in_flight, default=IN_FLIGHT)
        run.progress(f"recover, {count:,} entities, {in_flight} in flight")
        waking = at_once(lambda number: BenchAccount.ref(f"r{number}").total(), in_flight, count=count)
        result = await measured(cluster, "recover", in_flight, waking)
        result.entities = count
        result.note = f"{EVENTS} events each"
        yield result


async def memory(run: Run) -> AsyncIterator[Result]:
    """Measure the growth of a node by idle entities, less the size of the same objects in a plain
    dict.
    """
    count = run.entities or KEPT
    async with bench_cluster(1, run.options) as cluster:
        await placed(cluster, name_of(BenchAccount))
        run.progress("memory, warming up")
        await at_once(lambda number: BenchAccount.ref(f"m-{number}").increase(), KEEP_IN_FLIGHT, count=5000)
        before = await cluster.figures()
        run.progress(f"memory, {count:,} entities")
        await at_once(lambda number: BenchAccount.ref(f"m{number}").increase(), KEEP_IN_FLIGHT, count=count)
        after = await cluster.figures()
    kept = int(after["entities"] - before["entities"])
    if kept != count:
        raise NodeFailed(
            f"{kept} of {count} entities are still in memory: the others were passivated meanwhile"
        )
    whole = (after["resident_bytes"] - before["resident_bytes"]) / count
    plain = await _plain(run, count) / count
    yield Result(
        workload="memory", nodes=1, entities=count, bytes_per_entity=whole - plain,
        note=f"{whole:.0f} in the node, {plain:.0f} in a plain dict",
    )  # fmt: skip


async def placed(cluster: BenchCluster, type_name: str) -> int:
    """Give every shard of a type a home; return their number."""
    process = cluster.process
    wanted = process.configs[type_name].number_of_shards
    process.region_client.find(type_name, list(range(wanted)))
    deadline = asyncio.get_running_loop().time() + PLACED_SECONDS
    while len(await cluster.homes(type_name)) < wanted:
        if asyncio.get_running_loop().time() > deadline:
            raise NodeFailed(f"not all shards of {type_name} got a home within {PLACED_SECONDS:g} s")
        await asyncio.sleep(0.1)
    return wanted


def fill_plain_dict(count: int) -> None:
    """Print the growth of this process by the same objects in a dict: the child of `_plain`."""
    before = resident_bytes(os.getpid())
    kept = {}
    for number in range(count):
        entity = object.__new__(BenchAccount)
        entity.count = 1
        kept[f"m{number}"] = entity
    sys.stdout.write(f"{resident_bytes(os.getpid()) - before}\n")


async def _plain(run: Run, count: int) -> int:
    child = await asyncio.create_subprocess_exec(
        *manage("sharding_bench", f"--as-dict={count}", *run.options),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await child.communicate()
    return int(printed)
