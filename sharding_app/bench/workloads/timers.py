"""`timers`: how late durable timers fire on an idle cluster, how long many take that are due in the
same second, and what a million pending ones cost a node.

The many are written with SQL while no node runs. All times are by the clock of PostgreSQL.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from sharding_app.bench.cluster import BenchCluster, NodeFailed, bench_cluster
from sharding_app.bench.database import Database
from sharding_app.bench.entities import BenchTimed, name_of
from sharding_app.bench.result import Result
from sharding_app.bench.run import Run
from sharding_app.bench.workloads.keeping import placed
from sharding_app.protocol.ids import shard_of

NODES = 2
PENDING = 1_000_000
BURSTS = 10
"""One timer of that many is due in the same second."""
CHUNK = 20_000
IDLE_TIMERS = 500
IDLE_SECONDS = 10.0
BURST_AFTER_SECONDS = 15.0
"""Time to start the nodes in, until the second in which many timers are due."""
FAR_SECONDS = 3600.0
OVERDUE = 1000
"""Timers that have come due while all nodes were down."""
SETTLED_SECONDS = 3.0
FIRED_SECONDS = 120.0
LOOK_SECONDS = 0.05
ROWS = """
INSERT INTO sharding_message (
    id, type_id, shard, entity, seq, position, target_type, target, command, args, due, key)
SELECT 'bench-' || wanted.entity, t.id, wanted.shard, wanted.entity, 0, 0, t.name, wanted.entity, 'increase', %s,
    to_timestamp(wanted.due), 'tick'
FROM sharding_type t
CROSS JOIN unnest(%s::text[], %s::integer[], %s::float8[]) AS wanted (entity, shard, due)
WHERE t.name = %s
RETURNING 1
"""
MOVE = """
UPDATE sharding_message m SET due = to_timestamp(%s) FROM sharding_type t
WHERE t.id = m.type_id AND t.name = %s AND starts_with(m.entity, %s)
RETURNING 1
"""
LATENESS = """
SELECT extract(epoch FROM e.at)::float8 - substr(e.entity, 2)::float8
FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id
WHERE t.name = %s AND starts_with(e.entity, 'l') AND e.name = 'Increased'
"""
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"


async def timers(run: Run) -> AsyncIterator[Result]:
    pending = run.entities or PENDING
    burst, nodes = max(1, pending // BURSTS), run.nodes or NODES
    async with bench_cluster(nodes, run.options) as cluster:
        shards = await placed(cluster, name_of(BenchTimed))
        yield await _idle(run, cluster)
        yield await _burst(run, cluster, burst, shards)
        yield await _pending(run, cluster, pending, shards)


async def _idle(run: Run, cluster: BenchCluster) -> Result:
    """Measure from the time at which each is due until the append begins that it causes."""
    run.progress(f"timers, {IDLE_TIMERS} on an idle cluster")
    begin = await _now(run) + 2.0
    span = run.seconds or IDLE_SECONDS
    dues = [begin + number * span / IDLE_TIMERS for number in range(IDLE_TIMERS)]
    for due in dues:
        await BenchTimed.ref(f"l{due!r}").at(datetime.fromtimestamp(due, UTC))
    await _fired(run, "", dues[-1] - await _now(run))
    found = await run.database.arun(run.database.rows, LATENESS, name_of(BenchTimed))
    late = [max(0.0, seconds) for (seconds,) in found]
    result = Result(workload="timers", nodes=len(cluster.nodes), count=len(late), note="on an idle cluster")
    return result.timed(late)


async def _burst(run: Run, cluster: BenchCluster, count: int, shards: int) -> Result:
    """Measure from the second in which all are due until the last has taken effect."""
    nodes, name = len(cluster.nodes), name_of(BenchTimed)
    await cluster.close()
    await _write(run, "b", count, shards)
    due = await _now(run) + BURST_AFTER_SECONDS
    await run.database.arun(run.database.rows, MOVE, due, name, "b")
    await cluster.add(nodes)
    started = await _now(run)
    run.progress(f"timers, {count:,} due in the same second")
    before = await cluster.figures()
    await _fired(run, "bench-b", max(0.0, due - started))
    seconds = await _now(run) - max(due, started)
    after = await cluster.figures()
    return Result(
        workload="timers", nodes=nodes, count=count, ops_per_s=count / seconds, balanced_s=seconds,
        node_cpu_us=(after["cpu_seconds"] - before["cpu_seconds"]) / count * 1e6,
        note="due in the same second, of entities that are not in memory",
    )  # fmt: skip


async def _pending(run: Run, cluster: BenchCluster, count: int, shards: int) -> Result:
    """Measure a restart beside timers that are due in an hour, and the memory that they cost."""
    nodes = len(cluster.nodes)
    await _restart(cluster, nodes)
    plain = await _settled(cluster, shards)
    await cluster.close()
    await _write(run, "p", count, shards)
    await _write(run, "o", min(OVERDUE, count), shards, after=0.0)
    run.progress(f"timers, a restart beside {count:,} that are pending")
    began = time.perf_counter()
    await cluster.add(nodes)
    up = time.perf_counter()
    await _fired(run, "bench-o")
    done = time.perf_counter()
    full = await _settled(cluster, shards)
    return Result(
        workload="timers", nodes=nodes, entities=count, count=min(OVERDUE, count), balanced_s=done - began, node_mb=full,
        note=f"pending; processes up after {up - began:.1f} s, those overdue fired {done - up:.1f} s later;"
        f" {full - plain:+.1f} MB on the largest node",
    )  # fmt: skip


async def _restart(cluster: BenchCluster, nodes: int) -> None:
    await cluster.close()
    await cluster.add(nodes)


async def _settled(cluster: BenchCluster, shards: int) -> float:
    """Wait until every shard is at home and has read its timers; return the megabytes of the
    largest node.
    """
    deadline = time.perf_counter() + FIRED_SECONDS
    while True:
        figures = await cluster.figures()
        if figures.get("shards", 0) >= shards and not figures["reading"]:
            break
        if time.perf_counter() > deadline:
            raise NodeFailed(f"the shards have not read their timers within {FIRED_SECONDS:g} s")
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(SETTLED_SECONDS)
    found = await asyncio.gather(*(each.figures() for each in cluster.nodes.values()))
    return max(each["resident_bytes"] for each in found) / 1e6


async def _fired(run: Run, prefix: str, seconds: float = 0.0) -> None:
    """Wait until no timer is left whose id begins like that; they are due in `seconds` seconds."""
    await asyncio.sleep(seconds)
    deadline = time.perf_counter() + FIRED_SECONDS
    while await run.database.arun(run.database.messages, name_of(BenchTimed), prefix):
        if time.perf_counter() > deadline:
            raise NodeFailed(f"some timers have not fired within {FIRED_SECONDS:g} s")
        await asyncio.sleep(LOOK_SECONDS)


async def _now(run: Run) -> float:
    return float(await run.database.arun(run.database.value, NOW))


async def _write(run: Run, prefix: str, count: int, shards: int, after: float = FAR_SECONDS) -> None:
    """Write timers of entities without a history, due `after` seconds from now, or up to twice as
    many.
    """
    begin = await _now(run)
    for first in range(0, count, CHUNK):
        run.progress(f"timers, writing {count:,} rows, {100 * first // count} %")
        numbers = range(first, min(first + CHUNK, count))
        entities = [f"{prefix}{number}" for number in numbers]
        dues = [begin + after * (1 + number / count) for number in numbers]
        await run.database.arun(prepare, run.database, entities, dues, shards)


def prepare(database: Database, entities: list[str], dues: list[float], shards: int) -> None:
    """Write one timer for each, on the database's thread."""
    wanted: Any = entities
    places: Any = [shard_of(entity, shards) for entity in entities]
    times: Any = dues
    args: Any = BenchTimed._sharding_type.commands["increase"].encode((), {})  # type: ignore[union-attr]
    written = len(database.rows(ROWS, args, wanted, places, times, name_of(BenchTimed)))
    if written != len(entities):
        raise NodeFailed(f"{written} of {len(entities)} rows were written")
