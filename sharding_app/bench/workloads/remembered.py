"""`remembered`: after a full restart all entities that ran run again, without a message."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from sharding_app.bench.cluster import BenchCluster, NodeFailed, bench_cluster
from sharding_app.bench.database import Database
from sharding_app.bench.entities import BenchRemembered, name_of
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run
from sharding_app.bench.workloads.keeping import placed
from sharding_app.protocol.ids import shard_of

NODES = 2
REMEMBERED = 100_000
CHUNK = 20_000
RUNNING_SECONDS = 120.0
LOOK_SECONDS = 0.05
EVENTS = """
INSERT INTO sharding_event (type_id, entity, seq, shard, epoch, name, version, payload)
SELECT t.id, wanted.entity, 1, wanted.shard, s.epoch, 'Increased', 1, '{"by":1}'
FROM sharding_type t
CROSS JOIN unnest(%s::text[], %s::integer[]) AS wanted (entity, shard)
JOIN sharding_shard s ON s.type_id = t.id AND s.shard = wanted.shard
WHERE t.name = %s
RETURNING 1
"""
ROWS = """
INSERT INTO sharding_remembered (type_id, shard, entity, epoch)
SELECT t.id, wanted.shard, wanted.entity, s.epoch
FROM sharding_type t
CROSS JOIN unnest(%s::text[], %s::integer[]) AS wanted (entity, shard)
JOIN sharding_shard s ON s.type_id = t.id AND s.shard = wanted.shard
WHERE t.name = %s
RETURNING 1
"""


async def remembered(run: Run) -> AsyncIterator[Result]:
    """Measure from the start of the nodes' processes until the last entity is in memory. Each has
    one event.
    """
    count, nodes = run.entities or REMEMBERED, run.nodes or NODES
    name = name_of(BenchRemembered)
    async with bench_cluster(nodes, run.options) as cluster:
        shards = await placed(cluster, name)
        for first in range(0, count, CHUNK):
            run.progress(f"remembered, writing rows, {100 * first // count} %")
            entities = [f"k{number}" for number in range(first, min(first + CHUNK, count))]
            await run.database.arun(prepare, run.database, name, entities, shards)
        run.progress(f"remembered, {count:,} entities, {nodes} nodes, all of them start again")
        await cluster.close()
        began = time.perf_counter()
        await cluster.add(nodes)
        up = time.perf_counter()
        figures = await _all_run(cluster, count)
        done = time.perf_counter()
        yield Result(
            workload="remembered", nodes=nodes, entities=count, count=count, balanced_s=done - began,
            ops_per_s=count / (done - up), node_cpu_us=figures["cpu_seconds"] / count * 1e6,
            note=f"processes up after {up - began:.1f} s, all run {done - up:.1f} s later",
        )  # fmt: skip


async def _all_run(cluster: BenchCluster, count: int) -> dict[str, float]:
    deadline = time.perf_counter() + RUNNING_SECONDS
    while (figures := await cluster.figures()).get("loaded", 0) < count:
        if time.perf_counter() > deadline:
            raise NodeFailed(
                f"{figures.get('loaded', 0):.0f} of {count} entities run after {RUNNING_SECONDS:g} s"
            )
        await asyncio.sleep(LOOK_SECONDS)
    return figures


def prepare(database: Database, type_name: str, entities: list[str], shards: int) -> None:
    """Write an event and a remembered row for each, on the database's thread."""
    numbers: Any = [shard_of(entity, shards) for entity in entities]
    wanted: Any = entities
    for statement in (EVENTS, ROWS):
        written = len(database.rows(statement, wanted, numbers, type_name))
        if written != len(entities):
            raise NodeFailed(f"{written} of {len(entities)} rows were written")
